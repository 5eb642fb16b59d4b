"""Moves aliases to the newest certified images, also when several do so at the same time.

Nothing locks a registry. So whoever has set an alias looks again: at the images, their certificates and the
aliases as they are by then, and sets right what is not. The last one to write therefore also looks last, and
what it leaves is what all certificates of that moment ask for.
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
#: As the image's builder writes it: the TensorFlow release (OCI image specification, annotations).
_VERSION_LABEL = "org.opencontainers.image.version"
_LOOKS = 8


@dataclass(frozen=True)
class Rules:
    """trust, max_age: which certificates count. allow_older: an alias may go back to an older TensorFlow."""

    trust: Trust
    max_age: timedelta | None = None
    allow_older: bool = False


def promote(
    registry: Registry,
    rules: Rules,
    *,
    dry_run: bool = False,
    now: datetime | None = None,
    tell: Callable[[Move], None] = lambda move: None,
) -> list[Move]:
    """Move every alias to where it belongs; what became of each, `was` being what this run found first.

    tell: told of each move as soon as it is done.

    Raises ValidatorError when the aliases don't come to rest since others keep moving them, and MissingError
    when the registry can't be reached; what was moved by then is right.
    """
    first: dict[str, Move] = {}
    for _ in range(_LOOKS):
        found = _survey(registry, rules, now)
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
                # Somebody else set it in the same moment. The next look says who is right.
                continue
            tell(move)
    raise ValidatorError(
        f"the aliases of {registry.repository} don't come to rest: something else keeps moving them",
        hint="see what else sets tags there, and repeat the command",
    )


def _survey(registry: Registry, rules: Rules, now: datetime | None) -> list[Move]:
    """What is to become of each alias, as things are at this moment."""
    tags = registry.tags()
    # Aliases first: one that moves on while the images are looked at is seen as moved at the next look.
    current = {tag: registry.digest_of(tag) for tag in tags if ALIAS.fullmatch(tag)}
    # What an alias points at counts although its tag went on to a newer build that is not certified yet.
    images = {*current.values(), *(registry.digest_of(tag) for tag in tags if identifier_of(tag))} - {None}
    certified = [
        certificate
        for digest in sorted(map(str, images))
        for certificate in certificates(
            registry, digest, rules.trust, max_age=rules.max_age, now=now
        ).certificates
    ]
    good = {entry.image_digest for entry in certified}
    standing = {
        alias: Standing(digest, None if digest in good else _release(registry, digest))
        for alias, digest in current.items()
        if digest is not None
    }
    return moves(standing, certified, allow_older=rules.allow_older)


def _release(registry: Registry, digest: str) -> str | None:
    """The TensorFlow release of an image without a certificate, as its label says; None: unknown."""
    try:
        labels = (registry.config(digest).get("config") or {}).get("Labels") or {}
    except MissingError:
        raise
    except ValidatorError:
        # Altered, or no image at all: an alias should not stay on it.
        return None
    release = labels.get(_VERSION_LABEL)
    return str(release) if release else None


# Which image an alias is to point at: pure rules over certified images.

_DEFAULT_BASE = re.compile(r".*-py\d+")
_FLOATS = re.compile(r"-(?:cuda|cudnn)latest\b")


@dataclass(frozen=True)
class Standing:
    """What an alias points at now. release: the TensorFlow release, as its label says; None: unknown."""

    digest: str
    release: str | None = None


@dataclass(frozen=True)
class Move:
    """What becomes of one alias.

    was, now: digests; `was` is None for a new alias, `now` where no certified image fits.
    image: the image spec of `now`. moves: whether it is to be set. why: one sentence; empty where nothing
        needs saying.
    """

    alias: str
    was: str | None
    now: str | None
    image: str | None
    moves: bool
    why: str = ""


def wanted(certificates: Iterable[Certificate]) -> dict[str, Certificate]:
    """Alias -> the certificate of the image that it is to point at. Pre-releases get no alias."""
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
            if alias not in best or rank(certificate) > rank(best[alias]):
                best[alias] = certificate
    return best


def rank(certificate: Certificate) -> tuple[object, ...]:
    """What the better of two certificates has more of.

    The newest TensorFlow; then the base and the CUDA that the project proposes rather than another; the
    newest Python, CUDA and cuDNN; and of one image spec, what was measured last.
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


def moves(
    current: Mapping[str, Standing], certificates: Iterable[Certificate], *, allow_older: bool = False
) -> list[Move]:
    """What is to become of every alias that there is, and of every one that there should be."""
    best = wanted(certificates)
    return [
        _move(alias, current.get(alias), best.get(alias), allow_older)
        for alias in sorted({*current, *best}, key=_order)
    ]


def _move(alias: str, standing: Standing | None, best: Certificate | None, allow_older: bool) -> Move:
    was = standing.digest if standing else None
    if best is None:
        return Move(alias, was, None, None, False, "no image with a valid certificate fits it")
    now = best.image_digest
    if was == now:
        return Move(alias, was, now, best.image, False)
    older = (
        standing is not None and standing.release is not None and _older(best.tensorflow, standing.release)
    )
    if standing is not None and older and not allow_older:
        why = (
            f"it points at TensorFlow {standing.release}, without a valid certificate, and the newest"
            f" certified image has {best.tensorflow}"
        )
        return Move(alias, was, now, best.image, False, why)
    return Move(alias, was, now, best.image, True)


def _older(release: str, than: str) -> bool:
    return version_or_oldest(release) < version_or_oldest(than)


def _order(alias: str) -> tuple[bool, Version, str]:
    return alias != LATEST, version_or_oldest(alias.partition("-")[0]), alias
