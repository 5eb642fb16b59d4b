"""Verify the certificates of an image, and move aliases to the best certified images.

The newest statement for each host class decides. Only statements of the trusted signer count: what a label
says about an image does not. An alias moves away from an image whose certificates are invalid or expired,
even to an older TensorFlow.

Several processes may move aliases at the same time, and a registry can't be locked. So a process that has set
an alias checks again: it reads the images, their certificates and the aliases as they are by then, and
corrects what is wrong. The last process to write is therefore also the last to check, so the aliases end up
where the certificates at that time say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from ..errors import MissingError, ValidatorError
from ..model.codec import NEVER, TOLERANCE, now_utc, parse_timestamp
from ..model.record import Certificate, Failure, also_required
from ..model.verdict import REQUIRED_CHECKS
from ..registry.client import ConcurrentChangeError, Registry
from ..registry.names import LATEST, additions_of, driver_alias, identifier_of, name_of, release_alias
from ..system.pools import map_in_threads
from ..versions import Version, leading_numbers, version_or_oldest
from . import signatures
from .provenance import Refusal, provenance_of
from .signatures import Bundle, BundleError, Candidate
from .statement import PREDICATE, REHEARSAL_PREDICATE, NoCertificate, read_statement, refuse_rehearsal
from .trust import Terms, TrustFile, is_throw_away

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
    listed = signatures.candidates(registry, digest, PREDICATE, REHEARSAL_PREDICATE)
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
    newest_first = sorted(found, key=lambda entry: _measured(entry.statement), reverse=True)
    failed: dict[str, Failure] = {}
    limited: dict[str, Certificate] = {}
    for entry in newest_first:
        if isinstance(entry.statement, Failure):
            failed.setdefault(entry.statement.host_class, entry.statement)
        elif _refused_limits(entry.statement, refuse_limits):
            limited.setdefault(entry.statement.host_class, entry.statement)
    # A certificate whose attachment was lost and repeated may be listed twice.
    good: dict[Certificate, None] = {}
    taken_back = []
    for entry in newest_first:
        certificate = entry.statement
        if not isinstance(certificate, Certificate):
            continue
        against, newer = failed.get(certificate.host_class), limited.get(certificate.host_class)
        # If both were measured at the same time, it is not known which came last.
        if against is not None and _measured(against) >= _measured(certificate):
            why = f"a newer failure invalidates it: {against.why}"
            taken_back.append(Refused(entry.what, why, against))
        elif limits := _refused_limits(certificate, refuse_limits):
            taken_back.append(Refused(entry.what, f"the trust file refuses its limit {limits}"))
        elif newer is not None and _measured(newer) >= _measured(certificate):
            limits, when = _refused_limits(newer, refuse_limits), f"measured {newer.measured}"
            why = (
                f"a newer certificate, {when} on {newer.host_class}, has a limit that the trust file refuses"
            )
            taken_back.append(Refused(entry.what, f"{why}: {limits}"))
        else:
            good[certificate] = None
    passed = {certificate.host_class for certificate in good}
    standing = tuple(failure for name, failure in failed.items() if name not in passed)
    records = frozenset(entry.statement.record_id for entry in newest_first)
    return Verified(tuple(good), (*refused, *taken_back), standing, records)


def _measured(statement: Certificate | Failure) -> datetime:
    return parse_timestamp(statement.measured) or NEVER


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
    if reason := _against(statement, terms, now):
        raise NoCertificate(reason)
    return statement


def _against(statement: Certificate | Failure, terms: Terms, now: datetime) -> str | None:
    """Return why a statement with a valid signature does not count today, or None."""
    trust = terms.trust
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
    if isinstance(statement, Failure):
        return None
    expires = parse_timestamp(statement.expires)
    if expires is None:
        return f"its times are not timestamps ({statement.measured}, {statement.expires})"
    age = f"measured {statement.measured}, {(now - measured).days} days ago"
    if now >= expires and not terms.accept_expired:
        return f"it expired on {statement.expires}: {age}"
    if terms.max_age is not None and now - measured > terms.max_age:
        return f"it is too old: {age}"
    also = also_required(additions_of(statement.image) is not None, statement.checks)
    if missing := [name for name in (*REQUIRED_CHECKS, *also) if name not in statement.passed]:
        return f"it lacks checks that are required today: {', '.join(missing)}"
    return None


#: `latest`, `2.21`, `2.21-driver535`, and the same for images with additions: `latest_ours`.
ALIAS = re.compile(rf"(?:{LATEST}|\d+\.\d+(?:-driver\d+)?)(?:_[a-z0-9.-]+)?")
_ROUNDS = 8


def promote(
    registry: Registry,
    terms: Terms,
    parties: TrustFile,
    *,
    additions: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    on_move: Callable[[Move], None] = lambda move: None,
) -> list[Move]:
    """Move every alias to where it belongs, and return the decision on each; `was` is what this run found.

    parties: the builders whose images may get an alias.
    additions: move the aliases of images with this name, that of their additions or of a wheel that no table
    lists; None: of images without either.
    on_move: called for each move as soon as it is done. Raises ValidatorError when others keep moving the
    aliases, and MissingError when the registry can't be reached; the moves done by then are right.
    """
    first: dict[str, Move] = {}
    terms = replace(terms, now=now)
    for _ in range(_ROUNDS):
        tags = [tag for tag in registry.tags() if name_of(tag) == additions]
        # Read the aliases first: if one moves while the images are read, the next round notices it.
        digests = {tag: registry.digest_of(tag) for tag in tags if ALIAS.fullmatch(tag)}
        current = {tag: digest for tag, digest in digests.items() if digest}
        # The image of an alias counts even if its tag has moved on to a newer build without a certificate.
        named = {registry.digest_of(tag) for tag in tags if identifier_of(tag)} - {None}
        images = sorted({*current.values(), *map(str, named)})
        standings = {digest: _standing(registry, digest, terms, parties, additions) for digest in images}
        found = plan_moves(current, standings)
        for move in found:
            before = first.setdefault(move.alias, move)
            first[move.alias] = replace(
                move, was=before.was, moves=before.moves or move.moves, lost=before.lost or move.lost
            )
        todo = [move for move in found if move.moves]
        if dry_run or not todo:
            return list(first.values())
        for move in todo:
            try:
                registry.tag(str(move.now), move.alias)
            except ConcurrentChangeError:
                # Another process set it at the same time. The next round decides which value is right.
                continue
            on_move(move)
    raise ValidatorError(
        f"the aliases of {registry.repository} keep changing: another process moves them too",
        hint="find out what else sets tags there, stop it, and repeat the command",
    )


def _standing(
    registry: Registry, digest: str, terms: Terms, parties: TrustFile, additions: str | None
) -> ImageStanding:
    """Return what counts for an alias of images with these additions, whatever the tag says."""
    found = certificates(registry, digest, terms)
    reasons = [failure.why for failure in found.failures] + [refused.why for refused in found.refused]
    against = next(iter(reasons), "no certificate is attached")
    good = found.certificates
    if good:
        # Only certificates that agree with the provenance of the image count.
        first = good[0]
        origin = provenance_of(
            registry, digest, parties, image=first.image, lock_digest=first.lock_digest, now=terms.now
        )
        if isinstance(origin, Refusal):
            good, against = (), origin.why
        elif origin.fixture and not terms.trust.fixtures:
            good = ()
            against = f"the key of its builder {origin.builder} is a throw-away key, made for a test"
        else:
            made = origin.inputs.image, origin.inputs.lock_digest
            good = tuple(one for one in good if (one.image, one.lock_digest) == made)
    fitting = tuple(one for one in good if name_of(one.image) == additions)
    if good and not fitting:
        against = f"it is {good[0].image}"
    return ImageStanding(fitting, found.failures, against)


# The rules that say which image an alias points at. They are pure functions over certificates.

_DEFAULT_BASE = re.compile(r".*-py\d+(?:_.*)?")
_FLOATS = re.compile(r"-(?:cuda|cudnn)latest\b")


@dataclass(frozen=True)
class ImageStanding:
    """The statements about an image that count. failures: the newest ones for their host class.

    against: why an image without a certificate has none that counts.
    """

    certificates: tuple[Certificate, ...]
    failures: tuple[Failure, ...] = ()
    against: str = ""


@dataclass(frozen=True)
class Move:
    """The decision about one alias."""

    alias: Annotated[str, "The tag."]
    was: Annotated[str | None, "The digest that it named; null for a new alias."]
    now: Annotated[str | None, "The digest that it should name; null if no certified image fits."]
    image: Annotated[str | None, "The image spec of `now`."]
    moves: Annotated[bool, "Whether the alias must be set."]
    lost: Annotated[
        str, "Why the old image is no longer good enough; empty if it still is, but the new one is better."
    ] = ""
    why: Annotated[
        str, "Why an alias stays on an image without a valid certificate, in one sentence; otherwise empty."
    ] = ""


def plan_moves(current: Mapping[str, str], standings: Mapping[str, ImageStanding]) -> list[Move]:
    """Return what should become of every alias. current: their digests. standings: of images, by digest."""
    best = best_for_aliases(standings)
    return [
        _move(alias, current.get(alias), best.get(alias), standings)
        for alias in sorted({*current, *best}, key=_order)
    ]


def best_for_aliases(standings: Mapping[str, ImageStanding]) -> dict[str, Certificate]:
    """Return, by alias, the certificate of the image to point at. Pre-releases get no alias."""
    best: dict[str, Certificate] = {}
    ranks: dict[str, tuple[object, ...]] = {}
    limited = {
        (alias, digest)
        for digest, standing in standings.items()
        for one in standing.certificates
        if one.limits
        for alias in _aliases(one)
    }
    regressions = {digest: _regressions(digest, standings) for digest in standings}
    for digest, standing in standings.items():
        for certificate in standing.certificates:
            if version_or_oldest(certificate.tensorflow).is_prerelease:
                continue
            for alias in _aliases(certificate):
                regressed = bool(_within(alias, certificate, regressions[digest]))
                rank = (not regressed, *preference(certificate, limited=(alias, digest) in limited))
                if alias not in best or rank > ranks[alias]:
                    best[alias], ranks[alias] = certificate, rank
    return best


def preference(certificate: Certificate, *, limited: bool) -> tuple[object, ...]:
    """Return a key by which the better of two certificates is the greater.

    The newest TensorFlow is best; then the project's default base and a fixed CUDA and cuDNN; then the newest
    Python; then an image without limits (`limited` is False); then the newest CUDA and cuDNN; and among
    images of one spec, the one that was measured last.
    """
    return (
        version_or_oldest(certificate.tensorflow),
        _DEFAULT_BASE.fullmatch(certificate.image) is not None,
        _FLOATS.search(certificate.image) is None,
        leading_numbers(certificate.python)[:2],
        not limited,
        version_or_oldest(certificate.cuda),
        version_or_oldest(certificate.cudnn),
        _measured(certificate),
        certificate.image_digest,
    )


def _aliases(certificate: Certificate) -> tuple[str, ...]:
    branch = certificate.driver_release.branch
    release, additions = certificate.tensorflow, name_of(certificate.image)
    aliases = (LATEST, release_alias(release), driver_alias(release, branch))
    return tuple(f"{alias}_{additions}" if additions else alias for alias in aliases)


def _regressions(digest: str, standings: Mapping[str, ImageStanding]) -> tuple[Failure, ...]:
    """Return the failures of an image on host classes on which another image is certified."""
    works = {
        certificate.host_class
        for other, standing in standings.items()
        if other != digest
        for certificate in standing.certificates
    }
    return tuple(failure for failure in standings[digest].failures if failure.host_class in works)


def _within(alias: str, certificate: Certificate, failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Return the failures that concern the people who pull an alias: a driver alias is for one branch."""
    if alias.partition("_")[0] != driver_alias(certificate.tensorflow, certificate.driver_release.branch):
        return tuple(failures)
    branch = f"r{certificate.driver_release.branch}"
    return tuple(
        failure for failure in failures if failure.host_class.partition("-")[0].partition(".")[0] == branch
    )


def _move(
    alias: str, was: str | None, best: Certificate | None, standings: Mapping[str, ImageStanding]
) -> Move:
    standing = standings.get(was or "", ImageStanding(()))
    if best is None:
        return Move(
            alias, was, None, None, False,
            why=f"no image with a valid certificate fits it, and its own image has none: {standing.against}",
        )  # fmt: skip
    if was == best.image_digest:
        return Move(alias, was, was, best.image, False)
    lost = ""
    if was is not None and not standing.certificates:
        lost = standing.against
    elif was is not None and was in standings:
        lost = "; ".join(failure.why for failure in _within(alias, best, _regressions(was, standings)))
    return Move(alias, was, best.image_digest, best.image, True, lost)


def _order(alias: str) -> tuple[bool, Version, str]:
    plain = alias.partition("_")[0]
    return plain != LATEST, version_or_oldest(plain.partition("-")[0]), alias
