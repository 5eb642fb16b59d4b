"""Which image an alias is to point at: pure rules over certified images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from packaging.version import InvalidVersion, Version

from ..model.certificate import Certificate
from ..registry.tags import LATEST, driver_alias, release_alias
from .times import moment

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
        if _version(certificate.tensorflow).is_prerelease:
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
        _version(certificate.tensorflow),
        _DEFAULT_BASE.fullmatch(certificate.image) is not None,
        _FLOATS.search(certificate.image) is None,
        _version(".".join(certificate.python.split(".")[:2])),
        _version(certificate.cuda),
        _version(certificate.cudnn),
        moment(certificate.measured) or datetime.min.replace(tzinfo=timezone.utc),
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
    return _version(release) < _version(than)


def _version(text: str) -> Version:
    """Never fails: what is no version is older than all."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def _order(alias: str) -> tuple[bool, Version, str]:
    return alias != LATEST, _version(alias.partition("-")[0]), alias
