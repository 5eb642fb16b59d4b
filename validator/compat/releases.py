"""TensorFlow releases: which Pythons, which CUDA and cuDNN, and what the `and-cuda` extra asks for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..versions import InvalidVersion, Version, major_minor
from . import facts
from .facts import Fact
from .unknown import UnknownRelease as UnknownRelease
from .unknown import nearest_clause, nearest_versions


@dataclass(frozen=True)
class Release:
    """One TensorFlow release.

    pythons: the Python versions that have a Linux x86_64 wheel, oldest first.
    cuda, cudnn: major.minor of the tested build configuration.
    extra: wheel -> version specifier, as the `and-cuda` extra asks for; for `extra_style` `none` the wheels
        that stand for the tested build; empty where no such wheels exist.
    extra_style: `exact`, `range`, or `none` (the release has no extra).
    facts_of: the listed release that the facts were read for; the release itself where it is listed.
    fact, extra_fact: what the above rests on (extra_fact is None where there is neither extra nor wheels).
    """

    version: str
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    extra_style: str
    facts_of: str
    fact: Fact
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra_fact: Fact | None = None

    @property
    def listed(self) -> bool:
        """False for a release that the tables do not list; its facts are those of a sibling."""
        return self.version == self.facts_of

    @property
    def minor(self) -> str:
        """`2.21`"""
        return major_minor(self.version)

    @property
    def prerelease(self) -> bool:
        return Version(self.version).is_prerelease

    @property
    def suffix(self) -> str:
        """What the names of its NVIDIA wheels end in: `cu11` or `cu12`."""
        return f"cu{self.cuda.split('.')[0]}"

    @property
    def needs_tensorrt(self) -> bool:
        """Whether the extra asks for TensorRT, whose wheels are not to be had for every Python, or at all."""
        return any(name.startswith("tensorrt") for name in self.extra)

    @property
    def wheels(self) -> Mapping[str, str]:
        """The NVIDIA wheels of the extra, without TensorRT: wheel -> specifier."""
        return {name: pin for name, pin in self.extra.items() if name.startswith("nvidia-")}


@functools.cache
def releases() -> tuple[Release, ...]:
    """Every listed release, oldest first."""
    extras = {version: row for row in facts.rows("tensorflow", "extras") for version in row["releases"]}
    return tuple(_release(row, extras.get(row["version"])) for row in facts.rows("tensorflow", "releases"))


@functools.cache
def release(version: str) -> Release:
    """The facts of one release.

    A patch release that the tables do not list (2.19.3) takes the facts of the newest listed one of its
    minor version. Raises UnknownRelease for a minor version that is not known.
    """
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UnknownRelease(
            f'"{version}" is not a TensorFlow release (expected something like {newest().version})',
            (newest().version,),
        ) from None
    for known in releases():
        if Version(known.version) == asked:
            return known
    siblings = [known for known in releases() if known.minor == major_minor(version)]
    if not siblings:
        nearest = nearest_versions(version, (known.version for known in releases()))
        raise UnknownRelease(f'tensorflow "{version}" is not known{nearest_clause(nearest)}', nearest)
    return replace(siblings[-1], version=str(asked))


@functools.cache
def newest() -> Release:
    """The newest stable release."""
    return [known for known in releases() if not known.prerelease][-1]


@functools.cache
def newest_patch(minor: str) -> Release:
    """The newest stable release of a minor version (`2.19`). Raises UnknownRelease when there is none."""
    found = [known for known in releases() if known.minor == minor and not known.prerelease]
    if not found:
        minors = dict.fromkeys(known.minor for known in releases() if not known.prerelease)
        nearest = nearest_versions(minor, minors)
        raise UnknownRelease(f'tensorflow "{minor}" is not known{nearest_clause(nearest)}', nearest)
    return found[-1]


def _release(row: facts.Row, extra: facts.Row | None) -> Release:
    return Release(
        version=row["version"],
        pythons=tuple(row["pythons"]),
        cuda=row["cuda"],
        cudnn=row["cudnn"],
        extra_style=extra["style"] if extra else "none",
        facts_of=row["version"],
        fact=facts.fact(row),
        extra=extra["wheels"] if extra else {},
        extra_fact=facts.fact(extra) if extra else None,
    )
