"""Make records: of what is measured on this machine or by a fleet, and of reports that are imported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..compat.hardware import model_of
from ..engines.protocol import Built, Engine, PackedCheck, probe_request, probe_version, read_checks
from ..errors import InputError, MissingError, ValidatorError
from ..locks.lock_files import render
from ..model.codec import format_timestamp, now_utc
from ..model.record import (
    REHEARSAL,
    Layer,
    Measurement,
    MeasurementError,
    Origin,
    Outside,
    OwnCheck,
    Record,
    Unread,
    Verdict,
    also_required,
    contents_of,
    own_check,
    report_digest,
    statement_of,
)
from ..model.report import Gpu, Host, Report, ReportError, read_report, versions_of
from ..model.spec import (
    NO_GPU,
    Choice,
    HostClass,
    ImageSpec,
    Lock,
    Variant,
    cell_identifier,
    host_identifier,
    slug,
)
from ..model.verdict import judge
from ..system.processes import Progress
from ..versions import ComputeCapability, DriverRelease, minor_in
from .run import Run, Runner

# Make the record of a measurement, wherever the probe ran: judge its report, and sign what was found.


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is known about a measurement before the probe runs. It can be stored as JSON.

    image: the image spec's identifier. added: the image has additions. own: the user's own checks, sorted by
    id. image_digest, base, layers: see `Built`. challenge: that the report has to repeat, or None.
    key: see `measurement_key`. engine, tensorflow_wheel: see `Record`.
    """

    image: str
    variant: Variant
    lock_digest: str
    probe_version: str
    depth: str
    key: str
    engine: str
    added: bool = False
    own: tuple[OwnCheck, ...] = ()
    image_digest: str | None = None
    base: str | None = None
    layers: tuple[Layer, ...] | None = None
    challenge: str | None = None
    origin: Origin = Origin.HERE
    tensorflow_wheel: str | None = None


@dataclass(frozen=True)
class ProbeRun:
    """The result of one run of the probe.

    report: its standard output; None if there is none, and `failure` is the sentence that says why.
    outside: the driver and the GPUs, read outside the environment.
    host: returns facts about the machine, for a record without a report.
    host_class: of the report, which is given; it may raise ReportError.
    unreported: the host class if there is no report to ask.
    started: when the work began. began: when the measurement began.
    """

    report: bytes | None
    failure: str
    outside: Outside | Unread
    host: Callable[[], Mapping[str, Any]]
    host_class: Callable[[Report], str]
    unreported: str | None
    started: str
    began: str


def record_of(question: Question, ran: ProbeRun, runner: Runner | None, say: Callable[[str], None]) -> Record:
    """Judge what the probe brought, and return the record.

    runner: signs it if the machine could be read outside the environment; None if nobody may sign it.
    say: gets the reason if it could not be signed.
    """
    report: Report | None = None
    host_class = ran.unreported
    try:
        if ran.report is None:
            raise ValidatorError(ran.failure)
        read = read_report(ran.report)
        host_class = ran.host_class(read)
        report = read
        judgement = judge(
            report,
            question.origin,
            ran.outside,
            challenge=question.challenge,
            variant=question.variant,
            also_required=also_required(question.added, question.own),
            labels_trusted=runner is not None and runner.labels_trusted,
        )
        verdict, reason = judgement.verdict, judgement.sentence
    except ReportError as error:
        verdict, reason = Verdict.FAILED, f"the probe's report can't be read: {error}"
    except ValidatorError as error:
        verdict, reason = Verdict.FAILED, str(error)
    host_class = host_class or NO_GPU
    # The fields that both have, with the same meaning.
    common = ("image", "engine", "lock_digest", "image_digest", "probe_version", "key", "base", "layers")
    asked = {name: getattr(question, name) for name in (*common, "origin", "tensorflow_wheel")}
    record = Record(
        cell=cell_identifier(question.image, host_class),
        host_class=host_class,
        verdict=verdict,
        reason=reason_for(question.origin, reason),
        started=ran.started,
        finished=now(),
        versions=versions_of(report) if report else {},
        **asked,
        **(contents_of(report) if report else {"host": dict(ran.host())}),
    )
    if runner is None or isinstance(ran.outside, Unread):
        return record
    kept = ("image", "host_class", "cell", "lock_digest", "probe_version", "finished", "tensorflow_wheel")
    measurement = Measurement(
        image_digest=str(record.image_digest),
        report_digest=report_digest(report.raw) if report else None,
        challenge=question.challenge,
        outside=ran.outside,
        started=ran.began,
        depth=question.depth,
        fixture=report is not None and report.fixture,
        checks=question.own,
        **{name: getattr(record, name) for name in kept},
    )
    try:
        return msgspec.structs.replace(record, measurement=runner.sign(statement_of(measurement)))
    except (ValidatorError, MeasurementError) as error:
        # The record is kept without a signature; measuring again can sign it.
        say(f"not signed: {error}")
        return record


