"""Lock, build, probe and record every image spec, several at a time.

Each image ends as a recorded verdict, or as a result that says why there is none. What is recorded stays,
whatever happens to the rest: a run that is stopped or killed goes on where it was by being started again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from ..engines.archive import probe_request, probe_version
from ..engines.base import Built, Engine
from ..errors import InputError, MissingError, ValidatorError
from ..locks.files import render
from ..model.lock import Lock
from ..model.record import Record, Verdict
from ..model.report import Report, ReportError
from ..model.spec import HostClass, ImageSpec, cell_identifier
from ..records.store import Store
from ..records.verdict import Judgement, judge
from ..system import processes
from ..system.sources import PackageSources
from .hosts import host_class_of
from .keys import measurement_key
from .locking import ensure_lock
from .versions import versions_of


class Phase(str, Enum):
    """Where the work on an image stands."""

    LOCK = "lock"
    BUILD = "build"
    PROBE = "probe"
    DONE = "done"


class Status(str, Enum):
    """How the work on an image ended. `missing`: what was needed was not there; nothing is recorded."""

    MEASURED = "measured"
    UNCHANGED = "unchanged"
    BUILT = "built"
    SKIPPED = "skipped"
    MISSING = "missing"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Result:
    """How one image spec ended.

    built: whether it was built in this run. record: what was recorded, now or (unchanged) earlier.
    """

    spec: ImageSpec
    status: Status
    record: Record | None = None
    built: bool = False
    detail: str = ""
    error: ValidatorError | None = None

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
class Work:
    """Everything a run works with."""

    engine: Engine
    store: Store
    sources: PackageSources
    locks: Path
    hosts: tuple[HostClass, ...]
    options: Options
    listen: Callable[[Event], None]
    # Two probes at once would share the GPU's memory and each other's timing.
    probing: threading.Lock = field(default_factory=threading.Lock)
    # Set by the image that fails when the others are not to go on.
    halted: threading.Event = field(default_factory=threading.Event)


def build_matrix(specs: Sequence[ImageSpec], work: Work) -> list[Result]:
    """Work through the image specs; the results are in the order of `specs`.

    On Ctrl-C the children are ended, and what had not finished has the status `stopped`.
    """
    results: dict[ImageSpec, Result] = {}
    pool = ThreadPoolExecutor(max_workers=max(1, work.options.jobs), thread_name_prefix="image")
    futures: list[Future[Result]] = [pool.submit(_in_turn, spec, work) for spec in specs]
    try:
        for future in as_completed(futures):
            result = future.result()
            results[result.spec] = result
            work.listen(Event(result.spec, Phase.DONE, result.detail, result))
    except KeyboardInterrupt:
        for other in futures:
            other.cancel()
        processes.stop_all()
    finally:
        pool.shutdown(wait=True)
    return [results.get(spec) or Result(spec, Status.STOPPED) for spec in specs]


def _in_turn(spec: ImageSpec, work: Work) -> Result:
    # Decided here and not where results are collected: there, the next image would have begun by then.
    if work.halted.is_set():
        return Result(spec, Status.STOPPED, detail="after another had failed")
    result = _image(spec, work)
    if not work.options.keep_going and (result.failed or result.status is Status.MISSING):
        work.halted.set()
    return result


def _image(spec: ImageSpec, work: Work) -> Result:
    """One image spec from its lock to its record."""
    if (reason := work.engine.provides(spec.python)) is not None:
        return Result(spec, Status.SKIPPED, detail=reason)
    started = _now()
    lock: Lock | None = None
    try:
        work.listen(Event(spec, Phase.LOCK))
        lock = ensure_lock(work.locks, spec, work.sources, _progress(work, spec, Phase.LOCK)).lock
        key = measurement_key(spec, lock, probe_version(), work.options.depth, work.engine)
        if not work.options.force and (earlier := work.store.measured(key)) is not None:
            return Result(spec, Status.UNCHANGED, earlier, detail=f"unchanged since {earlier.finished}")
        work.listen(Event(spec, Phase.BUILD))
        had = work.engine.existing(spec, lock)
        built = work.engine.build(spec, lock, _progress(work, spec, Phase.BUILD))
        fresh = had is None or had.digest != built.digest
    except MissingError as error:
        return Result(spec, Status.MISSING, detail=str(error), error=error)
    except ValidatorError as error:
        record = _broken(spec, lock, work, started, error)
        work.store.add(record)
        return Result(spec, Status.MEASURED, record, detail=str(error), error=error)
    if not work.options.validate:
        return Result(spec, Status.BUILT, built=fresh, detail=built.reference)
    try:
        with work.probing:
            processes.check_stopping()
            work.listen(Event(spec, Phase.PROBE))
            record = _validate(built, lock, key, work, started)
    except MissingError as error:
        return Result(spec, Status.MISSING, built=fresh, detail=str(error), error=error)
    work.store.add(record)
    return Result(spec, Status.MEASURED, record, built=fresh)


def _validate(built: Built, lock: Lock, key: str, work: Work, started: str) -> Record:
    request = probe_request(work.options.depth, render(lock).encode())
    host: dict[str, Any] = {}
    report: Report | None = None
    try:
        answer = work.engine.probe(built, request, _progress(work, built.spec, Phase.PROBE))
        report = Report.from_json(json.loads(answer))
        judgement, host = judge(report), report.host
    except (ReportError, ValueError) as error:
        judgement = Judgement(Verdict.FAILED, f"the probe's report can't be read: {error}")
    except (MissingError, InputError):
        raise
    except ValidatorError as error:
        judgement = Judgement(Verdict.FAILED, str(error))
    host_class = host_class_of(host, work.hosts)
    return Record(
        cell=cell_identifier(built.spec.identifier, host_class),
        image=built.spec.identifier,
        host_class=host_class,
        verdict=judgement.verdict,
        reason=judgement.reason,
        engine=work.engine.name,
        lock_digest=lock.digest,
        image_digest=built.digest,
        probe_version=probe_version(),
        started=started,
        finished=_now(),
        key=key,
        base=built.base,
        host=host or work.engine.host_facts(),
        versions=versions_of(report) if report else {},
        checks=[check.as_json() for check in report.checks] if report else [],
        report=report.raw if report else None,
        layers=None if built.layers is None else [layer.as_json() for layer in built.layers],
    )


def _broken(spec: ImageSpec, lock: Lock | None, work: Work, started: str, error: ValidatorError) -> Record:
    host = work.engine.host_facts()
    host_class = host_class_of(host, work.hosts)
    return Record(
        cell=cell_identifier(spec.identifier, host_class),
        image=spec.identifier,
        host_class=host_class,
        verdict=Verdict.BROKEN,
        reason=str(error),
        engine=work.engine.name,
        lock_digest=lock.digest if lock else None,
        image_digest=None,
        probe_version=None,
        started=started,
        finished=_now(),
        key="",
        host=host,
    )


def _progress(work: Work, spec: ImageSpec, phase: Phase) -> Callable[[str], None]:
    return lambda line: work.listen(Event(spec, phase, line))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
