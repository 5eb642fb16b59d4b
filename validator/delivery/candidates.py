"""What a registry holds for a host: looked up, verified and assessed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..certify.trust import Trust
from ..certify.verify import certificates
from ..errors import InputError, MissingError, ValidatorError
from ..registry.client import Registry
from .choose import Assessed, Found, Offer, assess, expected, ranked
from .host import Host

#: Looking waits for the registry more than it computes.
_AT_ONCE = 4


@dataclass(frozen=True)
class Terms:
    """trust: whose certificates count. max_age: of a measurement. now: None for the clock."""

    trust: Trust
    max_age: timedelta | None = None
    now: datetime | None = None


def offers(registry: Registry, tensorflow: str | None, python: str | None) -> list[Offer]:
    """The images of a registry that have that TensorFlow and Python, the best first.

    Raises MissingError for a registry without images, InputError where it has others only.
    """
    found = [offer for tag in registry.tags() if (offer := Offer.of_tag(tag))]
    if not found:
        raise MissingError(
            f"{registry.repository} has no images of this project",
            hint="build-matrix --push puts them there; check the name, and whether you are logged in",
        )
    wanted = [offer for offer in found if offer.is_of(tensorflow, python)]
    if not wanted:
        asked = [f"TensorFlow {tensorflow}"] * bool(tensorflow) + [f"Python {python}"] * bool(python)
        there = sorted({f"{offer.tensorflow} with {offer.python}" for offer in found})
        raise InputError(
            f"{registry.repository} has no image with {' and '.join(asked)}",
            hint=f"it has TensorFlow and Python {', '.join(there)}",
        )
    return sorted(wanted, key=lambda offer: offer.preference, reverse=True)


def look(registry: Registry, offer: Offer, terms: Terms) -> Found:
    """The digest behind a tag, and which of its certificates count.

    Raises MissingError when the registry can't be reached; whatever is wrong with the image itself, or with
    what is attached to it, is said in `Found.against`.
    """
    try:
        digest = registry.digest_of(offer.tag)
        if digest is None:
            return Found(offer, None, (), ("the tag is gone",))
        return look_at(registry, offer, digest, terms)
    except MissingError:
        raise
    except ValidatorError as error:
        return Found(offer, None, (), (str(error),))


def look_at(registry: Registry, offer: Offer, digest: str, terms: Terms) -> Found:
    """The same for a digest that is known."""
    try:
        if registry.manifest(digest) is None:
            return Found(offer, None, (), (f"the registry does not have {digest}",))
        verified = certificates(registry, digest, terms.trust, max_age=terms.max_age, now=terms.now)
    except MissingError:
        raise
    except ValidatorError as error:
        return Found(offer, digest, (), (str(error),))
    against = [f"its certificate {one.what} is refused: {one.why}" for one in verified.refused]
    others = [one for one in verified.certificates if one.image != offer.identifier]
    against += [f"its certificate is for {one.image}, so the tag is wrong" for one in others]
    good = tuple(one for one in verified.certificates if one.image == offer.identifier)
    return Found(offer, digest, good, tuple(dict.fromkeys(against)))


def recommend(registry: Registry, wanted: Iterable[Offer], host: Host, terms: Terms) -> list[Assessed]:
    """Every image for the host, best first."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda offer: look(registry, offer, terms), wanted))
    return ranked(assessed_for(one, host) for one in found)


def assessed_for(found: Found, host: Host) -> Assessed:
    return assess(found, host, expected(found.offer, found.certificates, host))
