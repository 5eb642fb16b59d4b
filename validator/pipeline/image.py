"""The work on one image: carries out the steps that `decide` asks for, and writes the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..engines.probe_archive import probe_version
from ..engines.protocol import Built
from ..errors import ValidatorError
from ..model.facts import host_of
from ..model.lock import Lock
from ..model.record import Record, Verdict
from ..model.spec import ImageSpec, cell_identifier
from ..system import processes
from .gpu_groups import asked_for, targets
from .judging import now, reason_for
from .locking import ensure_lock
from .measuring import Probing, may_be_signed, measured_record, own_checks
from .publisher import Publisher
from .recording import host_class_of, measurement_key
from .run import Event, Phase, RegistryUse, Result, Run, Status
from .steps import Failure, Known, Step, decide


def measure(spec: ImageSpec, run: Run) -> list[Result]:
    """Lock, build, publish if requested, probe and record one image, or return the reason why not.

    There is one result, or one for each GPU model of the machine that was measured.
    """
    work = _ImageWork(spec, run)
    while isinstance(step := decide(run.options, work.known), Step):
        work.carry_out(step)
    known = work.known
    records = known.earlier if step.status is Status.UNCHANGED else known.records
    error = known.failure.error if known.failure else None
    digest = known.built.digest if known.built else None
    first, *others = records or (None,)
    result = Result(spec, step.status, first, known.fresh, step.detail, error, known.published, digest)
    # The image was built and pushed once.
    published = replace(known.published, sent=False) if known.published else None
    return [result, *(replace(result, record=other, built=False, published=published) for other in others)]


class _ImageWork:
    """Carry out the steps for one image, and collect their results."""

    def __init__(self, spec: ImageSpec, run: Run) -> None:
        self.spec = spec
        self.run = run
        self.started = now()
        self.planned: list[Probing] = []
        self.known = Known()
        self._actions: dict[Step, Callable[[], Known]] = {
            Step.CHECK_PYTHON: self._check_python,
            Step.LOCK: self._lock,
            Step.FIND_RECORD: self._find_record,
            Step.FIND_PUBLISHED: self._find_published,
            Step.FIND_BUILT: self._find_built,
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
        self.planned = self._plan(lock)
        return self.known

    def _find_record(self) -> Known:
        found = [self._earlier(probing) for probing in self.planned]
        earlier = tuple(record for record in found if record is not None)
        return replace(self.known, earlier=earlier if len(earlier) == len(found) else ())

    def _find_published(self) -> Known:
        find = (
            self._publisher.find if self.run.options.registry is RegistryUse.PULL else self._publisher.current
        )
        return replace(self.known, published=find(self.spec, self._locked))

    def _find_built(self) -> Known:
        return replace(self.known, built=self.run.engine.existing(self.spec, self._locked))

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
        published = self._publisher.push(self.spec, self._locked, self._begin(Phase.PUSH))
        return replace(self.known, published=published, fresh=published.sent)

    def _probe(self) -> Known:
        for probing in self.planned:
            with self.run.probe_lock:
                processes.check_stopping()
                progress = self._begin(Phase.PROBE)
                record = measured_record(probing, self._image, self._locked, self.run, self.started, progress)
            self.run.store.add(record)
            self.known = replace(self.known, records=(*self.known.records, record))
        return self.known

    def _record_broken(self) -> Known:
        assert self.known.failure is not None
        record = _broken_record(self.spec, self.known.lock, self.run, self.started, self.known.failure.error)
        self.run.store.add(record)
        return replace(self.known, records=(record,))

    def _begin(self, phase: Phase) -> Callable[[str], None]:
        """Report that a phase begins. Return the function that reports its progress."""
        self.run.on_event(Event(self.spec, phase))
        return lambda line: self.run.on_event(Event(self.spec, phase, line))

    def _plan(self, lock: Lock) -> list[Probing]:
        """Return the runs of the probe that this machine needs. Raises MissingError."""
        run = self.run
        found = targets(run.engine.outside(), run.hosts, by_model=run.engine.isolates)
        asked = (
            [(target, None) for target in found]
            if run.challenges is None
            else asked_for(found, self.spec, run.challenges)
        )
        version, depth = probe_version(own_checks(self.spec)), run.options.depth
        return [
            Probing(
                target,
                challenge,
                measurement_key(self.spec, lock, version, depth, run.engine, target.outside),
            )
            for target, challenge in asked
        ]

    def _earlier(self, probing: Probing) -> Record | None:
        """Return the record that makes this measurement unnecessary."""
        if self.run.challenges is not None:
            # A challenge asks for a new measurement.
            return None
        found = self.run.store.measured(probing.key)
        unsigned = found is not None and found.measurement is None
        return None if unsigned and may_be_signed(self.run, probing.target) else found

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
        reason=reason_for(run.options.origin, str(error)),
        origin=run.options.origin,
        engine=run.engine.name,
        lock_digest=lock.digest if lock else None,
        image_digest=None,
        probe_version=None,
        started=started,
        finished=now(),
        key="",
        host=host,
    )
