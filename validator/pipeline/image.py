"""One image on its way from its lock to its record, through a registry or not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from ..engines.base import Built
from ..engines.probe_archive import probe_request, probe_version
from ..errors import InputError, MissingError, ValidatorError
from ..locks.files import render
from ..model.lock import Lock
from ..model.record import Record, Verdict
from ..model.report import Report, ReportError
from ..model.spec import ImageSpec, cell_identifier
from ..model.verdict import Judgement, judge
from ..system import processes
from .locking import ensure_lock
from .publish import Published
from .recording import host_class_of, measurement_key, versions_of
from .work import Event, Phase, Result, Status, Work


def measure(spec: ImageSpec, work: Work) -> Result:
    """Lock, build, publish if asked to, probe and record one image; or say why there is no record."""
    return _Image(spec, work).measure()


class _Ended(Exception):
    """The way ends here, with this status."""

    def __init__(self, status: Status, error: ValidatorError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class _Image:
    """An image spec, and what is known of its image so far."""

    def __init__(self, spec: ImageSpec, work: Work) -> None:
        self.spec = spec
        self.work = work
        self.started = _now()
        self.lock: Lock | None = None
        self.fresh = False
        self.published: Published | None = None

    def measure(self) -> Result:
        if (reason := self.work.engine.provides(self.spec.python)) is not None:
            return Result(self.spec, Status.SKIPPED, detail=reason)
        try:
            return self._measure()
        except MissingError as error:
            return self._result(Status.MISSING, detail=str(error), error=error)
        except _Ended as ended:
            record = None
            if ended.status is Status.MEASURED:
                record = _broken(self.spec, self.lock, self.work, self.started, ended.error)
                self.work.store.add(record)
            return self._result(ended.status, record, detail=str(ended.error), error=ended.error)

    def _measure(self) -> Result:
        work, spec = self.work, self.spec
        work.listen(Event(spec, Phase.LOCK))
        with _ending(Status.MEASURED):
            lock = ensure_lock(work.locks, spec, work.sources, _progress(work, spec, Phase.LOCK)).lock
            self.lock = lock
            key = measurement_key(spec, lock, probe_version(), work.options.depth, work.engine)
        earlier = None if work.options.force else work.store.measured(key)
        if earlier is not None and work.exchange is None:
            return self._unchanged(earlier)
        with _ending(Status.REFUSED):
            self.published = self._there(lock)
        if earlier is not None and self._is_published(earlier):
            return self._unchanged(earlier)
        if self.published is not None and not work.options.validate:
            return self._result(Status.BUILT, detail=self.published.reference)
        built = self._pulled(lock, self.published) if self.published else self._built(lock)
        if earlier is not None and self._is_published(earlier):
            return self._unchanged(earlier)
        if not work.options.validate:
            detail = self.published.reference if self.published else built.reference
            return self._result(Status.BUILT, detail=detail)
        with work.probing:
            processes.check_stopping()
            work.listen(Event(spec, Phase.PROBE))
            record = _validate(built, lock, key, work, self.started)
        work.store.add(record)
        return self._result(Status.MEASURED, record)

    def _there(self, lock: Lock) -> Published | None:
        """The image in the registry that makes building one needless."""
        exchange = self.work.exchange
        if exchange is None:
            return None
        if exchange.pull:
            return exchange.publisher.find(self.spec, lock)
        return None if self.work.options.force else exchange.publisher.current(self.spec, lock)

    def _pulled(self, lock: Lock, published: Published) -> Built:
        assert self.work.exchange is not None
        self.work.listen(Event(self.spec, Phase.PULL))
        progress = _progress(self.work, self.spec, Phase.PULL)
        with _ending(Status.REFUSED):
            return self.work.exchange.publisher.pull(self.spec, lock, published, progress)

    def _built(self, lock: Lock) -> Built:
        """The image, built; and published, where it is to be."""
        work = self.work
        work.listen(Event(self.spec, Phase.BUILD))
        with _ending(Status.MEASURED):
            had = work.engine.existing(self.spec, lock)
            built = work.engine.build(self.spec, lock, _progress(work, self.spec, Phase.BUILD))
            self.fresh = had is None or had.digest != built.digest
        if work.exchange is not None:
            work.listen(Event(self.spec, Phase.PUSH))
            progress = _progress(work, self.spec, Phase.PUSH)
            with _ending(Status.REFUSED):
                self.published, built = work.exchange.publisher.push(built, lock, progress)
        return built

    def _is_published(self, earlier: Record) -> bool:
        """Whether the image in the registry is the one that was measured earlier."""
        return self.published is not None and self.published.digest == earlier.image_digest

    def _unchanged(self, earlier: Record) -> Result:
        return self._result(Status.UNCHANGED, earlier, detail=f"unchanged since {earlier.finished}")

    def _result(
        self,
        status: Status,
        record: Record | None = None,
        *,
        detail: str = "",
        error: ValidatorError | None = None,
    ) -> Result:
        return Result(self.spec, status, record, self.fresh, detail, error, self.published)


@contextlib.contextmanager
def _ending(status: Status) -> Iterator[None]:
    """Let an error end the way with this status. What is missing ends it by itself."""
    try:
        yield
    except MissingError:
        raise
    except ValidatorError as error:
        raise _Ended(status, error) from error


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
