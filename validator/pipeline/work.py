"""What goes through the main job: how it is asked for, what is told meanwhile, how each image ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ..engines.base import Engine
from ..errors import ValidatorError
from ..model.record import Record, Verdict
from ..model.spec import HostClass, ImageSpec
from ..records.store import Store
from ..system.sources import PackageSources
from .publish import Published, Publisher


class Phase(str, Enum):
    """Where the work on an image stands."""

    LOCK = "lock"
    BUILD = "build"
    PUSH = "push"
    PULL = "pull"
    PROBE = "probe"
    DONE = "done"


class Status(str, Enum):
    """How the work on an image ended.

    `refused`: it is not what the registry holds under its name. `missing`: what was needed was not there.
    Nothing is recorded of either.
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
    """How one image spec ended.

    built: whether it was built in this run. record: what was recorded, now or (unchanged) earlier.
    published: the image in the registry, if this run has to do with one.
    """

    spec: ImageSpec
    status: Status
    record: Record | None = None
    built: bool = False
    detail: str = ""
    error: ValidatorError | None = None
    published: Published | None = None

    @property
    def failed(self) -> bool:
        """The cell failed, in this run or in the unchanged earlier one."""
        return self.record is not None and self.record.verdict in (Verdict.FAILED, Verdict.BROKEN)


@dataclass(frozen=True)
class Event:
    """Something to show while it runs. `result` comes with the phase `done`."""

    spec: ImageSpec
    phase: Phase
    detail: str = ""
    result: Result | None = None


@dataclass(frozen=True)
class Options:
    """jobs: how many images are worked on at once; probes run one at a time all the same.

    depth: how much the probe measures, `quick` or `full`.
    """

    jobs: int = 1
    keep_going: bool = True
    validate: bool = True
    force: bool = False
    depth: str = "quick"


@dataclass(frozen=True)
class Exchange:
    """What a run does with a registry: push every image that it builds, or, where `pull`, take them from it
    and build none."""

    publisher: Publisher
    pull: bool = False


@dataclass(frozen=True)
class Work:
    """Everything a run works with."""

    engine: Engine
    store: Store
    sources: PackageSources
    locks: Path
    hosts: tuple[HostClass, ...]
    options: Options
    listen: Callable[[Event], None]
    exchange: Exchange | None = None
    # Two probes at once would share the GPU's memory and each other's timing.
    probing: threading.Lock = field(default_factory=threading.Lock)
    # Set by the image that fails when the others are not to go on.
    halted: threading.Event = field(default_factory=threading.Event)
