"""Test the steps for one image, each called alone, and errors that concern more than the image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from validator.engines.protocol import Built
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.spec import ImageSpec, Lock, Variant
from validator.pipeline.build_matrix import RefusedError, build, publish
from validator.pipeline.run import PublishedImage

from .fakes import FakeEngine, report
from .test_build_matrix import Bench, bench  # noqa: F401

SPEC = ImageSpec("2.21.0", "3.11", Variant.CPU)
LOCK = Lock(SPEC.identifier, SPEC.python, "x", (), ())
THERE = PublishedImage("tag", "registry@sha256:a", "sha256:a", False)
SENT = replace(THERE, digest="sha256:b", sent=True)


def quiet(_: str) -> None:
    pass


def test_an_image_that_the_engine_has_is_not_a_new_one() -> None:
    engine = FakeEngine()
    built, fresh = build(SPEC, LOCK, engine, quiet)
    assert (built.digest, fresh) == ("sha256:image", True)
    assert build(SPEC, LOCK, engine, quiet) == (built, False)
    engine.images = {f"{SPEC} {LOCK.digest}": Built(SPEC, "image", LOCK.digest, "sha256:older")}
    assert build(SPEC, LOCK, engine, quiet)[1] is False


@dataclass
class FakePublisher:
    """A registry with one image, or an error. `pushed` counts the images that were made."""

    there: PublishedImage | ValidatorError | None
    pushed: int = 0

    def current(self, *_: object) -> PublishedImage | None:
        if isinstance(self.there, ValidatorError):
            raise self.there
        return self.there

    def push(self, *_: object) -> PublishedImage:
        self.pushed += 1
        return SENT


@pytest.mark.parametrize(
    ("there", "renew", "expected", "pushed"),
    [(THERE, False, THERE, 0), (THERE, True, SENT, 1), (None, False, SENT, 1)],
)
def test_an_image_is_made_where_the_registry_has_none(
    there: PublishedImage | None, renew: bool, expected: PublishedImage, pushed: int
) -> None:
    publisher: Any = FakePublisher(there)
    begun: list[str] = []

    def begin() -> Any:
        begun.append("push")
        return quiet

    assert publish(SPEC, LOCK, publisher, begin, renew=renew) == expected
    assert (publisher.pushed, len(begun)) == (pushed, pushed)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(MissingError("no network"), MissingError), (ValidatorError("not ours", hint="look"), RefusedError)],
)
def test_an_image_that_can_not_be_judged_is_not_replaced(
    error: ValidatorError, kind: type[ValidatorError]
) -> None:
    publisher: Any = FakePublisher(error)
    with pytest.raises(kind, match=str(error)) as caught:
        publish(SPEC, LOCK, publisher, lambda: quiet)
    assert (publisher.pushed, caught.value.hint) == (0, error.hint)


@pytest.mark.parametrize("where", ["measured", "add"])
def test_an_error_that_is_not_the_images_own_ends_the_run(
    bench: Bench,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    def fail(*_: object) -> None:
        raise InputError("the store is not a store")

    monkeypatch.setattr(bench.store, where, fail)
    with pytest.raises(InputError, match="not a store"):
        bench.run(FakeEngine(report()))
