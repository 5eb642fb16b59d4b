"""Certify a record, if it rests on a measurement that counts.

A runner that may sign for the host class signed it, and it answers a challenge of whoever certifies. The
record itself proves nothing: what it says must be what the runner signed, or follow from it.

A record of a failure gets a statement as well, which invalidates the certificates of older measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..compat.facts import UnknownGpu
from ..compat.hardware import gpu, model_of
from ..errors import ValidatorError
from ..model.codec import NEVER, TOLERANCE, format_timestamp, now_utc, parse_timestamp
from ..model.record import (
    PREDICATE,
    REHEARSAL,
    Measurement,
    MeasurementError,
    Origin,
    Outside,
    OwnCheck,
    Record,
    Source,
    Verdict,
    also_required,
    measurement_of,
    report_digest,
)
from ..model.report import Report, ReportError, versions_of
from ..model.spec import NO_GPU, build_name, cell_identifier, variant_of
from ..model.verdict import as_judged, claimed, judge
from ..registry.client import Registry
from ..registry.names import additions_of, is_digest, tag_of
from ..resources import manual
from ..versions import ComputeCapability, DriverRelease
from . import signatures, statement
from .provenance import Provenance, Refusal, provenance_of
from .signatures import BundleError, NotVerified, Signer, parse_bundle, verify
from .trust import LIFETIME, Challenges, Party, Terms, Trust, TrustFile
from .verify import certificates, verified_statement


@dataclass(frozen=True)
class Certifier:
    """The certifier's inputs: who may sign, and the challenges that it made.

    uncomputed_parts: returns the layers of an image, given its digest, and its configuration, as far as this
    machine has neither made nor rebuilt them from their sources.
    """

    parties: TrustFile
    challenges: Challenges
    uncomputed_parts: Callable[[str], Sequence[str]] = lambda digest: ()


@dataclass(frozen=True)
class Issued:
    """A signed statement about a record.

    failed: True if it says that the image failed. fixture: True if a test made it.
    attached: its digest, or None if the image already had one for this record.
    """

    failed: bool
    fixture: bool
    attached: str | None


def certify(
    registry: Registry,
    record: Record,
    signer: Signer,
    trust: Trust,
    certifier: Certifier,
    *,
    valid_for: timedelta = statement.VALID_FOR,
    now: datetime | None = None,
) -> Issued:
    """Attach a certificate of a record to its image, or a failure if that is its verdict.

    trust: what `signer.trust()` returns. The new statement is verified with it before anything is written.
    valid_for: how long a certificate counts after the measurement.

    Raises NotCertifiable when the record may not be certified, or not by this signer, or the registry has a
    different image, or no trusted builder made it; MissingError when the registry or cosign fails.
    """
    at = now or now_utc()
    check_record(record)
    digest, failed = str(record.image_digest), record.verdict is Verdict.FAILED
    if record.id in certificates(registry, digest, Terms(trust, now=at)).records:
        return Issued(failed, signer.throw_away, None)
    measurement = accepted(record, certifier, at)
    # `accepted` has rejected the labels of a node if the runner may not rely on them.
    report = checked_report(record, measurement.outside, at, measurement.checks, labels_trusted=True)
    if measurement.fixture != signer.throw_away:
        raise NotCertifiable(_WRONG_KEY[measurement.fixture].format(record.id), hint=_WRONG_KEY_HINT)
    if registry.manifest(digest) is None:
        raise NotCertifiable(
            f"record {record.id} is about {digest}, which is not in {registry.repository}",
            hint="push the image that was measured (build-matrix --push), or measure the one in the registry",
        )
    if not failed:
        _check_tag(registry, record, digest)
        # Whoever can push as a builder could otherwise give any layer the name of a wheel, or start another
        # program.
        if not measurement.fixture and (missing := certifier.uncomputed_parts(digest)):
            raise NotCertifiable(
                f"record {record.id} ({record.cell}) can't be certified: this machine has neither made nor"
                f" rebuilt {len(missing)} of the parts of {digest} (its layers and its configuration)",
                hint=f"run `validator verify --rebuild --registry {registry.repository} {digest}` once",
            )
    expires = (parse_timestamp(record.finished) or NEVER) + valid_for
    if not failed and expires <= at:
        raise NotCertifiable(
            f"record {record.id} can't be certified: it was measured on {record.finished}, so its certificate"
            f" would have expired on {format_timestamp(expires)}",
            hint="measure the image again",
        )
    _check_provenance(registry, record, digest, certifier, signer, at)
    text = statement.statement(
        record, report, measurement, str(registry.repository),
        issued=format_timestamp(at), expires=format_timestamp(expires),
    )  # fmt: skip
    bundle = parse_bundle(signer.sign(text))
    verified_statement(bundle, digest, Terms(trust, now=at))
    attachment = signatures.attach(registry, digest, bundle.canonical, statement.PREDICATE)
    return Issued(failed, measurement.fixture, attachment)


_WRONG_KEY = {
    True: "record {} was made up by a test; only a throw-away key may sign it",
    False: "record {} is a real measurement; a throw-away key can't certify it",
}
_WRONG_KEY_HINT = "`certify keygen` makes keys for releases, `certify keygen --throw-away` keys for tests"


def _check_provenance(
    registry: Registry, record: Record, digest: str, certifier: Certifier, signer: Signer, now: datetime
) -> None:
    """Raise NotCertifiable unless a trusted builder made the image from the record's lock."""
    found = provenance_of(
        registry, digest, certifier.parties, image=record.image, lock_digest=record.lock_digest, now=now
    )
    why = found.why if isinstance(found, Refusal) else None
    if isinstance(found, Provenance) and found.fixture and not signer.throw_away:
        why = f"the key of its builder {found.builder} is a throw-away key, made for a test"
    if why is not None:
        raise NotCertifiable(
            f"record {record.id} ({record.cell}) can't be certified: the image {digest}: {why}",
            hint="push it with `build-matrix --push` on a builder in trust.yaml, and measure it again",
        )


