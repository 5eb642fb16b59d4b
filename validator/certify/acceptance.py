"""Decide whether a record rests on a measurement that counts.

A runner that may sign for the host class signed it, and it answers a challenge of whoever certifies. The
record itself proves nothing: what it says must be what the runner signed, or follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model.measurement import (
    PREDICATE,
    Measurement,
    MeasurementError,
    Source,
    measurement_of,
    report_digest,
)
from ..model.record import Record
from ..model.timestamps import TOLERANCE, format_timestamp, parse_timestamp
from ..resources import manual
from .bundle import Bundle, BundleError, parse_bundle
from .challenges import LIFETIME, Challenges
from .cosign import NotVerified, verify
from .eligibility import NotCertifiable
from .host_classes import objection_to
from .trust_file import Party, TrustFile


@dataclass(frozen=True)
class Certifier:
    """The certifier's inputs: who may sign, and the challenges that it made.

    uncomputed_parts: returns the layers of an image, given its digest, and its configuration, as far as this
    machine has neither made nor rebuilt them from their sources.
    """

    parties: TrustFile
    challenges: Challenges
    uncomputed_parts: Callable[[str], Sequence[str]] = lambda digest: ()


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
        if payload := _signed_by(party, bundle, claimed.image_digest):
            return measurement_of(payload), party
    raise NotVerified("its measurement is not signed by a registered runner")


def _signed_by(party: Party, bundle: Bundle, digest: str) -> bytes | None:
    try:
        return verify(bundle, digest, PREDICATE, party.signatory)
    except NotVerified:
        return None


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
