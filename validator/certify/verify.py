"""Verify the certificates of an image; the newest statement for each host class decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ..errors import MissingError, ValidatorError
from ..model.codec import NEVER, TOLERANCE, now_utc, parse_timestamp
from ..model.record import Certificate, Failure, also_required
from ..model.verdict import REQUIRED_CHECKS
from ..registry.client import Registry
from ..registry.names import additions_of
from ..system.pools import map_in_threads
from . import attached, signatures
from .attached import Bundle, BundleError, Candidate
from .statement import PREDICATE, REHEARSAL_PREDICATE, NoCertificate, read_statement, refuse_rehearsal
from .trust import Terms, Trust, is_throw_away

_AT_ONCE = 8


@dataclass(frozen=True)
class Refused:
    """An attachment, by its digest, that does not count. taken_back_by: the newer failure, if that is why."""

    what: str
    why: str
    taken_back_by: Failure | None = None


@dataclass(frozen=True)
class Verified:
    """The attachments of an image.

    certificates: the valid ones, newest measurement first.
    failures: for each host class on which the newest statement is a failure, that statement.
    records: the ids of the records that a trusted signer has signed a statement about.
    """

    certificates: tuple[Certificate, ...]
    refused: tuple[Refused, ...]
    failures: tuple[Failure, ...] = ()
    records: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Found:
    """A statement that counts if no newer one contradicts it. what: the digest of its attachment."""

    what: str
    statement: Certificate | Failure

    @property
    def measured(self) -> datetime:
        return parse_timestamp(self.statement.measured) or NEVER


def certificates(registry: Registry, digest: str, terms: Terms) -> Verified:
    """Return the valid certificates of an image, and the other attachments with the reason.

    A certificate is invalidated by a failure that was measured later on the same host class, and by a later
    measurement there with a limit that the trust refuses.

    Raises InputError when the trust can't be used, MissingError when the registry can't be reached or cosign
    can't verify anything.
    """
    terms.trust.check()
    at = replace(terms, now=terms.now or now_utc())

    def judge(candidate: Candidate) -> _Found | Refused:
        try:
            return _Found(candidate.what, verified_statement(candidate.read(), digest, at))
        except MissingError:
            raise
        except (ValidatorError, BundleError, NoCertificate) as error:
            return Refused(candidate.what, str(error))

    # The statements of rehearsals are read too, in order to say why they don't count.
    listed = attached.candidates(registry, digest, PREDICATE, REHEARSAL_PREDICATE)
    found = map_in_threads(judge, listed, _AT_ONCE)
    refused = tuple(entry for entry in found if isinstance(entry, Refused))
    good = (entry for entry in found if isinstance(entry, _Found))
    return _heed_newest(good, refused, terms.trust.refuse_limits)


def _heed_newest(
    found: Iterable[_Found], refused: tuple[Refused, ...], refuse_limits: Collection[str]
) -> Verified:
    """Drop certificates with a refused limit, and certificates that a newer statement invalidates.

    The probes that measured older certificates may not have looked for limits, so a limit that is refused
    invalidates them as a failure does.
    """
    newest_first = sorted(found, key=lambda entry: entry.measured, reverse=True)
    failed: dict[str, _Found] = {}
    limited: dict[str, _Found] = {}
    for entry in newest_first:
        if isinstance(entry.statement, Failure):
            failed.setdefault(entry.statement.host_class, entry)
        elif _refused_limits(entry.statement, refuse_limits):
            limited.setdefault(entry.statement.host_class, entry)
    # A certificate whose attachment was lost and repeated may be listed twice.
    good: dict[Certificate, None] = {}
    taken_back = []
    for entry in newest_first:
        if not isinstance(entry.statement, Certificate):
            continue
        against = failed.get(entry.statement.host_class)
        newer = limited.get(entry.statement.host_class)
        # If both were measured at the same time, it is not known which came last.
        if against is not None and against.measured >= entry.measured:
            assert isinstance(against.statement, Failure)
            why = f"a newer failure invalidates it: {against.statement.why}"
            taken_back.append(Refused(entry.what, why, against.statement))
        elif limits := _refused_limits(entry.statement, refuse_limits):
            taken_back.append(Refused(entry.what, f"the trust file refuses its limit {limits}"))
        elif newer is not None and newer.measured >= entry.measured:
            assert isinstance(newer.statement, Certificate)
            limits = _refused_limits(newer.statement, refuse_limits)
            when = f"measured {newer.statement.measured} on {newer.statement.host_class}"
            why = f"a newer certificate, {when}, has a limit that the trust file refuses: {limits}"
            taken_back.append(Refused(entry.what, why))
        else:
            good[entry.statement] = None
    passed = {certificate.host_class for certificate in good}
    standing = [entry.statement for name, entry in failed.items() if name not in passed]
    return Verified(
        tuple(good),
        (*refused, *taken_back),
        tuple(statement for statement in standing if isinstance(statement, Failure)),
        frozenset(entry.statement.record_id for entry in newest_first),
    )


def _refused_limits(certificate: Certificate, refuse_limits: Collection[str]) -> str:
    """Describe the refused limits of a certificate; return an empty string if it has none."""
    return "; ".join(one.sentence for one in certificate.limits if one.code in refuse_limits)


def verified_statement(bundle: Bundle, digest: str, terms: Terms) -> Certificate | Failure:
    """Return the certificate or the failure in a bundle. Raises NotVerified or NoCertificate with the reason.

    A failure counts however old it is.
    """
    trust, now = terms.trust, terms.now or now_utc()
    refuse_rehearsal(bundle.payload)
    payload = signatures.verify(bundle, digest, PREDICATE, trust)
    statement = read_statement(payload, digest, trust.signer)
    if reason := _against(statement, trust, now):
        raise NoCertificate(reason)
    if isinstance(statement, Certificate) and (reason := _against_certificate(statement, terms, now)):
        raise NoCertificate(reason)
    return statement


def _against(statement: Certificate | Failure, trust: Trust, now: datetime) -> str | None:
    """Return why a statement with a valid signature does not count, or None."""
    if statement.fixture and not trust.fixtures:
        return "it was made by a test and proves nothing"
    if not statement.fixture and trust.key is not None and is_throw_away(trust.key):
        return "it is signed by a throw-away key"
    measured, issued = parse_timestamp(statement.measured), parse_timestamp(statement.issued)
    if measured is None or issued is None:
        return f"its times are not timestamps ({statement.measured}, {statement.issued})"
    if issued > now + TOLERANCE:
        return f"it was issued in the future ({statement.issued}): a clock is wrong, there or here"
    if measured > issued + TOLERANCE:
        return f"it was issued {statement.issued}, before its measurement ({statement.measured})"
    return None


def _against_certificate(certificate: Certificate, terms: Terms, now: datetime) -> str | None:
    """Return why a certificate is not accepted today, or None."""
    measured, expires = parse_timestamp(certificate.measured), parse_timestamp(certificate.expires)
    if measured is None or expires is None:
        return f"its times are not timestamps ({certificate.measured}, {certificate.expires})"
    age = f"measured {certificate.measured}, {(now - measured).days} days ago"
    if now >= expires and not terms.accept_expired:
        return f"it expired on {certificate.expires}: {age}"
    if terms.max_age is not None and now - measured > terms.max_age:
        return f"it is too old: {age}"
    also = also_required(additions_of(certificate.image) is not None, certificate.checks)
    if missing := [name for name in (*REQUIRED_CHECKS, *also) if name not in certificate.passed]:
        return f"it lacks checks that are required today: {', '.join(missing)}"
    return None