def _check_tag(registry: Registry, record: Record, digest: str) -> None:
    """Raise NotCertifiable unless the image of the record is the one that people pull by its tag."""
    try:
        tag = tag_of(record.image)
    except ValueError as error:
        raise NotCertifiable(f"record {record.id} can't be certified: {error}") from error
    reference = registry.repository.tagged(tag)
    found = registry.digest_of(tag)
    if found != digest:
        raise NotCertifiable(
            f"record {record.id} is about {digest}, but {reference} is {found or 'not in the registry'}",
            hint="push the image that was measured (build-matrix --push), or measure the one in the registry",
        )


# Decide whether the measurement of a record counts.


def accepted(record: Record, certifier: Certifier, now: datetime) -> Measurement:
    """Return the measurement that a record rests on, and use up its challenge.

    Raises NotCertifiable with the reason; MissingError when cosign or the challenges can't be used.
    """
    try:
        measurement, runner = _verified(record, certifier.parties)
        objection = (
            _objection_to_runner(measurement, runner, now)
            or _difference(record, measurement)
            or _objection_to_challenge(record, measurement, certifier.challenges, now)
        )
    except (BundleError, MeasurementError) as error:
        objection = f"its signed measurement can't be read: {error}"
    except NotVerified as error:
        objection = str(error)
    if objection is None and measurement.challenge is not None:
        if other := certifier.challenges.use(measurement.challenge, record.id):
            objection = f"its challenge was used before, by record {other}, so this measurement is a copy"
        else:
            return measurement
    raise NotCertifiable(f"record {record.id} ({record.cell}) can't be certified: {objection}", hint=_HINT)


_HINT = f"{manual('trust.md')} says what is certified; measure the image again on a registered runner"


def _verified(record: Record, parties: TrustFile) -> tuple[Measurement, Party]:
    """Return what a registered runner signed. Raises NotVerified, BundleError or MeasurementError."""
    if record.measurement is None:
        raise NotVerified("no runner signed its measurement")
    bundle = parse_bundle(record.measurement.encode("utf-8", "replace"))
    claimed = measurement_of(bundle.payload)
    # Try those that may sign for the host class first; the others are tried only for the error message.
    runners = sorted(parties.runners, key=lambda party: not party.may_sign_for(claimed.host_class))
    for party in runners:
        try:
            payload = verify(bundle, claimed.image_digest, PREDICATE, party.signatory)
        except NotVerified:
            continue
        return measurement_of(payload), party
    raise NotVerified("its measurement is not signed by a registered runner")


