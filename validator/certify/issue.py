"""Certify one record: write its statement, sign it, and attach it to the image in the registry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..errors import ValidatorError
from ..model.certificate import Certificate
from ..model.record import Record
from ..model.timestamps import format_timestamp, now_utc
from ..registry.client import Registry
from ..registry.names import tag_of
from . import attached
from .bundle import parse_bundle
from .eligibility import NotCertifiable, checked_report
from .signing import Signer
from .statement import PREDICATE, statement
from .trust import Trust
from .verify import certificates, verified_certificate


@dataclass(frozen=True)
class Issued:
    """A certificate. attached: its digest, or None if the image already had one for this record."""

    certificate: Certificate
    attached: str | None


def certify(
    registry: Registry, record: Record, signer: Signer, trust: Trust, *, now: datetime | None = None
) -> Issued:
    """Attach a certificate of a record to its image.

    trust: what `signer.trust()` returns. The new certificate is verified with it before anything is written.

    Raises NotCertifiable when the record may not be certified, or not by this signer, or the registry has a
    different image; MissingError when the registry or cosign fails.
    """
    at = now or now_utc()
    report = checked_report(record, at)
    digest = str(record.image_digest)
    if report.fixture != signer.throw_away:
        raise NotCertifiable(_WRONG_KEY[report.fixture].format(record.id), hint=_WRONG_KEY_HINT)
    _check_image(registry, record, digest)
    there = certificates(registry, digest, trust, now=at).certificates
    if found := next((entry for entry in there if entry.record_id == record.id), None):
        return Issued(found, None)
    issued = format_timestamp(at)
    text = statement(record, report, str(registry.repository), issued=issued)
    bundle = parse_bundle(signer.sign(text))
    certificate = verified_certificate(bundle, digest, trust, max_age=None, now=at)
    return Issued(certificate, attached.attach(registry, digest, bundle.canonical, PREDICATE))


_WRONG_KEY = {
    True: "record {} was made up by a test; only a throw-away key may sign it",
    False: "record {} is a real measurement; a throw-away key can't certify it",
}
_WRONG_KEY_HINT = "`certify keygen` makes keys for releases, `certify keygen --throw-away` keys for tests"


def _check_image(registry: Registry, record: Record, digest: str) -> None:
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
    if registry.manifest(digest) is None:
        raise ValidatorError(f"{reference} points at {digest}, which the registry does not have")
