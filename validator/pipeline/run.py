"""A run of the main job: its options, its events, the result of each image, and the file of its progress."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ..engines.protocol import Engine
from ..errors import ValidatorError
from ..locks.lock_files import LockDirectory
from ..model import codec
from ..model.codec import format_timestamp, now_utc
from ..model.record import REHEARSAL, Origin, Record, Verdict
from ..model.spec import HostClass, ImageSpec
from ..records.store import Store
from ..system import runs
from ..system.files import write_atomically
from ..system.package_sources import PackageSources

if TYPE_CHECKING:
    from .build_matrix import Publisher


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
class PublishedImage:
    """An image in a registry."""

    tag: Annotated[str, "Its tag."]
    reference: Annotated[str, "`HOST/NAME@sha256:…`."]
    digest: Annotated[str, "The digest of the manifest."]
    sent: Annotated[bool, "Whether this run sent it; false if it was there already."]


@dataclass(frozen=True)
class Result:
    """The outcome of one image spec, on one of the machine's GPU models.

    record: the record of this run, or the earlier one if `status` is `unchanged`. built: by this run.
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


# Keep the progress of a run in a file that other processes read while it runs, such as `serve`.
#
# The file is replaced as a whole, so a reader sees an old state or a new one. A thread writes it, so work
# never waits for the disk, and a fault of the disk never ends a run. When the process is killed, nobody
# marks the file as ended. Then a reader sees by the lock of the process (`system.runs`) that it is gone.

logger = logging.getLogger(__name__)

#: The files of ended runs that are kept.
_KEPT = 5
#: Seconds between two looks for something new to write.
_PAUSE_S = 1.0
#: Seconds between two writes of a run in which nothing happens, and after which one on another machine counts
#: as gone.
_ALIVE_S, _GONE_S = 15.0, 90.0
#: The characters of a detail or reason that are kept, and the bytes of a file that are read.
_LENGTH, _LARGEST = 300, 4 << 20


class ProgressFile:
    """Write the events of a run, as a context manager. directory: of all runs. total: of the images."""

    def __init__(self, directory: Path, profile: str, total: int) -> None:
        now = now_utc()
        self._path = directory / f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}.json"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, name="progress", daemon=True)
        self._working: dict[ImageSpec, codec.Working] = {}
        self._done: list[codec.Done] = []
        self._finished: set[ImageSpec] = set()
        self._stopped = False
        self._changed = True
        self._written = now
        own_run = ""
        try:
            own_run = str(runs.current().directory)
        except ValidatorError as error:
            logger.info("other processes can't see whether this one is alive: %s", error)
        began = format_timestamp(now)
        self._state = codec.RunProgress(profile, began, began, total, 0, codec.RUNNING, own_run, runs.boot())

    def __enter__(self) -> ProgressFile:
        read = _read(self._path.parent)
        ended = [path for path, progress in read.items() if progress.state != codec.RUNNING]
        for path in sorted(ended)[: -(_KEPT - 1)]:
            with contextlib.suppress(OSError):
                path.unlink()
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        failed = kind is not None and not issubclass(kind, KeyboardInterrupt)
        state = codec.FAILED if failed else codec.STOPPED if kind or self._stopped else codec.FINISHED
        with self._lock:
            self._state = msgspec.structs.replace(self._state, state=state)
            self._working.clear()
        self._write()

    def __call__(self, event: Event) -> None:
        """Note an event. May be called from any thread."""
        with self._lock:
            self._changed = True
            if event.phase is not Phase.DONE:
                image, phase, since = event.spec.identifier, event.phase.value, format_timestamp(now_utc())
                before = self._working.get(event.spec)
                if before is not None and before.phase == phase:
                    since = before.since
                self._working[event.spec] = codec.Working(image, phase, event.detail[:_LENGTH], since)
                return
            self._working.pop(event.spec, None)
            self._finished.add(event.spec)
            if (result := event.result) is not None:
                self._stopped = self._stopped or result.status is Status.STOPPED
                verdict = result.record.verdict.value if result.record else result.status.value
                reason = result.record.reason if result.record else result.detail
                self._done.append(codec.Done(event.spec.identifier, verdict, reason[:_LENGTH]))

    def _keep_writing(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            if self._changed or now_utc() - self._written > timedelta(seconds=_ALIVE_S):
                self._write()

    def _write(self) -> None:
        with self._lock:
            self._changed = False
            self._written = now_utc()
            working, done = tuple(self._working.values()), tuple(self._done)
            now = {"updated": format_timestamp(self._written), "finished": len(self._finished)}
            state = msgspec.structs.replace(self._state, **now, working=working, done=done)
        try:
            # In ASCII: a tool's output may hold bytes that are not text.
            write_atomically(self._path, json.dumps(codec.encode(state)).encode())
        except ValidatorError as error:
            logger.info("the progress is not shown to other processes: %s", error)


def read_progress(directory: Path) -> list[codec.RunProgress]:
    """Return the runs, the newest first, each in the state that it is really in."""
    return sorted(_read(directory).values(), key=lambda progress: progress.started, reverse=True)


def _read(directory: Path) -> dict[Path, codec.RunProgress]:
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths = list(directory.glob("*.json"))
    found = {}
    for path in paths:
        # The file may have been removed meanwhile, or belong to somebody else.
        with contextlib.suppress(OSError, codec.DocumentError), path.open("rb") as stream:
            progress = codec.convert(codec.parse(stream.read(_LARGEST)), codec.RunProgress)
            found[path] = msgspec.structs.replace(progress, state=_state(progress))
    return found


def _state(progress: codec.RunProgress) -> str:
    if progress.state != codec.RUNNING:
        known = progress.state in (codec.FINISHED, codec.STOPPED, codec.FAILED)
        return progress.state if known else codec.UNKNOWN
    updated = codec.parse_timestamp(progress.updated)
    recent = updated is not None and now_utc() - updated < timedelta(seconds=_GONE_S)
    here = progress.boot == runs.boot()
    if here and progress.run and os.access(progress.run, os.X_OK):
        return codec.VANISHED if runs.is_dead(Path(progress.run)) else codec.RUNNING
    # It is on another machine, in another container or another user's: only its sign of life tells.
    return codec.RUNNING if recent else codec.VANISHED if here else codec.UNKNOWN
