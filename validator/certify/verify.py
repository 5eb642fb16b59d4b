"""Verify the certificates of an image, each on its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..errors import MissingError, ValidatorError
from ..model.certificate import Certificate
from ..model.timestamps import TOLERANCE, now_utc, parse_timestamp
from ..registry.client import Registry
from . import attached, signing
from .attached import Candidate
from .bundle import Bundle, BundleError
from .statement import PREDICATE, NoCertificate, certificate_of
from .trust import Trust, is_throw_away

_AT_ONCE = 8


@dataclass(frozen=True)
class Refused:
    """An attachment that does not count. what: its digest or tag. why: one sentence."""

    what: str
    why: str


@dataclass(frozen=True)
class Verified:
    """The attachments of an image. certificates: the valid ones, newest measurement first."""

    certificates: tuple[Certificate, ...]
    refused: tuple[Refused, ...]


def certificates(
    registry: Registry,
    digest: str,
    trust: Trust,
    *,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> Verified:
    """Return the valid certificates of an image, and the other attachments with the reason.

    max_age: of the measurement. now: None for the current time.

    Raises InputError when the trust can't be used, MissingError when the registry can't be reached or cosign
    can't verify anything.
    """
    trust.check()
    at = now or now_utc()

    def judge(candidate: Candidate) -> Certificate | Refused:
        return _judged(candidate, digest, trust, max_age, at)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(judge, attached.candidates(registry, digest, PREDICATE)))
    # A certificate whose attachment was lost and repeated may be listed twice.
    good = dict.fromkeys(entry for entry in found if isinstance(entry, Certificate))
    return Verified(
        tuple(sorted(good, key=lambda entry: parse_timestamp(entry.measured) or at, reverse=True)),
        tuple(entry for entry in found if isinstance(entry, Refused)),
    )


def verified_certificate(
    bundle: Bundle, digest: str, trust: Trust, *, max_age: timedelta | None, now: datetime
) -> Certificate:
    """Return the certificate in a bundle. Raises NotVerified or NoCertificate with the reason."""
    payload = signing.verify(bundle, digest, PREDICATE, trust)
    certificate = certificate_of(payload, digest, trust.signer)
    if reason := _against(certificate, trust, max_age, now):
        raise NoCertificate(reason)
    return certificate


def _judged(
    candidate: Candidate, digest: str, trust: Trust, max_age: timedelta | None, now: datetime
) -> Certificate | Refused:
    try:
        return verified_certificate(candidate.read(), digest, trust, max_age=max_age, now=now)
    except MissingError:
        raise
    except (ValidatorError, BundleError, NoCertificate) as error:
        return Refused(candidate.what, str(error))


def _against(certificate: Certificate, trust: Trust, max_age: timedelta | None, now: datetime) -> str | None:
    """Return why a certificate with a valid signature does not count, or None."""
    if certificate.fixture and not trust.fixtures:
        return "it was made by a test and proves nothing"
    if not certificate.fixture and trust.key is not None and is_throw_away(trust.key):
        return "it is signed by a throw-away key"
    measured, issued = parse_timestamp(certificate.measured), parse_timestamp(certificate.issued)
    if measured is None or issued is None:
        return f"its times are not timestamps ({certificate.measured}, {certificate.issued})"
    if issued > now + TOLERANCE:
        return f"it was issued in the future ({certificate.issued}): a clock is wrong, there or here"
    if measured > issued + TOLERANCE:
        return f"it was issued {certificate.issued}, before its measurement ({certificate.measured})"
    if max_age is not None and now - measured > max_age:
        return f"it is too old: measured {certificate.measured}, {(now - measured).days} days ago"
    return None
