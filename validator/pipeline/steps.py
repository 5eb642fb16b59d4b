"""Decide what to do next with an image, as a pure function of what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..engines.protocol import Built
from ..errors import MissingError, ValidatorError
from ..model.lock import Lock
from ..model.record import Record
from .publisher import PublishedImage, RefusedError
from .run import Options, RegistryUse, Status


class Step(Enum):
    """A piece of work that adds to what is known about an image."""

    CHECK_PYTHON = "check that the engine has the image's Python"
    LOCK = "read the lock, or resolve it"
    FIND_RECORD = "look for the record of an earlier run"
    FIND_PUBLISHED = "look for the image in the registry"
    FIND_BUILT = "look for the image in the engine"
    PUSH = "assemble the image in the registry"
    PULL = "pull the image"
    BUILD = "assemble the image in the engine"
    PROBE = "run the probe and record the verdict"
    RECORD_BROKEN = "record that the image does not build"


@dataclass(frozen=True)
class Finish:
    """The end of the work on an image."""

    status: Status
    detail: str = ""


@dataclass(frozen=True)
class Failure:
    """The error that a step raised."""

    step: Step
    error: ValidatorError


@dataclass(frozen=True)
class Known:
    """The facts that are known about an image so far.

    done: the steps that were carried out. A value that is None was looked for and not found if its step is in
        `done`; otherwise nobody has looked yet.
    no_python: why the engine can't provide the Python.
    earlier: the records of earlier runs, one for each target of the machine, that everything but the image's
        digest agrees with; empty if one of them is missing.
    published: the image in the registry, found there or assembled there.
    fresh: True if this run made a new image.
    records: those that this run has written, one for each target that was measured.
    """

    done: frozenset[Step] = frozenset()
    no_python: str | None = None
    lock: Lock | None = None
    earlier: tuple[Record, ...] = ()
    published: PublishedImage | None = None
    built: Built | None = None
    fresh: bool = False
    records: tuple[Record, ...] = ()
    failure: Failure | None = None


#: If one of these steps fails, the image is broken, and a record says so.
_BREAKING = (Step.LOCK, Step.BUILD, Step.PUSH)
#: If one of these fails, the registry and this run disagree about the image, which is not recorded.
_REFUSING = (Step.FIND_PUBLISHED, Step.PULL)


def decide(options: Options, known: Known) -> Step | Finish:
    """Return the next step for an image, or the end of the work on it.

    Raises the error of a failed step that concerns more than this image, such as a store that can't be read.
    """
    if known.failure is not None:
        return _after_failure(known.failure, known)
    if Step.CHECK_PYTHON not in known.done:
        return Step.CHECK_PYTHON
    if known.no_python is not None:
        return Finish(Status.SKIPPED, known.no_python)
    if Step.LOCK not in known.done:
        return Step.LOCK
    if known.records:
        return Finish(Status.MEASURED)
    return _find_earlier_work(options, known) or _make_and_measure(options, known)


def _after_failure(failure: Failure, known: Known) -> Step | Finish:
    detail = str(failure.error)
    if isinstance(failure.error, MissingError):
        return Finish(Status.MISSING, detail)
    if failure.step in _REFUSING or isinstance(failure.error, RefusedError):
        return Finish(Status.REFUSED, detail)
    if failure.step in _BREAKING:
        return Step.RECORD_BROKEN if not known.records else Finish(Status.MEASURED, detail)
    raise failure.error


def _find_earlier_work(options: Options, known: Known) -> Step | Finish | None:
    """Return the step that looks for earlier work, or the end if that work need not be repeated."""
    if not options.force and Step.FIND_RECORD not in known.done:
        return Step.FIND_RECORD
    # The image in the registry, or else the one in the engine, has to be the one that was measured.
    digests = {record.image_digest for record in known.earlier}
    here = known.built if options.registry is RegistryUse.NONE else known.published
    if here is not None and digests == {here.digest}:
        return Finish(Status.UNCHANGED, f"unchanged since {min(record.finished for record in known.earlier)}")
    if (
        known.earlier
        and options.registry is RegistryUse.NONE
        and known.built is None
        and Step.FIND_BUILT not in known.done
    ):
        return Step.FIND_BUILT
    looks = options.registry is RegistryUse.PULL or (
        options.registry is RegistryUse.PUSH and not options.force
    )
    if looks and Step.FIND_PUBLISHED not in known.done:
        return Step.FIND_PUBLISHED
    return None


def _make_and_measure(options: Options, known: Known) -> Step | Finish:
    if options.registry is RegistryUse.PUSH and known.published is None:
        return Step.PUSH
    if known.published is not None and not options.validate:
        return Finish(Status.BUILT, known.published.reference)
    if known.built is None:
        return Step.BUILD if known.published is None else Step.PULL
    if not options.validate:
        return Finish(Status.BUILT, known.built.reference)
    return Step.PROBE
