"""The images that a registry has under the tags of ours, each with its certificates."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..certify.trust import Trust
from ..certify.verify import Refused, Verified, certificates
from ..errors import InputError
from ..model.certificate import Certificate
from ..registry.reference import is_digest
from ..registry.registry import Registry
from ..registry.tags import identifier_of

_AT_ONCE = 4


@dataclass(frozen=True)
class Candidate:
    """An image of the registry.

    tag: the tag that names it for ever. image: the image spec's identifier, as the tag says.
    certificates: those that are valid, newest measurement first. refused: what else is attached to it.
    """

    tag: str
    digest: str
    image: str
    certificates: tuple[Certificate, ...] = ()
    refused: tuple[Refused, ...] = ()


def candidates(
    registry: Registry,
    trust: Trust,
    *,
    wanted: Callable[[str], bool] = lambda identifier: True,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> list[Candidate]:
    """Every image of the registry whose identifier is wanted.

    Raises InputError when the trust can't be used, MissingError when the registry can't be reached.
    """
    trust.check()
    named = {tag: identifier for tag in registry.tags() if (identifier := identifier_of(tag))}
    tags = [tag for tag, identifier in named.items() if wanted(identifier)]

    def look(tag: str) -> Candidate | None:
        digest = registry.digest_of(tag)
        if digest is None:
            return None
        found = certificates(registry, digest, trust, max_age=max_age, now=now)
        return _candidate(tag, named[tag], digest, found)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [candidate for candidate in pool.map(look, tags) if candidate is not None]


def candidate_named(
    registry: Registry,
    name: str,
    trust: Trust,
    *,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> Candidate:
    """The image of one tag, alias or digest. Raises InputError where the registry has none."""
    trust.check()
    digest = name if is_digest(name) else registry.digest_of(name)
    if digest is None or registry.manifest(digest) is None:
        raise InputError(
            f"{registry.repository} has no image {name}",
            hint=f"`oras repo tags {registry.repository}` lists what is there",
        )
    found = certificates(registry, digest, trust, max_age=max_age, now=now)
    # An alias or a digest says nothing of the image; its certificates do.
    identifier = identifier_of(name) or next((entry.image for entry in found.certificates), name)
    return _candidate(name, identifier, digest, found)


def _candidate(tag: str, identifier: str, digest: str, found: Verified) -> Candidate:
    candidate = Candidate(tag, digest, identifier, found.certificates, found.refused)
    others = [entry for entry in found.certificates if entry.image != identifier]
    if not others:
        return candidate
    # Somebody has moved the tag: what it says and what was measured are not the same image.
    refused = tuple(Refused(entry.record_id, f"it certifies {entry.image}") for entry in others)
    good = tuple(entry for entry in found.certificates if entry.image == identifier)
    return replace(candidate, certificates=good, refused=(*candidate.refused, *refused))
