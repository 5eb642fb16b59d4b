"""The work on one image: carries out the steps that `decide` asks for, and writes the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..engines.base import Built
from ..engines.probe_archive import probe_request, probe_version
from ..errors import InputError, MissingError, ValidatorError
from ..locks.files import render
from ..model.facts import Host, host_of
from ..model.lock import Lock
from ..model.record import Record, Verdict, contents_of
from ..model.report import Report, ReportError, read_report, versions_of
from ..model.spec import ImageSpec, cell_identifier
from ..model.timestamps import format_timestamp, now_utc
from ..model.verdict import judge
from ..system import processes
from .locking import ensure_lock
from .publisher import Publisher
from .recording import host_class_of, measurement_key
from .run import Event, Phase, RegistryUse, Result, Run, Status
from .steps import Failure, Known, Step, decide


def measure(spec: ImageSpec, run: Run) -> Result:
    """Lock, build, publish if requested, probe and record one image, or return the reason why not."""
    work = _ImageWork(spec, run)
    while isinstance(step := decide(run.options, work.known), Step):
        work.carry_out(step)
    known = work.known
    record = known.earlier if step.status is Status.UNCHANGED else known.record
    error = known.failure.error if known.failure else None
    return Result(spec, step.status, record, known.fresh, step.detail, error, known.published)


class _ImageWork:
    """Carries out the steps for one image and collects what they find."""

    def __init__(self, spec: ImageSpec, run: Run) -> None:
        self.spec = spec
        self.run = run
        self.started = _now()
        self.key = ""
        self.known = Known()
        self._actions: dict[Step, Callable[[], Known]] = {
            Step.CHECK_PYTHON: self._check_python,
            Step.LOCK: self._lock,
            Step.FIND_RECORD: self._find_record,
            Step.FIND_PUBLISHED: self._find_published,
            Step.PULL: self._pull,
            Step.BUILD: self._build,
            Step.PUSH: self._push,
            Step.PROBE: self._probe,
            Step.RECORD_BROKEN: self._record_broken,
        }

    def carry_out(self, step: Step) -> None:
        """Add to `known` what the step finds, or the error that it ends with."""
        try:
            self.known = self._actions[step]()
        except ValidatorError as error:
            self.known = replace(self.known, failure=Failure(step, error))
        self.known = replace(self.known, done=self.known.done | {step})

    def _check_python(self) -> Known:
        return replace(self.known, no_python=self.run.engine.provides(self.spec.python))

    def _lock(self) -> Known:
        run, progress = self.run, self._begin(Phase.LOCK)
        # A lock that was found is part of the record, even if its key can't be made.
        lock = ensure_lock(run.locks, self.spec, run.sources, progress).lock
        self.known = replace(self.known, lock=lock)
        self.key = measurement_key(self.spec, lock, probe_version(), run.options.depth, run.engine)
        return self.known

    def _find_record(self) -> Known:
        return replace(self.known, earlier=self.run.store.measured(self.key))

    def _find_published(self) -> Known:
        find = (
            self._publisher.find if self.run.options.registry is RegistryUse.PULL else self._publisher.current
        )
        return replace(self.known, published=find(self.spec, self._locked))

    def _pull(self) -> Known:
        assert self.known.published is not None
        progress = self._begin(Phase.PULL)
        built = self._publisher.pull(self.spec, self._locked, self.known.published, progress)
        return replace(self.known, built=built)

    def _build(self) -> Known:
        progress = self._begin(Phase.BUILD)
        before = self.run.engine.existing(self.spec, self._locked)
        built = self.run.engine.build(self.spec, self._locked, progress)
        return replace(self.known, built=built, fresh=before is None or before.digest != built.digest)

    def _push(self) -> Known:
        progress = self._begin(Phase.PUSH)
        published, built = self._publisher.push(self._image, self._locked, progress)
        return replace(self.known, published=published, built=built)

    def _probe(self) -> Known:
        with self.run.probe_lock:
            processes.check_stopping()
            progress = self._begin(Phase.PROBE)
            record = _measured_record(self._image, self._locked, self.key, self.run, self.started, progress)
        self.run.store.add(record)
        return replace(self.known, record=record)

    def _record_broken(self) -> Known:
        assert self.known.failure is not None
        record = _broken_record(self.spec, self.known.lock, self.run, self.started, self.known.failure.error)
        self.run.store.add(record)
        return replace(self.known, record=record)

    def _begin(self, phase: Phase) -> Callable[[str], None]:
        """Report that a phase begins; return what reports its progress."""
        self.run.on_event(Event(self.spec, phase))
        return lambda line: self.run.on_event(Event(self.spec, phase, line))

    @property
    def _locked(self) -> Lock:
        assert self.known.lock is not None
        return self.known.lock

    @property
    def _image(self) -> Built:
        assert self.known.built is not None
        return self.known.built

    @property
    def _publisher(self) -> Publisher:
        assert self.run.publisher is not None
        return self.run.publisher


def _measured_record(
    built: Built, lock: Lock, key: str, run: Run, started: str, progress: Callable[[str], None]
) -> Record:
    request = probe_request(run.options.depth, render(lock).encode())
    report: Report | None = None
    try:
        answer = run.engine.probe(built, request, progress)
        report = read_report(answer)
        judgement = judge(report)
        verdict, reason = judgement.verdict, judgement.sentence
    except ReportError as error:
        verdict, reason = Verdict.FAILED, f"the probe's report can't be read: {error}"
    except (MissingError, InputError):
        raise
    except ValidatorError as error:
        verdict, reason = Verdict.FAILED, str(error)
    host_class = host_class_of(report.host if report else Host(), run.hosts)
    return Record(
        cell=cell_identifier(built.spec.identifier, host_class),
        image=built.spec.identifier,
        host_class=host_class,
        verdict=verdict,
        reason=reason,
        engine=run.engine.name,
        lock_digest=lock.digest,
        image_digest=built.digest,
        probe_version=probe_version(),
        started=started,
        finished=_now(),
        key=key,
        base=built.base,
        versions=versions_of(report) if report else {},
        layers=built.layers,
        **(contents_of(report) if report else {"host": run.engine.host_facts()}),
    )


def _broken_record(
    spec: ImageSpec, lock: Lock | None, run: Run, started: str, error: ValidatorError
) -> Record:
    host = run.engine.host_facts()
    host_class = host_class_of(host_of(host), run.hosts)
    return Record(
        cell=cell_identifier(spec.identifier, host_class),
        image=spec.identifier,
        host_class=host_class,
        verdict=Verdict.BROKEN,
        reason=str(error),
        engine=run.engine.name,
        lock_digest=lock.digest if lock else None,
        image_digest=None,
        probe_version=None,
        started=started,
        finished=_now(),
        key="",
        host=host,
    )


def _now() -> str:
    return format_timestamp(now_utc(), "milliseconds")
