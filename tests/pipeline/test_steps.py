"""`decide`: for everything that can be known about an image, the next step or the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validator.engines.protocol import Built
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.lock import Lock
from validator.model.record import Record, Verdict
from validator.model.spec import ImageSpec, Variant
from validator.pipeline.publisher import PublishedImage, TagTaken
from validator.pipeline.run import Options, RegistryUse, Status
from validator.pipeline.steps import Failure, Finish, Known, Step, decide

SPEC = ImageSpec("2.21.0", "3.11", Variant.CPU)
LOCK = Lock(SPEC.identifier, SPEC.python, "x", (), ())
BUILT = Built(SPEC, "image:built", LOCK.digest, "sha256:a")
ANOTHER = replace(BUILT, digest="sha256:b")
#: The measured image, and another one, in the registry.
SAME, OTHER = (PublishedImage("tag", f"registry@sha256:{x}", f"sha256:{x}", False) for x in "ab")
RECORD = Record(
    cell="cell", image=SPEC.identifier, host_class="no-gpu", verdict=Verdict.UNPROVEN, reason="no GPU",
    engine="docker", lock_digest=LOCK.digest, image_digest="sha256:a", probe_version="1", started="yesterday",
    finished="today", key="key",
)  # fmt: skip
LOOK = Step.FIND_PUBLISHED
UNCHANGED = Finish(Status.UNCHANGED, "unchanged since today")
MEASURED = Finish(Status.MEASURED)
BUILT_SAME, BUILT_OTHER = (Finish(Status.BUILT, image.reference) for image in (SAME, OTHER))

LOCAL = Options()
PUSH, PULL = (Options(registry=use) for use in (RegistryUse.PUSH, RegistryUse.PULL))
NEW = Known()
READY = Known(frozenset({Step.CHECK_PYTHON, Step.LOCK}), lock=LOCK)


def after(known: Known, *steps: Step, **found: object) -> Known:
    """Return `known` with further steps done and what they found."""
    return replace(known, done=known.done | {*steps}, **found)  # type: ignore[arg-type]


def force(options: Options) -> Options:
    return replace(options, force=True)


def no_validate(options: Options) -> Options:
    return replace(options, validate=False)


FIRST = after(READY, Step.FIND_RECORD)
REPEATED = after(READY, Step.FIND_RECORD, earlier=(RECORD,))
MADE = after(FIRST, Step.BUILD, built=BUILT)
PULLED = after(FIRST, Step.PULL, built=BUILT, published=OTHER)


@pytest.mark.parametrize(
    ("options", "known", "expected"),
    [
        # The beginning is the same for all.
        (LOCAL, NEW, Step.CHECK_PYTHON),
        (LOCAL, after(NEW, Step.CHECK_PYTHON, no_python="no 3.11"), Finish(Status.SKIPPED, "no 3.11")),
        (LOCAL, after(NEW, Step.CHECK_PYTHON), Step.LOCK),
        # Without a registry.
        (LOCAL, READY, Step.FIND_RECORD),
        (LOCAL, REPEATED, Step.FIND_BUILT),
        (LOCAL, after(REPEATED, Step.FIND_BUILT, built=BUILT), UNCHANGED),
        (no_validate(LOCAL), after(REPEATED, Step.FIND_BUILT, built=BUILT), UNCHANGED),
        (LOCAL, after(REPEATED, Step.FIND_BUILT, built=ANOTHER), Step.PROBE),
        # The image was removed from the engine. The same one is made again, or another one.
        (LOCAL, after(REPEATED, Step.FIND_BUILT), Step.BUILD),
        (LOCAL, after(REPEATED, Step.FIND_BUILT, Step.BUILD, built=BUILT), UNCHANGED),
        (LOCAL, after(REPEATED, Step.FIND_BUILT, Step.BUILD, built=ANOTHER), Step.PROBE),
        (force(LOCAL), READY, Step.BUILD),
        (LOCAL, FIRST, Step.BUILD),
        (LOCAL, MADE, Step.PROBE),
        (no_validate(LOCAL), MADE, Finish(Status.BUILT, "image:built")),
        (LOCAL, after(MADE, Step.PROBE, records=(RECORD,)), MEASURED),
        # With --push.
        (PUSH, READY, Step.FIND_RECORD),
        (PUSH, FIRST, LOOK),
        (PUSH, REPEATED, LOOK),
        (force(PUSH), READY, Step.PUSH),
        (PUSH, after(FIRST, LOOK), Step.PUSH),
        (PUSH, after(FIRST, LOOK, published=OTHER), Step.PULL),
        (no_validate(PUSH), after(FIRST, LOOK, published=OTHER), BUILT_OTHER),
        (PUSH, after(REPEATED, LOOK), Step.PUSH),
        (PUSH, after(REPEATED, LOOK, published=SAME), UNCHANGED),
        (PUSH, after(REPEATED, LOOK, published=OTHER), Step.PULL),
        (PUSH, after(FIRST, LOOK, Step.PUSH, published=SAME), Step.PULL),
        (force(PUSH), after(FIRST, Step.PUSH, published=SAME), Step.PULL),
        (no_validate(PUSH), after(FIRST, LOOK, Step.PUSH, published=SAME), BUILT_SAME),
        (PUSH, after(REPEATED, LOOK, Step.PUSH, published=SAME), UNCHANGED),
        (PUSH, after(REPEATED, LOOK, Step.PUSH, published=OTHER), Step.PULL),
        (PUSH, after(FIRST, LOOK, Step.PULL, built=BUILT, published=OTHER), Step.PROBE),
        # With --pull-from.
        (PULL, READY, Step.FIND_RECORD),
        (PULL, FIRST, LOOK),
        (PULL, REPEATED, LOOK),
        (force(PULL), READY, LOOK),
        (PULL, after(FIRST, LOOK, published=OTHER), Step.PULL),
        (PULL, after(REPEATED, LOOK, published=SAME), UNCHANGED),
        (PULL, after(REPEATED, LOOK, published=OTHER), Step.PULL),
        (PULL, after(REPEATED, LOOK, Step.PULL, built=BUILT, published=OTHER), Step.PROBE),
        (PULL, after(PULLED, Step.PROBE, records=(RECORD,)), MEASURED),
    ],
)  # fmt: skip
def test_the_next_step_follows_from_what_is_known(
    options: Options, known: Known, expected: Step | Finish
) -> None:
    assert decide(options, known) == expected


@pytest.mark.parametrize("step", Step)
def test_a_missing_requirement_ends_the_work_and_is_not_recorded(step: Step) -> None:
    known = after(READY, step, failure=Failure(step, MissingError("the network is down")))
    assert decide(LOCAL, known) == Finish(Status.MISSING, "the network is down")


@pytest.mark.parametrize("step", [Step.LOCK, Step.BUILD, Step.PUSH])
def test_an_image_that_can_not_be_built_is_recorded_as_broken(step: Step) -> None:
    known = after(READY, step, failure=Failure(step, ValidatorError("a hash differs")))
    assert decide(LOCAL, known) is Step.RECORD_BROKEN
    recorded = after(known, Step.RECORD_BROKEN, records=(RECORD,))
    assert decide(LOCAL, recorded) == Finish(Status.MEASURED, "a hash differs")


@pytest.mark.parametrize(
    ("step", "kind"),
    [(Step.FIND_PUBLISHED, ValidatorError), (Step.PULL, ValidatorError), (Step.PUSH, TagTaken)],
)
def test_a_disagreement_with_the_registry_is_refused_and_not_recorded(
    step: Step, kind: type[ValidatorError]
) -> None:
    known = after(READY, step, failure=Failure(step, kind("the tag is taken")))
    assert decide(PUSH, known) == Finish(Status.REFUSED, "the tag is taken")


@pytest.mark.parametrize(
    "step", [Step.CHECK_PYTHON, Step.FIND_RECORD, Step.FIND_BUILT, Step.PROBE, Step.RECORD_BROKEN]
)
def test_an_error_that_is_not_the_image_s_own_ends_the_run(step: Step) -> None:
    error = InputError("the store is not a store")
    with pytest.raises(InputError) as caught:
        decide(LOCAL, after(READY, step, failure=Failure(step, error)))
    assert caught.value is error


@pytest.mark.parametrize("use", RegistryUse)
@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("forced", [True, False])
def test_every_path_ends(use: RegistryUse, validate: bool, forced: bool) -> None:
    """Whatever the steps find, no step is repeated and the work ends."""
    options = Options(validate=validate, force=forced, registry=use)
    findings: dict[Step, list[dict[str, object]]] = {
        Step.CHECK_PYTHON: [{}, {"no_python": "no 3.11"}],
        Step.LOCK: [{"lock": LOCK}],
        Step.FIND_RECORD: [{}, {"earlier": (RECORD,)}],
        # With --pull-from, an image that is not there is an error.
        Step.FIND_PUBLISHED: [{"published": SAME}, {"published": OTHER}, *[{}] * (use is RegistryUse.PUSH)],
        Step.FIND_BUILT: [{"built": BUILT}, {"built": ANOTHER}, {}],
        Step.PULL: [{"built": BUILT}],
        Step.BUILD: [{"built": BUILT}, {"built": ANOTHER}],
        Step.PUSH: [{"published": SAME}, {"published": OTHER}],
        Step.PROBE: [{"records": (RECORD,)}],
        Step.RECORD_BROKEN: [{"records": (RECORD,)}],
    }
    failures: list[ValidatorError] = [MissingError("missing"), ValidatorError("wrong")]
    ends = set()

    def follow(known: Known) -> None:
        try:
            step = decide(options, known)
        except ValidatorError:
            assert known.failure is not None
            return
        if isinstance(step, Finish):
            ends.add(step.status)
            return
        assert step not in known.done
        for found in findings[step]:
            follow(after(known, step, **found))
        for error in (*failures, *[TagTaken("taken")] * (step is Step.PUSH)):
            follow(after(known, step, failure=Failure(step, error)))

    follow(NEW)
    assert {Status.SKIPPED, Status.MISSING, Status.MEASURED} <= ends
    assert (Status.BUILT in ends) is not validate
    assert (Status.UNCHANGED in ends) is not forced
    assert (Status.REFUSED in ends) is (use is not RegistryUse.NONE)
