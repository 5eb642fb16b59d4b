"""The main job: lock, build, probe and record every image spec, several at a time, with the chosen engine.

Each image ends as a recorded verdict, or as a result that says why there is none. Records are kept whatever
happens to the other images: a run that was stopped or killed continues when the same command is run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from ..assemble.wheels import ensure_lock
from ..engines.protocol import Built, Engine
from ..errors import MissingError, ValidatorError
from ..model.record import Record, Verdict
from ..model.report import host_of
from ..model.spec import ImageSpec, Lock, cell_identifier
from ..system import processes
from ..system.pools import THREAD_NAME, as_completed
from ..system.processes import Progress
from .measuring import earlier_record, host_class_of, measure, now, plan_measurements, reason_for
from .publisher import PublishedImage, Publisher, RefusedError
from .run import Event, Phase, RegistryUse, Result, Run, Status

# The work on one image: lock it, make it in the engine or the registry, measure it, record the verdict.
#
# `build`, `publish` and `measuring.measure` do one thing each and can be called alone.


def build(spec: ImageSpec, lock: Lock, engine: Engine, progress: Progress) -> tuple[Built, bool]:
    """Build an image in the engine. Return it, and True if the engine did not have this image before.

    Raises BuildError if it can't be built, and MissingError if something that it needs is missing.
    """
    before = engine.existing(spec, lock)
    built = engine.build(spec, lock, progress)
    return built, before is None or before.digest != built.digest


def publish(
    spec: ImageSpec, lock: Lock, publisher: Publisher, begin: Callable[[], Progress], *, renew: bool = False
) -> PublishedImage:
    """Return the image in the registry that a trusted builder made from this lock; make it if there is none.

    begin: called before the image is made; returns what its progress is reported to.
    renew: make it anyway. Raises RefusedError if the registry and this run disagree about the image,
    BuildError if it can't be made, and MissingError for faults of the network or the registry.
    """
    if not renew:
        with _refused():
            published = publisher.current(spec, lock)
        if published is not None:
            return published
    return publisher.push(spec, lock, begin())


def process_image(spec: ImageSpec, run: Run) -> list[Result]:
    """Lock, build, publish if requested, probe and record one image, or return the reason why not.

    There is one result, or one for each GPU model of the machine that was measured. Raises errors that
    concern more than this image, such as a store that can't be read.
    """
    work = _ImageWork(spec, run)
    error: ValidatorError | None = None
    try:
        status, detail = work.finish()
    except _BrokenImage as broken:
        status, error, detail = Status.MEASURED, broken.error, str(broken.error)
    except MissingError as missing:
        status, error, detail = Status.MISSING, missing, str(missing)
    except RefusedError as refused:
        status, error, detail = Status.REFUSED, refused, str(refused)
    records: list[Record | None] = [*(work.earlier if status is Status.UNCHANGED else work.records)]
    first, *others = records or [None]
    digest = work.built.digest if work.built else None
    result = Result(spec, status, first, work.fresh, detail, error, work.published, digest)
    # The image was built and pushed once.
    published = replace(work.published, sent=False) if work.published else None
    return [result, *(replace(result, record=other, built=False, published=published) for other in others)]


class _BrokenImage(Exception):
    """The image can't be built, for the reason in `error`, and a record says so."""

    def __init__(self, error: ValidatorError) -> None:
        super().__init__(str(error))
        self.error = error


