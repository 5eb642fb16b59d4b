"""A run of the main job: its options, the events it emits, and the result of each image."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..engines.protocol import Engine
from ..errors import ValidatorError
from ..locks.lock_files import LockDirectory
from ..model.record import REHEARSAL, Origin, Record, Verdict
from ..model.spec import HostClass, ImageSpec
from ..records.store import Store
from ..system.package_sources import PackageSources
from .publisher import PublishedImage, Publisher


class Phase(str, Enum):
    """The stage that the work on an image has reached, as users see it."""

    LOCK = "lock"
    BUILD = "build"
    PUSH = "push"
    PULL = "pull"
    PROBE = "probe"
    DONE = "done"


class Status(str, Enum):
    """The way the work on an image ended.

    Nothing is recorded for `refused` (the registry holds another image under the tag, or refuses this one)
    and for `missing` (something that was needed was not there).
    """

    MEASURED = "measured"
    UNCHANGED = "unchanged"
    BUILT = "built"
    SKIPPED = "skipped"
    REFUSED = "refused"
    MISSING = "missing"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Result:
    """The outcome of one image spec, on one of the machine's GPU models.

    record: the record of this run, or the earlier one if `status` is `unchanged`.
    built: True if this run built the image.
    published: the image in the registry, if the run uses one.
    digest: of the image that the engine has, or that was written to an OCI layout.
    """

    spec: ImageSpec
    status: Status
    record: Record | None = None
    built: bool = False
    detail: str = ""
    error: ValidatorError | None = None
    published: PublishedImage | None = None
    digest: str | None = None

    @property
    def failed(self) -> bool:
        """True if the cell failed, in this run or, if it is unchanged, in the earlier one."""
        return self.record is not None and self.record.verdict in (Verdict.FAILED, Verdict.BROKEN)


@dataclass(frozen=True)
class Event:
    """A change to show to the user. `result` is set with the phase `done` only."""

    spec: ImageSpec
    phase: Phase
    detail: str = ""
    result: Result | None = None


@dataclass(frozen=True)
class Runner:
    """This machine as a runner, which signs what it measures.

    sign: turns a statement into a bundle, as JSON text. challenge: returns a new challenge for a cell. Both
    raise ValidatorError.
    labels_trusted: trust.yaml says that the labels of its nodes count, see `judge`.
    """

    sign: Callable[[bytes], str]
    challenge: Callable[[str], str]
    labels_trusted: bool = False


class RegistryUse(Enum):
    """NONE: only build. PUSH: push every image that is built. PULL: pull images instead of building them."""

    NONE = "none"
    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True)
class Options:
    """jobs: the number of images in progress at once; probes still run one at a time.

    depth: the depth of the probe, `quick` or `full`. rehearsal: nothing that the run makes can count.
    """

    jobs: int = 1
    keep_going: bool = True
    validate: bool = True
    force: bool = False
    depth: str = "quick"
    registry: RegistryUse = RegistryUse.NONE
    rehearsal: bool = False

    @property
    def origin(self) -> Origin:
        """The origin of the records that the run makes."""
        return Origin.REHEARSAL if self.rehearsal else Origin.HERE


@dataclass(frozen=True)
class Run:
    """Everything that a run works with. `publisher` is set unless `options.registry` is NONE.

    runner: signs what is measured; None where nothing can be signed.
    challenges: challenges of whoever will certify, by cell or by image spec. Only these cells are
        measured, and always again. None if this machine measures everything that it can.
    """

    engine: Engine
    store: Store
    sources: PackageSources
    locks: LockDirectory
    hosts: tuple[HostClass, ...]
    options: Options
    on_event: Callable[[Event], None]
    publisher: Publisher | None = None
    runner: Runner | None = None
    challenges: Mapping[str, str] | None = None
    # Two probes at once would share the GPU's memory and disturb each other's timing.
    probe_lock: threading.Lock = field(default_factory=threading.Lock)
    # Set by an image that fails when the run should not keep going.
    halted: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if (self.publisher is None) != (self.options.registry is RegistryUse.NONE):
            raise ValueError("a run needs a publisher if, and only if, it uses a registry")
        if self.options.rehearsal and self.runner is not None:
            raise ValueError(f"a {REHEARSAL} signs no measurements")
