"""Move aliases to the best certified images, even when several processes do so at the same time.

An alias moves away from an image whose certificates are invalid or expired, even to an older TensorFlow.
Only statements of the trusted signer decide: what a label says about an image does not.

A registry can't be locked. So a process that has set an alias checks again: it reads the images, their
certificates and the aliases as they are by then, and corrects what is wrong. The last process to write is
therefore also the last to check, so the aliases end up where the certificates at that time say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from ..errors import ValidatorError
from ..model.codec import NEVER, parse_timestamp
from ..model.record import Certificate, Failure
from ..registry.client import ConcurrentChangeError, Registry
from ..registry.names import LATEST, driver_alias, identifier_of, name_of, release_alias
from ..versions import Version, leading_numbers, version_or_oldest
from .provenance import Refusal, provenance_of
from .trust import Terms
from .trust_file import TrustFile
from .verify import certificates

#: `latest`, `2.21`, `2.21-driver535`, and the same for images with additions: `latest_ours`.
ALIAS = re.compile(rf"(?:{LATEST}|\d+\.\d+(?:-driver\d+)?)(?:_[a-z0-9.-]+)?")
_ROUNDS = 8


@dataclass(frozen=True)
class Rules:
    """The certificates that count, and the builders whose images may get an alias."""

    terms: Terms
    parties: TrustFile


def promote(
    registry: Registry,
    rules: Rules,
    *,
    additions: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    on_move: Callable[[Move], None] = lambda move: None,
) -> list[Move]:
    """Move every alias to where it belongs, and return the decision on each; `was` is what this run found.

    additions: move the aliases of images with this name, that of their additions or of a wheel that no table
    lists; None: of images without either.
    on_move: called for each move as soon as it is done. Raises ValidatorError when others keep moving the
    aliases, and MissingError when the registry can't be reached; the moves done by then are right.
    """
    first: dict[str, Move] = {}
    for _ in range(_ROUNDS):
        tags = [tag for tag in registry.tags() if name_of(tag) == additions]
        # Aliases first: one that moves while the images are read is seen as moved in the next round.
        digests = {tag: registry.digest_of(tag) for tag in tags if ALIAS.fullmatch(tag)}
        current = {tag: digest for tag, digest in digests.items() if digest}
        # The image of an alias counts even if its tag has moved on to a newer build without a certificate.
        named = {registry.digest_of(tag) for tag in tags if identifier_of(tag)} - {None}
        images = sorted({*current.values(), *map(str, named)})
        standings = {digest: _standing(registry, digest, rules, additions, now) for digest in images}
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
    registry: Registry, digest: str, rules: Rules, additions: str | None, now: datetime | None
) -> ImageStanding:
    """Return what counts for an alias of images with these additions, whatever the tag says."""
    found = certificates(registry, digest, replace(rules.terms, now=now))
    reasons = [failure.why for failure in found.failures] + [refused.why for refused in found.refused]
    against = next(iter(reasons), "no certificate is attached")
    good = found.certificates
    if good:
        # Only certificates that agree with the provenance of the image count.
        first = good[0]
        origin = provenance_of(
            registry, digest, rules.parties, image=first.image, lock_digest=first.lock_digest, now=now
        )
        if isinstance(origin, Refusal):
            good, against = (), origin.why
        elif origin.fixture and not rules.terms.trust.fixtures:
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
        str,
        "Why the old image is no longer good enough; empty if it still is, but the new one is better.",
    ] = ""
    why: Annotated[
        str,
        "Why an alias stays on an image without a valid certificate, in one sentence; otherwise empty.",
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
        parse_timestamp(certificate.measured) or NEVER,
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