def question_about(
    spec: ImageSpec, lock: Lock, depth: str, own: Sequence[PackedCheck], **known: Any
) -> Question:
    """Return the question about an image. known: the fields that don't follow from what it is made of."""
    return Question(
        image=spec.identifier,
        variant=spec.variant,
        lock_digest=lock.digest,
        probe_version=probe_version(own),
        depth=depth,
        added=spec.additions is not None,
        own=tuple(sorted((own_check(check.file) for check in own), key=lambda check: check.id)),
        tensorflow_wheel=lock.own_origin,
        **known,
    )


def reason_for(origin: Origin, sentence: str) -> str:
    """Return the reason that records of this origin give for a sentence."""
    return f"{REHEARSAL}: {sentence}" if origin is Origin.REHEARSAL else sentence


def now() -> str:
    return format_timestamp(now_utc(), "milliseconds")


# A report that was made elsewhere.


def record_of_report(report: Report) -> Record:
    """Return the record of a report from another machine, named after what was installed there.

    It is never `certified`, see `judge`. Raises InputError for a report of a Python without TensorFlow, which
    does not measure any image.
    """
    if not report.environment.tensorflow:
        raise InputError(
            f"the report of {report.started} comes from a Python without TensorFlow",
            hint="run probe.pyz with the Python that has TensorFlow, such as ~/venv/bin/python",
        )
    judgement = judge(report, Origin.ELSEWHERE)
    image = image_of(report)
    host_class = host_class_of(report.host, ())
    return Record(
        cell=cell_identifier(image, host_class),
        image=image,
        host_class=host_class,
        verdict=judgement.verdict,
        reason=judgement.sentence,
        engine="none",
        lock_digest=None,
        image_digest=None,
        probe_version=report.probe.version,
        started=report.started,
        finished=report.finished,
        key="",
        origin=Origin.ELSEWHERE,
        versions=versions_of(report),
        **contents_of(report),
    )


def image_of(report: Report) -> str:
    packages = report.environment.packages

    def installed(prefix: str) -> str | None:
        found = [version for name, version in packages.items() if name.startswith(prefix)]
        return minor_in(found[0]) if found else None

    python = minor_in(report.environment.python) or "0.0"
    tensorflow = report.environment.tensorflow or "0.0"
    cuda, cudnn = installed("nvidia-cuda-runtime-cu"), installed("nvidia-cudnn-cu")
    if "tensorflow-cpu" in packages or cuda is None or cudnn is None:
        return ImageSpec(tensorflow, python, Variant.CPU).identifier
    return ImageSpec(tensorflow, python, Variant.GPU, Choice(cuda, cuda), Choice(cudnn, cudnn)).identifier


# The host class and the key of a measurement.


def host_class_of(host: Host, declared: Iterable[HostClass]) -> str:
    """Return the identifier of the host class that a machine belongs to.

    declared: the matrix's host classes; the first that matches is used. A machine that fits none of them is
    named in the same way (`r595-h200`), and one without a GPU is `no-gpu`. Raises ReportError for a driver or
    a compute capability that is not one.
    """
    if not host.gpus or not host.driver:
        return NO_GPU
    models = list(dict.fromkeys(model_of(name) for name in host.gpu_names))
    # A driver library with a fault may leave a capability out; the models still name the host.
    known = (entry.compute_capability for entry in host.gpus)
    try:
        driver = DriverRelease.parse(host.driver)
        capabilities = {ComputeCapability.parse(capability) for capability in known if capability}
    except ValueError as error:
        raise ReportError(f"host: {error}") from None
    branch = DriverRelease(driver.branch)
    for host_class in declared:
        same_gpu = capabilities == {host_class.compute_capability}
        if host_class.gpu:
            same_gpu = models == [slug(host_class.gpu)]
        if host_class.driver.is_branch:
            same_driver = driver.branch == host_class.driver.branch
        else:
            same_driver = driver == host_class.driver
        if same_gpu and same_driver and host_class.compat is None:
            return host_class.identifier
    return host_identifier(branch, "+".join(models), min(capabilities, default=ComputeCapability(0, 0)))