class _ImageWork:
    """The work on one image, and its results so far.

    earlier: the records of earlier runs, one for each measurement of this machine, that everything but the
    image's digest agrees with; empty if one of them is missing. fresh: this run made a new image.
    """

    def __init__(self, spec: ImageSpec, run: Run) -> None:
        self.spec, self.run = spec, run
        self.started = now()
        self.lock: Lock | None = None
        self.earlier: list[Record] = []
        self.published: PublishedImage | None = None
        self.built: Built | None = None
        self.fresh = False
        self.records: list[Record] = []

    def finish(self) -> tuple[Status, str]:
        """Return how the work ended, and why. Raises what `process_image` tells apart."""
        run, spec, use = self.run, self.spec, self.run.options.registry
        if (why := run.engine.provides(spec.python)) is not None:
            return Status.SKIPPED, why
        with self._recorded_as_broken():
            # A lock that was found is part of the record, even if nothing can be planned.
            self.lock = lock = ensure_lock(run.locks, spec, run.sources, self._begin(Phase.LOCK)).lock
            planned = plan_measurements(spec, lock, run)
        if not run.options.force:
            found = [record for each in planned if (record := earlier_record(each, run)) is not None]
            self.earlier = found if len(found) == len(planned) else []
        if use is RegistryUse.NONE:
            if self.earlier:
                self.built = run.engine.existing(spec, lock)
            if self.built is None:
                with self._recorded_as_broken():
                    self.built, self.fresh = build(spec, lock, run.engine, self._begin(Phase.BUILD))
            here: Built | PublishedImage = self.built
        else:
            here = self.published = self._publish(lock)
        # What was measured has to be the image that is there now.
        if {record.image_digest for record in self.earlier} == {here.digest}:
            return Status.UNCHANGED, f"unchanged since {min(record.finished for record in self.earlier)}"
        if not run.options.validate:
            return Status.BUILT, here.reference
        if self.built is None:
            with _refused():
                assert self.published is not None and run.publisher is not None
                self.built = run.publisher.pull(spec, lock, self.published, self._begin(Phase.PULL))
        for each in planned:
            with run.probe_lock:
                processes.check_stopping()
                record = measure(each, self.built, lock, run, self.started, self._begin(Phase.PROBE))
            run.store.add(record)
            self.records.append(record)
        return Status.MEASURED, ""

    def _publish(self, lock: Lock) -> PublishedImage:
        publisher, options = self.run.publisher, self.run.options
        assert publisher is not None
        if options.registry is RegistryUse.PULL:
            with _refused():
                return publisher.find(self.spec, lock)
        with self._recorded_as_broken():
            published = publish(
                self.spec, lock, publisher, lambda: self._begin(Phase.PUSH), renew=options.force
            )
        self.fresh = published.sent
        return published

    def _begin(self, phase: Phase) -> Progress:
        """Report that a phase begins. Return the function that reports its progress."""
        self.run.on_event(Event(self.spec, phase))
        return lambda line: self.run.on_event(Event(self.spec, phase, line))

    @contextlib.contextmanager
    def _recorded_as_broken(self) -> Iterator[None]:
        """Record that the image does not build, if an error says so."""
        try:
            yield
        except (MissingError, RefusedError):
            raise
        except ValidatorError as error:
            run = self.run
            host = run.engine.host_facts()
            host_class = host_class_of(host_of(host), run.hosts)
            record = Record(
                cell=cell_identifier(self.spec.identifier, host_class),
                image=self.spec.identifier,
                host_class=host_class,
                verdict=Verdict.BROKEN,
                reason=reason_for(run.options.origin, str(error)),
                origin=run.options.origin,
                engine=run.engine.name,
                lock_digest=self.lock.digest if self.lock else None,
                image_digest=None,
                probe_version=None,
                started=self.started,
                finished=now(),
                key="",
                host=host,
            )
            self.run.store.add(record)
            self.records.append(record)
            raise _BrokenImage(error) from error


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Raise RefusedError for an error that says what is wrong with the image in the registry."""
    try:
        yield
    except MissingError:
        raise
    except ValidatorError as error:
        raise RefusedError(str(error), hint=error.hint) from error


#: Seconds after Ctrl-C for engines to remove containers. Don't wait longer for an engine that has stopped
#: answering; the next run removes what it left behind.
_CLEAN_UP_S = 10.0
#: With --fail-fast, these end the run as a failed cell does.
_ENDING = (Status.MISSING, Status.REFUSED)


def build_matrix(specs: Sequence[ImageSpec], run: Run) -> list[Result]:
    """Process the image specs and return their results in the same order, at least one for each.

    A machine with GPUs of several models gives one result for each of them. Ctrl-C ends the child processes;
    images that had not finished get the status `stopped`.
    """
    pool = ThreadPoolExecutor(max(1, run.options.jobs), thread_name_prefix=THREAD_NAME)
    interrupted = False
    futures: list[Future[list[Result]]] = [pool.submit(_process_unless_halted, spec, run) for spec in specs]
    try:
        for future in as_completed(futures):
            for result in future.result():
                run.on_event(Event(result.spec, Phase.DONE, result.detail, result))
    except KeyboardInterrupt:
        interrupted = True
        for other in futures:
            other.cancel()
        processes.stop_all()
        wait(futures, timeout=_CLEAN_UP_S)
    finally:
        pool.shutdown(wait=not interrupted)
    results: list[Result] = []
    for spec, future in zip(specs, futures, strict=True):
        # Ask the thread itself, which may be stuck after Ctrl-C: it may have written a record just before, or
        # while the other children were being ended.
        if not future.done() or future.cancelled() or future.exception() is not None:
            results.append(Result(spec, Status.STOPPED))
        else:
            results += future.result()
    return results


def _process_unless_halted(spec: ImageSpec, run: Run) -> list[Result]:
    # This has to be decided in the image's own thread. By the time the main thread collects a result, the
    # pool has already started the next image.
    if run.halted.is_set():
        return [
            Result(spec, Status.STOPPED, detail="not started, because another image failed (--fail-fast)")
        ]
    results = process_image(spec, run)
    ended = any(result.failed or result.status in _ENDING for result in results)
    if ended and not run.options.keep_going:
        run.halted.set()
    return results
