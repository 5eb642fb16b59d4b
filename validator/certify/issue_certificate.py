"""Certify one record: write its statement, sign it, and attach it to the image in the registry.

A record of a failure gets a statement as well, which invalidates the certificates of older measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..model.codec import NEVER, format_timestamp, now_utc, parse_timestamp
from ..model.record import Record, Verdict
from ..registry.client import Registry
from ..registry.names import tag_of
from . import attached
from .acceptance import Certifier, NotCertifiable, accepted, check_record, checked_report
from .attached import parse_bundle
from .provenance import Provenance, Refusal, provenance_of
from .signatures import Signer
from .statement import PREDICATE, VALID_FOR, statement
from .trust import Trust
from .verify import certificates, verified_statement


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
    valid_for: timedelta = VALID_FOR,
    now: datetime | None = None,
) -> Issued:
    """Attach a certificate of a record to its image, or a failure if that is its verdict.

    trust: what `signer.trust()` returns. The new statement is verified with it before anything is written.
    certifier: decides whose measurements count, and which ones.
    valid_for: how long a certificate counts after the measurement.

    Raises NotCertifiable when the record may not be certified, or not by this signer, or the registry has a
    different image, or no trusted builder made it; MissingError when the registry or cosign fails.
    """
    at = now or now_utc()
    check_record(record)
    digest, failed = str(record.image_digest), record.verdict is Verdict.FAILED
    if record.id in certificates(registry, digest, trust, now=at).records:
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
        if not measurement.fixture:
            _check_parts(registry, record, digest, certifier)
    expires = (parse_timestamp(record.finished) or NEVER) + valid_for
    if not failed and expires <= at:
        raise NotCertifiable(
            f"record {record.id} can't be certified: it was measured on {record.finished}, so its certificate"
            f" would have expired on {format_timestamp(expires)}",
            hint="measure the image again",
        )
    _check_provenance(registry, record, digest, certifier, signer, at)
    text = statement(
        record, report, measurement, str(registry.repository),
        issued=format_timestamp(at), expires=format_timestamp(expires),
    )  # fmt: skip
    bundle = parse_bundle(signer.sign(text))
    verified_statement(bundle, digest, trust, now=at)
    attachment = attached.attach(registry, digest, bundle.canonical, PREDICATE)
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


def _check_parts(registry: Registry, record: Record, digest: str, certifier: Certifier) -> None:
    """Raise NotCertifiable if this machine has not itself computed the image's layers and configuration.

    Whoever can push as a builder could otherwise give any layer the name of a wheel, or start another
    program.
    """
    if missing := certifier.uncomputed_parts(digest):
        raise NotCertifiable(
            f"record {record.id} ({record.cell}) can't be certified: this machine has neither made nor"
            f" rebuilt {len(missing)} of the parts of {digest} (its layers and its configuration)",
            hint=f"run `validator verify --rebuild --registry {registry.repository} {digest}` once",
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