def _objection_to_runner(measurement: Measurement, runner: Party, now: datetime) -> str | None:
    """Return why this runner's signature is not accepted for this measurement, or None."""
    finished = parse_timestamp(measurement.finished)
    if finished is None:
        return f"its signed finish time is not a timestamp ({measurement.finished})"
    if finished > now + TOLERANCE:
        return (
            f"it was signed as finished in the future ({measurement.finished}; it is {format_timestamp(now)}"
            " here): the clock of that machine or of this one is wrong"
        )
    # Also now: whoever has the key of a revoked runner could sign an earlier time.
    if silence := runner.silent_since(finished) or runner.silent_since(now):
        return f"its runner {runner.name} {silence}"
    if not runner.may_sign_for(measurement.host_class):
        return (
            f"its runner {runner.name} may not sign for {measurement.host_class}, only for"
            f" {', '.join(runner.host_classes)}"
        )
    if measurement.outside.source is Source.NODE_LABELS and not runner.labels_trusted:
        return (
            "its host is known only from the labels of a node, which count only if trust.yaml gives"
            f" `outside: [{Source.NODE_LABELS.value}]` to its runner {runner.name}"
        )
    if objection := objection_to(measurement.host_class, measurement.outside, runner):
        return objection
    if measurement.fixture and not runner.signatory.throw_away:
        return f"it was made up by a test; the key of its runner {runner.name} only signs real measurements"
    if not measurement.fixture and runner.signatory.throw_away:
        return f"the key of its runner {runner.name} is a throw-away key, which only signs what tests make up"
    return None


def _difference(record: Record, measurement: Measurement) -> str | None:
    """Return what the record says that the runner did not sign, or None."""
    started, report = parse_timestamp(record.started), record.report
    same = {
        "image digest": record.image_digest == measurement.image_digest,
        "image": record.image == measurement.image,
        "host class": record.host_class == measurement.host_class,
        "cell": record.cell == measurement.cell,
        "lock": record.lock_digest == measurement.lock_digest,
        "wheel of TensorFlow": record.tensorflow_wheel == measurement.tensorflow_wheel,
        "probe": record.probe_version == measurement.probe_version,
        "report": (report_digest(report) if report is not None else None) == measurement.report_digest,
        # There is no report if the image broke the probe; the runner has then signed that there is no report.
        "challenge": report is None or report.get("challenge") == measurement.challenge,
        "mark of a fixture": report is None or report.get("fixture", False) == measurement.fixture,
        "start time": started is not None and started <= (parse_timestamp(measurement.started) or started),
        "finish time": record.finished == measurement.finished,
    }
    if differs := [name for name, equal in same.items() if not equal]:
        return f"it differs from what its runner signed ({', '.join(differs)})"
    return None


def _objection_to_challenge(
    record: Record, measurement: Measurement, challenges: Challenges, now: datetime
) -> str | None:
    """Return why the challenge that the measurement repeats does not count, or None."""
    if measurement.challenge is None:
        return "it answers no challenge, so it may be an old measurement"
    challenge = challenges.find(measurement.challenge)
    if challenge is None:
        return "its challenge was not made here, or too long ago: it may be a copy of another measurement"
    if not challenge.is_for(record.image, record.cell):
        return f"its challenge was made for {challenge.asked}"
    started = parse_timestamp(measurement.started)
    if started is None or started < challenge.issued - TOLERANCE:
        return (
            f"it was signed as started at {measurement.started}, before its challenge was made"
            f" ({format_timestamp(challenge.issued)})"
        )
    if now > challenge.issued + LIFETIME:
        issued = format_timestamp(challenge.issued)
        return f"its challenge was made at {issued}, more than {LIFETIME.days} days ago"
    return None


# Decide whether a record may be certified, or may invalidate certificates because the image failed.
#
# Its verdict is not trusted: its own report is judged again.

