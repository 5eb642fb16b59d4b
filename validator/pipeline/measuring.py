"""Measure once on this machine: read the host, run the probe, and have its report judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..assemble.progress import Progress
from ..engines.own_checks import PackedCheck, read_checks
from ..engines.probe_archive import probe_request, probe_version
from ..engines.protocol import Built
from ..errors import InputError, MissingError, ValidatorError
from ..locks.lock_files import render
from ..model.lock import Lock
from ..model.measurement import Outside
from ..model.own_checks import OwnCheck, own_check
from ..model.record import Record
from ..model.spec import ImageSpec
from .gpu_groups import Target, asked_for, targets
from .judging import Found, Question, now, record_of
from .recording import host_class_of, measurement_key
from .run import Run


@dataclass(frozen=True)
class Probing:
    """A run of the probe on one of the machine's targets.

    challenge: from whoever will certify, or None. key: see `measurement_key`.
    """

    target: Target
    challenge: str | None
    key: str


def may_be_signed(run: Run, target: Target) -> bool:
    """Return True if this run can sign what it measures there.

    Code in an environment on this machine could reach the key, so only containers count. If no GPU could be
    read on the host, there is nothing that this machine could vouch for.
    """
    outside = target.outside
    return (
        run.runner is not None and run.engine.isolates and isinstance(outside, Outside) and bool(outside.gpus)
    )


def own_checks(spec: ImageSpec) -> tuple[PackedCheck, ...]:
    """Return the user's own checks of an image. Raises MissingError if one can't be used."""
    added = spec.additions
    try:
        return read_checks(added.directory, added.checks) if added else ()
    except InputError as error:
        # It says nothing about the image, so nothing is recorded.
        raise MissingError(str(error), hint=error.hint) from error


def plan_measurements(spec: ImageSpec, lock: Lock, run: Run) -> list[Probing]:
    """Return the runs of the probe that this machine needs. Raises MissingError."""
    found = targets(run.engine.outside(), run.hosts, by_model=run.engine.isolates)
    asked = (
        [(target, None) for target in found]
        if run.challenges is None
        else asked_for(found, spec, run.challenges)
    )
    version, depth = probe_version(own_checks(spec)), run.options.depth
    return [
        Probing(target, challenge, measurement_key(spec, lock, version, depth, run.engine, target.outside))
        for target, challenge in asked
    ]


def earlier_record(probing: Probing, run: Run) -> Record | None:
    """Return the record that makes this measurement unnecessary."""
    if run.challenges is not None:
        # A challenge asks for a new measurement.
        return None
    found = run.store.measured(probing.key)
    unsigned = found is not None and found.measurement is None
    return None if unsigned and may_be_signed(run, probing.target) else found


def measure(probing: Probing, built: Built, lock: Lock, run: Run, started: str, progress: Progress) -> Record:
    """Run the probe, judge its report, and return the record, signed if this run can.

    started: when the work on the image began. Raises MissingError or InputError if nothing could be measured.
    """
    target, challenge = probing.target, probing.challenge
    runner = run.runner if may_be_signed(run, target) else None
    if challenge is None and runner is not None:
        challenge = runner.challenge(str(target.cell(built.spec)))
    # Read the host again, because the build took place between the plan and the probe.
    outside = target.seen_in(run.engine.outside())
    began = now()
    own = own_checks(built.spec)
    request = probe_request(
        run.options.depth, render(lock).encode(), challenge=challenge, gpus=target.uuids, own=own
    )
    report, failure = None, ""
    try:
        report = run.engine.probe(built, request, progress)
    except (MissingError, InputError):
        raise
    except ValidatorError as error:
        failure = str(error)
    question = Question(
        image=built.spec.identifier,
        variant=built.spec.variant,
        lock_digest=lock.digest,
        probe_version=probe_version(own),
        depth=run.options.depth,
        key=probing.key,
        engine=run.engine.name,
        added=built.spec.additions is not None,
        own=names_of(own),
        image_digest=built.digest,
        base=built.base,
        layers=built.layers,
        challenge=challenge,
        origin=run.options.origin,
    )
    found = Found(
        report=report,
        failure=failure,
        outside=outside,
        host=run.engine.host_facts,
        host_class=lambda read: target.host_class or host_class_of(read.host, run.hosts),
        unreported=target.host_class,
        started=started,
        began=began,
    )
    return record_of(question, found, runner, progress)


def names_of(own: Iterable[PackedCheck]) -> tuple[OwnCheck, ...]:
    """Return the checks of the user's own as measurements name them."""
    return tuple(sorted((own_check(check.file) for check in own), key=lambda check: check.id))