def measurement_key(
    spec: ImageSpec, lock: Lock, probe_version: str, depth: str, engine: Engine, outside: Outside | Unread
) -> str:
    """Return a SHA-256 in hex over everything that must be unchanged for a measurement to stay valid.

    If the host can be read, that includes the driver and the models of the GPUs that are measured.
    """
    facts: dict[str, object] = {
        "image": spec.identifier,
        "lock": lock.digest,
        "probe": probe_version,
        "depth": depth,
        "engine": engine.name,
        "host": engine.host_facts(),
    }
    if isinstance(outside, Outside):
        gpus = [(gpu.name, gpu.compute_capability) for gpu in outside.gpus]
        facts |= {"driver": outside.driver, "gpus": sorted(gpus)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


# Choose which GPUs of a machine are measured together: those of one model, for one record.


@dataclass(frozen=True)
class Target:
    """One host class of the machine that runs the engine, for one run of the probe.

    outside: its driver and the GPUs that are offered to the probe, as the host sees them.
    host_class: None where the host can't be read; then the report names it.
    uuids: of the GPUs to offer; empty for all of the machine.
    challenge: from whoever will certify. key: see `measurement_key`.
    """

    outside: Outside | Unread
    host_class: str | None = None
    uuids: tuple[str, ...] = ()
    challenge: str | None = None
    key: str = ""

    def cell(self, spec: ImageSpec) -> str | None:
        """Return the identifier of the cell that is measured here, if it is known before the probe runs."""
        return cell_identifier(spec.identifier, self.host_class) if self.host_class else None

    def seen_in(self, outside: Outside | Unread) -> Outside | Unread:
        """Return the part of another reading of the same machine that is about these GPUs."""
        if isinstance(outside, Unread) or not self.uuids:
            return outside
        gpus = tuple(gpu for gpu in outside.gpus if gpu.uuid in self.uuids)
        return msgspec.structs.replace(outside, gpus=gpus)


def targets(outside: Outside | Unread, declared: Iterable[HostClass], *, by_model: bool) -> list[Target]:
    """Return what to measure on a machine, at least one target.

    declared: the matrix's host classes. by_model: each GPU model on its own; otherwise all GPUs together.
    """
    if isinstance(outside, Unread):
        return [Target(outside)]
    known = tuple(declared)
    models = list(dict.fromkeys(gpu.name for gpu in outside.gpus))
    parts = [outside]
    if by_model and len(models) > 1:
        groups = [tuple(gpu for gpu in outside.gpus if gpu.name == model) for model in models]
        parts = [msgspec.structs.replace(outside, gpus=gpus) for gpus in groups]
    found = []
    for part in parts:
        gpus = tuple(Gpu(gpu.name, gpu.uuid, gpu.compute_capability) for gpu in part.gpus)
        uuids = tuple(gpu.uuid for gpu in part.gpus) if len(parts) > 1 else ()
        found.append(Target(part, host_class_of(Host(part.driver, gpus=gpus), known), uuids))
    return found


def asked_for(found: Sequence[Target], spec: ImageSpec, challenges: Mapping[str, str]) -> list[Target]:
    """Return the targets that somebody asked to measure, each with its challenge.

    challenges: by cell, or by image spec for the only target of a machine. Raises MissingError if none of
    them is for this machine.
    """
    image = spec.identifier
    if len(found) == 1 and (found[0].host_class is None or image in challenges):
        # Without a reading of the host nothing is signed. The probe still gets a challenge to repeat.
        here = [text for cell, text in challenges.items() if cell.partition("@")[0] == image]
        return [replace(found[0], challenge=challenges.get(image) or (here[0] if here else None))]
    asked = [replace(target, challenge=challenges.get(str(target.cell(spec)))) for target in found]
    asked = [target for target in asked if target.challenge is not None]
    if not asked:
        classes = ", ".join(str(target.host_class) for target in found)
        raise MissingError(
            f"{image}: no challenge was made for this machine, whose host class is {classes}",
            hint="run it on a machine of a host class that the challenges name",
        )
    return asked


# Measure once on this machine: read the host, run the probe, and have its report judged.


def may_be_signed(run: Run, target: Target) -> bool:
    """Return True if this run can sign what it measures there.

    Code in an environment on this machine could reach the key, so only containers count. If no GPU could be
    read on the host, there is nothing that this machine could vouch for.
    """
    can_sign = run.runner is not None and run.engine.isolates
    return can_sign and isinstance(target.outside, Outside) and bool(target.outside.gpus)


def own_checks(spec: ImageSpec) -> tuple[PackedCheck, ...]:
    """Return the user's own checks of an image. Raises MissingError if one can't be used."""
    added = spec.additions
    try:
        return read_checks(added.directory, added.checks) if added else ()
    except InputError as error:
        # It says nothing about the image, so nothing is recorded.
        raise MissingError(str(error), hint=error.hint) from error


def plan_measurements(spec: ImageSpec, lock: Lock, run: Run) -> list[Target]:
    """Return the runs of the probe that this machine needs. Raises MissingError."""
    found = targets(run.engine.outside(), run.hosts, by_model=run.engine.isolates)
    if run.challenges is not None:
        found = asked_for(found, spec, run.challenges)
    version, depth = probe_version(own_checks(spec)), run.options.depth
    keys = [measurement_key(spec, lock, version, depth, run.engine, target.outside) for target in found]
    return [replace(target, key=key) for target, key in zip(found, keys, strict=True)]


def earlier_record(target: Target, run: Run) -> Record | None:
    """Return the record that makes this measurement unnecessary."""
    if run.challenges is not None:
        # A challenge asks for a new measurement.
        return None
    found = run.store.measured(target.key)
    unsigned = found is not None and found.measurement is None
    return None if unsigned and may_be_signed(run, target) else found


def measure(target: Target, built: Built, lock: Lock, run: Run, started: str, progress: Progress) -> Record:
    """Run the probe, judge its report, and return the record, signed if this run can.

    started: when the work on the image began. Raises MissingError or InputError if nothing could be measured.
    """
    challenge, depth, own = target.challenge, run.options.depth, own_checks(built.spec)
    runner = run.runner if may_be_signed(run, target) else None
    if challenge is None and runner is not None:
        challenge = runner.challenge(str(target.cell(built.spec)))
    request = probe_request(depth, render(lock).encode(), challenge=challenge, gpus=target.uuids, own=own)
    made = {"image_digest": built.digest, "base": built.base, "layers": built.layers}
    asked = {"key": target.key, "engine": run.engine.name, "origin": run.options.origin}
    question = question_about(built.spec, lock, depth, own, challenge=challenge, **made, **asked)

    def probe() -> bytes:
        return run.engine.probe(built, request, progress)

    return answer(question, probe, target, run.engine, runner, run.hosts, started, progress)


def answer(
    question: Question,
    probe: Callable[[], bytes],
    target: Target,
    engine: Engine,
    runner: Runner | None,
    hosts: tuple[HostClass, ...],
    started: str,
    progress: Progress,
) -> Record:
    """Read the host, run the probe in the engine, and return the record.

    probe: returns the report. runner: see `record_of`. Raises MissingError or InputError as `measure` does.
    """
    # Read the host again, because the image was brought here between the plan and the probe.
    outside = target.seen_in(engine.outside())
    began = now()
    report, failure = None, ""
    try:
        report = probe()
    except (MissingError, InputError):
        raise
    except ValidatorError as error:
        failure = str(error)
    ran = ProbeRun(
        report=report,
        failure=failure,
        outside=outside,
        host=engine.host_facts,
        host_class=lambda read: target.host_class or host_class_of(read.host, hosts),
        unreported=target.host_class,
        started=started,
        began=began,
    )
    return record_of(question, ran, runner, progress)