#: The versions that the probe must have read, since a certificate says what is in the image.
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn")


class NotCertifiable(ValidatorError):
    """A record may not be certified. The message says why."""


def check_record(record: Record) -> None:
    """Raise NotCertifiable if a record can't get a statement, whatever its report says."""
    if record.origin is Origin.REHEARSAL:
        objection = f"it was made by a {REHEARSAL}, which proves nothing"
    elif record.verdict not in (Verdict.CERTIFIED, Verdict.FAILED):
        objection = f"its verdict is {record.verdict.value}: {record.reason}"
    elif record.origin is not Origin.HERE:
        objection = "its report was imported from elsewhere"
    elif record.image_digest is None or not is_digest(record.image_digest):
        objection = f"it was measured without an image (engine {record.engine})"
    elif record.lock_digest is None or not is_digest(record.lock_digest):
        objection = "it does not name a lock"
    elif record.verdict is Verdict.FAILED and record.host_class == NO_GPU:
        objection = "it failed on a machine without a GPU, for which there are no certificates"
    else:
        return
    raise _refusal(record, objection)


def checked_report(
    record: Record,
    outside: Outside,
    now: datetime,
    own: tuple[OwnCheck, ...] = (),
    *,
    labels_trusted: bool = False,
) -> Report | None:
    """Return the report of a record that may get a statement; None if the image failed without writing one.

    outside: what the host saw of its driver and GPUs, own: the user's own checks; both as its runner signed.
    labels_trusted: see `judge`. Raises NotCertifiable with the reason.
    """
    check_record(record)
    try:
        report = record.read_report()
    except ReportError as error:
        raise _refusal(record, f"its report can't be read: {error}") from None
    if report is None:
        if record.verdict is Verdict.FAILED:
            return None
        raise _refusal(record, "it has no report")
    if objection := _objection_in_report(record, report, outside, own, now, labels_trusted):
        raise _refusal(record, objection)
    return report


def _refusal(record: Record, objection: str) -> NotCertifiable:
    return NotCertifiable(f"record {record.id} ({record.cell}) can't be certified: {objection}")


def _objection_in_report(
    record: Record,
    report: Report,
    outside: Outside,
    own: tuple[OwnCheck, ...],
    now: datetime,
    labels_trusted: bool,
) -> str | None:
    """Return why the record's report prevents certifying it, or None."""
    # From the image's name and from what the runner signed, since the image itself wrote the report.
    required = also_required(additions_of(record.image) is not None, own)
    judgement = judge(
        report,
        record.origin,
        outside,
        variant=variant_of(record.image),
        also_required=required,
        labels_trusted=labels_trusted,
    )
    certifies = record.verdict is Verdict.CERTIFIED
    if judgement.verdict is not record.verdict:
        return f"its own report says {judgement.verdict.value}: {judgement.sentence}"
    if certifies and (signs := tuple(signs_of_emulation(report))):
        return f"the GPU may have been emulated: {'; '.join(signs)}"
    same = {
        "checks": [check.recorded() for check in report.checks] == record.checks,
        "host": report.raw["host"] == record.host,
        "probe": report.probe.version == record.probe_version,
        "cell": cell_identifier(record.image, record.host_class) == record.cell,
        "versions": versions_of(report) == record.versions,
    }
    if differs := [name for name, equal in same.items() if not equal]:
        return f"it and its own report differ ({', '.join(differs)})"
    if certifies and (missing := [name for name in _VERSIONS if not record.versions.get(name)]):
        return f"the probe found no version of {', '.join(missing)}"
    named = record.versions.get("tensorflow", "")
    if record.tensorflow_wheel is not None:
        named = build_name(named, record.tensorflow_wheel.rpartition("#sha256=")[2])
    if certifies and not record.image.startswith(f"tf{named}-"):
        return f"TensorFlow {record.versions['tensorflow']} was in the image"
    finished = parse_timestamp(record.finished)
    if finished is None:
        return f"its finish time is not a timestamp ({record.finished})"
    if finished > now + TOLERANCE:
        return f"it was measured in the future ({record.finished}): a clock is wrong, there or here"
    return None


