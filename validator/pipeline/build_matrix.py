"""The main job: lock, build, probe and record every image spec, several at a time, with the chosen engine.

Each image ends as a recorded verdict, or as a result that says why there is none. Records are kept whatever
happens to the other images: a run that was stopped or killed continues when the same command is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

from .. import __version__
from ..assemble.base_finder import contents
from ..assemble.configuration import attach_compatibility
from ..assemble.image import Assembled, Assembler, Destination
from ..assemble.layers import Encoded, Write
from ..assemble.wheels import ensure_lock
from ..certify import signatures
from ..certify.provenance import (
    Inputs,
    Provenance,
    Refusal,
    attach_provenance,
    attach_sbom,
    provenance_of,
    source_commit,
)
from ..certify.signatures import Signer
from ..certify.trust import TrustFile
from ..engines.protocol import Built, Engine, ImageEngine
from ..errors import MissingError, ValidatorError
from ..model.record import REHEARSAL, BaseOrigin, Record, Verdict
from ..model.report import host_of
from ..model.spec import ImageSpec, Lock, cell_identifier
from ..registry.client import Registry
from ..registry.names import image_tag
from ..sbom import document_of_lock
from ..system import processes
from ..system.pools import THREAD_NAME, as_completed
from ..system.processes import Progress
from .measuring import earlier_record, host_class_of, measure, now, plan_measurements, reason_for
from .run import Event, Phase, PublishedImage, RegistryUse, Result, Run, Status

# Push images to a registry, under tags that always name the same image, and pull them from there.
#
# Only provenance that a trusted builder signed says what an image in the registry was made from; its labels
# don't count. The digest of an image is the one in the registry here, because certificates are about that.


class RefusedError(ValidatorError):
    """The registry and this run disagree about an image."""


class TagTaken(RefusedError):
    """The tag names another image, and tags are not moved without --retag."""


@dataclass(frozen=True)
class Publisher:
    """Assembles images in one repository, and pulls them from it.

    destination: returns where the blobs and manifests of images of a spec go in the repository.
    engine: pulls images; None: this machine has no engine for images, and only pushes.
    trust: the builders whose images are accepted. signer: signs the provenance of images when they are
    pushed; None: there is none, so they can't be certified. retag: move a tag that names another image.
    rehearsal: tags and provenance say so, and no tag is one of those that an image is pulled by.
    """

    maker: Assembler
    destination: Callable[[ImageSpec], Destination]
    registry: Registry
    trust: TrustFile
    engine: ImageEngine | None = None
    signer: Signer | None = None
    retag: bool = False
    rehearsal: bool = False

    def tag(self, spec: ImageSpec) -> str:
        return f"{REHEARSAL}-{image_tag(spec)}" if self.rehearsal else image_tag(spec)

    def current(self, spec: ImageSpec, lock: Lock) -> PublishedImage | None:
        """Return the image that makes a push unnecessary, or None.

        It has the right tag, and a trusted builder made it from exactly this lock, base and recipe.
        """
        tag = self.tag(spec)
        digest = self.registry.digest_of(tag)
        # Without cosign, or without a builder to trust, nobody can tell where the image comes from.
        if digest is None or not self.trust.builders or not signatures.is_installed():
            return None
        found = self._provenance(spec, lock, digest)
        if (
            isinstance(found, Refusal)
            or found.inputs.recipe_digest != self.maker.recipe(spec)
            or not self.maker.bases.is_current(spec, base := str(found.inputs.base))
        ):
            return None
        self.maker.bases.warn_if_moved(spec, base)
        return self._published(tag, digest, sent=False)

    def push(self, spec: ImageSpec, lock: Lock, progress: Progress) -> PublishedImage:
        """Assemble an image in the registry and give it its tag, unless the registry has it already.

        What it was made from is signed and attached to it. Raises BuildError if the image can't be made,
        TagTaken if the tag names another image, and MissingError for faults of the network or the registry.
        None of them changes what the tag names. Raises RefusedError if another run then moved the tag. If the
        image was pushed and could not be signed, MissingError is raised too; the same command signs it when
        it is run again.
        """
        tag = self.tag(spec)
        into = _Tagged(self.destination(spec), self.registry, tag, self.retag)
        made = self.maker.make(spec, lock, into, progress)
        if (now := self.registry.digest_of(tag)) != made.digest:
            raise RefusedError(
                f"{self.registry.repository.tagged(tag)} was pushed as {made.digest}, but the registry now"
                f" has {now or 'no such tag'}",
                hint="another run pushed to the same tag at the same time; run the same command again",
            )
        self._prove(spec, lock, made, progress)
        return self._published(tag, made.digest, sent=into.changed)

    def find(self, spec: ImageSpec, lock: Lock) -> PublishedImage:
        """Return the image that another run pushed.

        Raises MissingError if there is none, and ValidatorError if no trusted builder made it from this lock.
        """
        tag = self.tag(spec)
        digest, name = self.registry.digest_of(tag), self.registry.repository.tagged(tag)
        if digest is None:
            hint = "push it there with `build-matrix --push`"
            raise MissingError(f"{name} is not in the registry", hint=hint)
        found = self._provenance(spec, lock, digest)
        if isinstance(found, Refusal):
            raise ValidatorError(
                f"{name} is rejected: {found.why}",
                hint="use the trust.yaml and the commit that it was built with, or build and push it again"
                " with --push and --retag; `check --image` measures any image, but can't certify it",
            )
        return self._published(tag, digest, sent=False)

    def pull(self, spec: ImageSpec, lock: Lock, published: PublishedImage, progress: Progress) -> Built:
        """Pull a published image into the engine, unless the engine has it already."""
        assert self.engine is not None
        existing = self.engine.existing(spec, lock)
        if existing is not None and existing.digest == published.digest:
            return existing
        return self.engine.pull(spec, lock, published.reference, progress)

    def _published(self, tag: str, digest: str, *, sent: bool) -> PublishedImage:
        return PublishedImage(tag, self.registry.repository.at(digest), digest, sent)

    def _provenance(self, spec: ImageSpec, lock: Lock, digest: str) -> Provenance | Refusal:
        return provenance_of(
            self.registry, digest, self.trust, image=spec.identifier, lock_digest=lock.digest
        )

    def _prove(self, spec: ImageSpec, lock: Lock, made: Assembled, progress: Progress) -> None:
        """Sign what an image was made from and has in it, if this machine signs and its base can be named."""
        if self.signer is None:
            return
        origin = BaseOrigin.parse(made.base.origin)
        if origin is None or origin.digest is None:
            progress(f"not signed, so it can't be certified: its base {made.base.origin} has no digest")
            return
        version = f"{__version__} ({REHEARSAL})" if self.rehearsal else __version__
        inputs = Inputs(
            spec.identifier, lock.digest, self.maker.recipe(spec), origin, source_commit(), version,
            made.base.added,
        )  # fmt: skip
        attach_compatibility(self.registry, made.digest, spec)
        attach_sbom(self.registry, made.digest, document_of_lock(lock, contents(made.base)), self.signer)
        # Last: an image that has provenance is not looked at again.
        attach_provenance(self.registry, made.digest, inputs, self.signer)


class _Tagged:
    """A repository where a finished image gets a tag; `changed` is True once the tag names a new image."""

    def __init__(self, inner: Destination, registry: Registry, tag: str, retag: bool) -> None:
        self.changed = False
        self._inner, self._registry, self._tag, self._retag = inner, registry, tag, retag

    def has(self, blob: Encoded) -> bool:
        return self._inner.has(blob)

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        return self._inner.receive(encode, known)

    def finish(self, manifest: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        before = self._registry.digest_of(self._tag)
        if before == digest:
            return digest
        if before is not None and not self._retag:
            name = self._registry.repository.tagged(self._tag)
            raise TagTaken(
                f"{name} was not pushed: in the registry, this tag names another image ({before}); the image"
                f" made here is {digest}",
                hint="use --retag to move the tag; the other image stays in the registry under its digest",
            )
        self._inner.finish(manifest, media_type)
        self._registry.tag(digest, self._tag)
        self.changed = True
        return digest


# The work on one image: lock it, make it in the engine or the registry, measure it, record the verdict.
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
        run, spec = self.run, self.spec
        if (why := run.engine.provides(spec.python)) is not None:
            return Status.SKIPPED, why
        with self._recorded_as_broken():
            # A lock that was found is part of the record, even if nothing can be planned.
            self.lock = lock = ensure_lock(run.locks, spec, run.sources, self._begin(Phase.LOCK)).lock
            planned = plan_measurements(spec, lock, run)
        if not run.options.force:
            found = [record for each in planned if (record := earlier_record(each, run)) is not None]
            self.earlier = found if len(found) == len(planned) else []
        here: Built | PublishedImage
        if run.publisher is None:
            if self.earlier:
                self.built = run.engine.existing(spec, lock)
            if self.built is None:
                with self._recorded_as_broken():
                    self.built, self.fresh = build(spec, lock, run.engine, self._begin(Phase.BUILD))
            here = self.built
        elif run.options.registry is RegistryUse.PULL:
            with _refused():
                here = self.published = run.publisher.find(spec, lock)
        else:
            with self._recorded_as_broken():
                begin, renew = partial(self._begin, Phase.PUSH), run.options.force
                here = self.published = publish(spec, lock, run.publisher, begin, renew=renew)
            self.fresh = here.sent
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
            run, image = self.run, self.spec.identifier
            host = run.engine.host_facts()
            host_class = host_class_of(host_of(host), run.hosts)
            record = Record(
                cell=cell_identifier(image, host_class),
                image=image,
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
            run.store.add(record)
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
        why = "not started, because another image failed (--fail-fast)"
        return [Result(spec, Status.STOPPED, detail=why)]
    results = process_image(spec, run)
    ended = any(result.failed or result.status in _ENDING for result in results)
    if ended and not run.options.keep_going:
        run.halted.set()
    return results
