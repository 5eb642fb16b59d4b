"""Move aliases to the newest certified images, even when several processes do so at the same time.

A registry can't be locked. So a process that has set an alias checks again: it reads the images, their
certificates and the aliases as they are by then, and corrects what is wrong. The last process to write is
therefore also the last to check, and it leaves the aliases as the certificates of that moment ask for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..errors import MissingError, ValidatorError
from ..model.certificate import Certificate
from ..model.timestamps import NEVER, parse_timestamp
from ..registry.client import ConcurrentChangeError, Registry
from ..registry.names import LATEST, driver_alias, identifier_of, release_alias
from ..versions import Version, version_or_oldest
from .trust import Trust
from .verify import certificates

#: `latest`, `2.21`, `2.21-driver535`.
ALIAS = re.compile(rf"{LATEST}|\d+\.\d+(-driver\d+)?")
#: The label with the TensorFlow release, which the image's builder writes (OCI image specification,
#: annotations).
_VERSION_LABEL = "org.opencontainers.image.version"
_ROUNDS = 8


@dataclass(frozen=True)
class Rules:
    """The certificates that count (trust, max_age), and whether an alias may move to an older TensorFlow."""

    trust: Trust
    max_age: timedelta | None = None
    allow_older: bool = False


def promote(
    registry: Registry,
    rules: Rules,
    *,
    dry_run: bool = False,
    now: datetime | None = None,
    on_move: Callable[[Move], None] = lambda move: None,
) -> list[Move]:
    """Move every alias to where it belongs, and return what became of each; `was` is what this run found.

    on_move: called for each move as soon as it is done. Raises ValidatorError when others keep moving the
    aliases, and MissingError when the registry can't be reached; the moves done by then are right.
    """
    first: dict[str, Move] = {}
    for _ in range(_ROUNDS):
        found = _plan(registry, rules, now)
        for move in found:
            before = first.setdefault(move.alias, move)
            first[move.alias] = replace(move, was=before.was, moves=before.moves or move.moves)
        todo = [move for move in found if move.moves]
        if dry_run or not todo:
            return list(first.values())
        for move in todo:
            try:
                registry.tag(str(move.now), move.alias)
            except ConcurrentChangeError:
                # Another process set it at the same moment. The next round decides who is right.
                continue
            on_move(move)
    raise ValidatorError(
        f"the aliases of {registry.repository} keep changing: another process moves them too",
        hint="find out what else sets tags there, stop it, and repeat the command",
    )


def _plan(registry: Registry, rules: Rules, now: datetime | None) -> list[Move]:
    """Return what should become of each alias, as of this moment."""
    tags = registry.tags()
    # Aliases first: one that moves while the images are read is seen as moved in the next round.
    current = {tag: registry.digest_of(tag) for tag in tags if ALIAS.fullmatch(tag)}
    # The image of an alias counts even if its tag has moved on to a newer build that is not certified yet.
    images = {*current.values(), *(registry.digest_of(tag) for tag in tags if identifier_of(tag))} - {None}
    certified = [
        certificate
        for digest in sorted(map(str, images))
        for certificate in certificates(
            registry, digest, rules.trust, max_age=rules.max_age, now=now
        ).certificates
    ]
    good = {entry.image_digest for entry in certified}
    current_targets = {
        alias: AliasTarget(digest, None if digest in good else _release(registry, digest))
        for alias, digest in current.items()
        if digest is not None
    }
    return plan_moves(current_targets, certified, allow_older=rules.allow_older)


def _release(registry: Registry, digest: str) -> str | None:
    """Return the TensorFlow release in the label of an image without a certificate; None: unknown."""
    try:
        labels = (registry.config(digest).get("config") or {}).get("Labels") or {}
    except MissingError:
        raise
    except ValidatorError:
        # Altered, or not an image: an alias should not stay on it.
        return None
    release = labels.get(_VERSION_LABEL)
    return str(release) if release else None


# The rules that say which image an alias points at. They are pure functions over certificates.

_DEFAULT_BASE = re.compile(r".*-py\d+")
_FLOATS = re.compile(r"-(?:cuda|cudnn)latest\b")


@dataclass(frozen=True)
class AliasTarget:
    """The image that an alias points at now. release: of TensorFlow, as its label says; None: unknown."""

    digest: str
    release: str | None = None


@dataclass(frozen=True)
class Move:
    """The decision about one alias.

    was, now: digests; `was` is None for a new alias, `now` where no certified image fits.
    image: the image spec of `now`. moves: the alias must be set. why: one sentence, for an alias that stays
        where it should not; otherwise empty.
    """

    alias: str
    was: str | None
    now: str | None
    image: str | None
    moves: bool
    why: str = ""


def best_for_aliases(certificates: Iterable[Certificate]) -> dict[str, Certificate]:
    """Return, by alias, the certificate of the image to point at. Pre-releases get no alias."""
    best: dict[str, Certificate] = {}
    for certificate in certificates:
        if version_or_oldest(certificate.tensorflow).is_prerelease:
            continue
        branch = certificate.driver_release.branch
        names = (
            LATEST,
            release_alias(certificate.tensorflow),
            driver_alias(certificate.tensorflow, branch),
        )
        for alias in names:
            if alias not in best or preference(certificate) > preference(best[alias]):
                best[alias] = certificate
    return best


def preference(certificate: Certificate) -> tuple[object, ...]:
    """Return a key by which the better of two certificates is the greater.

    The newest TensorFlow is best; then the project's default base and a fixed CUDA and cuDNN; then the newest
    Python, CUDA and cuDNN; and among images of one spec, the one that was measured last.
    """
    return (
        version_or_oldest(certificate.tensorflow),
        _DEFAULT_BASE.fullmatch(certificate.image) is not None,
        _FLOATS.search(certificate.image) is None,
        version_or_oldest(".".join(certificate.python.split(".")[:2])),
        version_or_oldest(certificate.cuda),
        version_or_oldest(certificate.cudnn),
        parse_timestamp(certificate.measured) or NEVER,
        certificate.image_digest,
    )


def plan_moves(
    current: Mapping[str, AliasTarget], certificates: Iterable[Certificate], *, allow_older: bool = False
) -> list[Move]:
    """Return what should become of every alias that exists or should exist."""
    best = best_for_aliases(certificates)
    return [
        _move(alias, current.get(alias), best.get(alias), allow_older)
        for alias in sorted({*current, *best}, key=_order)
    ]


def _move(alias: str, target: AliasTarget | None, best: Certificate | None, allow_older: bool) -> Move:
    was = target.digest if target else None
    if best is None:
        return Move(alias, was, None, None, False, "no image with a valid certificate fits it")
    now = best.image_digest
    if was == now:
        return Move(alias, was, now, best.image, False)
    release = target.release if target else None
    if release is not None and not allow_older and _older(best.tensorflow, release):
        why = (
            f"it points at TensorFlow {release}, which has no valid certificate, and the newest certified"
            f" image has {best.tensorflow}"
        )
        return Move(alias, was, now, best.image, False, why)
    return Move(alias, was, now, best.image, True)


def _older(release: str, than: str) -> bool:
    return version_or_oldest(release) < version_or_oldest(than)


def _order(alias: str) -> tuple[bool, Version, str]:
    return alias != LATEST, version_or_oldest(alias.partition("-")[0]), alias