def believed(record: Record, parties: TrustFile, now: datetime) -> Record:
    """Return a record from elsewhere as it counts here.

    `certified` counts if a runner of the trust file signed the measurement, and if the report, judged again,
    gives that verdict. Otherwise anybody could have typed it, so it is only claimed. Raises MissingError
    without cosign.
    """
    if record.verdict is not Verdict.CERTIFIED:
        return as_judged(record)
    try:
        measurement, runner = _verified(record, parties)
        # Unlike for a certificate, a registration that ended since then still counts.
        when = parse_timestamp(measurement.finished) or now
        silence = runner.silent_since(when) or (runner.revoked is not None and runner.silent_since(now))
        objection = (
            f"its runner {runner.name} {silence}"
            if silence
            else objection_to(record.host_class, measurement.outside, runner)
            or _difference(record, measurement)
        )
        if objection is None and not runner.may_sign_for(record.host_class):
            objection = f"its runner {runner.name} may not sign for {record.host_class}"
    except (BundleError, MeasurementError, NotVerified) as error:
        objection = str(error)
    return as_judged(record) if objection is None else claimed(record, objection)


# Signs in a report that the GPU was emulated: libraries that stand in for the driver's.

#: Where distributions, NVIDIA's installers and container runtimes put the driver's libraries, NixOS too.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/run/opengl-driver/")
_GPU_NODE = re.compile(r"/dev/nvidia\d+|/dev/dxg")


def signs_of_emulation(report: Report) -> Iterator[str]:
    """Yield a sentence for each sign; none for a report of a real GPU."""
    host = report.host
    for name, library in (("cuda", host.driver_libraries.cuda), ("nvml", host.driver_libraries.nvml)):
        place = library.path or "an unknown directory"
        if not library.answered:
            yield f"the driver's library {name} did not answer"
        elif not place.startswith(_SYSTEM):
            yield f"the driver's library {name} came from {place}, which is not a system directory"
    # By the kernel's own list, these are device files of the NVIDIA driver that open.
    if not any(
        _GPU_NODE.fullmatch(node.path) and node.device and node.opens and node.registered is not False
        for node in host.device_nodes
    ):
        yield "no device file of a GPU opened"
    if host.kernel_driver is not None and host.kernel_driver != host.driver:
        yield f"the kernel's driver is {host.kernel_driver}, the library's {host.driver}"
    if preloaded := report.environment.variables.get("LD_PRELOAD"):
        yield f"LD_PRELOAD put {preloaded} before all libraries"


# Decide whether a machine belongs to a host class, by what was signed about its driver and its GPUs.

#: As `host_identifier` writes them. A class with a cuda-compat package is never measured.
_HOST_CLASS = re.compile(r"r(?P<driver>\d+(?:\.\d+)*)-(?P<gpu>[a-z0-9.+-]+)")


def objection_to(host_class: str, outside: Outside, runner: Party) -> str | None:
    """Return why this machine, as the runner describes it, is not of the host class, or None."""
    found = _HOST_CLASS.fullmatch(host_class)
    if found is None:
        return f"{host_class} is not a host class with a GPU"
    if outside.driver is None or not outside.gpus:
        return "the runner saw no driver or no GPU on the machine"
    declared, driver = DriverRelease.parse(found["driver"]), DriverRelease.parse(outside.driver)
    if driver.branch != declared.branch or (not declared.is_branch and driver != declared):
        return f"driver {driver} is not of the host class {host_class}"
    for card in outside.gpus:
        capability = ComputeCapability.parse(card.compute_capability)
        by_capability = capability.sm.replace("_", "")
        if found["gpu"] not in (model_of(card.name), by_capability):
            return f"{card.name} is not of the host class {host_class}"
        try:
            known = gpu(card.name).compute_capability
        except UnknownGpu:
            # People choose images by the capability, so the runner must be allowed to sign for it.
            if runner.may_sign_for(f"{host_class.partition('-')[0]}-{by_capability}"):
                continue
            return (
                f"{card.name} is not known, so the runner has to be registered for its compute capability as"
                f" well (*-{by_capability})"
            )
        if known != capability:
            return f"{card.name} has compute capability {known}, not {capability}"
    return None
