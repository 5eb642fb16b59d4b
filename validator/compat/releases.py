"""TensorFlow releases: their Pythons, CUDA and cuDNN, and the requirements of the `and-cuda` extra."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..versions import InvalidVersion, Version, major, major_minor
from . import facts
from .errors import UnknownRelease, nearest_clause, nearest_versions
from .facts import Fact

_SERIES = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class Release:
    """One TensorFlow release.

    pythons: the Python versions that have a Linux x86_64 wheel, oldest first.
    cuda, cudnn: major.minor of the tested build configuration.
    extra: wheel -> version specifier of the `and-cuda` extra. If `extra_style` is `none`, the wheels with the
        versions of the tested build; empty if there are none.
    extra_style: `exact`, `range`, or `none` (the release has no extra).
    package: the name of the package with CUDA on PyPI.
    lowest_gpu: the lowest compute capability that it is documented for, where no wheel was opened.
    fact, extra_fact: what the above is based on (extra_fact is None if there is neither extra nor wheels).
    """

    version: str
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    extra_style: str
    fact: Fact
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra_fact: Fact | None = None
    package: str = "tensorflow"
    lowest_gpu: str | None = None

    @property
    def minor(self) -> str:
        """The minor version: `2.21`."""
        return major_minor(self.version)

    @functools.cached_property
    def prerelease(self) -> bool:
        return Version(self.version).is_prerelease

    @property
    def suffix(self) -> str:
        """The suffix of the names of its NVIDIA wheels: `cu11` or `cu12`."""
        return f"cu{major(self.cuda)}"

    @property
    def needs_tensorrt(self) -> bool:
        """True if the extra requires TensorRT, whose wheels don't exist for every Python, or at all."""
        return any(name.startswith("tensorrt") for name in self.extra)

    @functools.cached_property
    def wheels(self) -> Mapping[str, str]:
        """The NVIDIA wheels of the extra, without TensorRT: wheel -> specifier."""
        return {name: pin for name, pin in self.extra.items() if name.startswith("nvidia-")}


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return every listed release, oldest first."""
    extras = {version: row for row in facts.rows("tensorflow", "extras") for version in row["releases"]}
    return tuple(_release(row, extras.get(row["version"])) for row in facts.rows("tensorflow", "releases"))


@functools.cache
def release(version: str) -> Release:
    """Return the facts of one release; two numbers (`2.16`) stand for the newest stable one of the series.

    Raises UnknownRelease, which names the nearest, for another.
    """
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UnknownRelease(
            f'"{version}" is not a TensorFlow release (expected something like {newest().version})',
            (newest().version,),
        ) from None
    if _SERIES.fullmatch(version) and any(one.minor == version and not one.prerelease for one in releases()):
        return newest_patch(version)
    for known in releases():
        if Version(known.version) == asked:
            return known
    same = [known.version for known in reversed(releases()) if known.minor == major_minor(version)]
    others = nearest_versions(version, (known.version for known in releases() if known.version not in same))
    nearest = (*same, *others)[:3]
    for known in releases():
        if known.prerelease and Version(known.version).release == asked.release and not asked.is_prerelease:
            raise UnknownRelease(
                f'tensorflow "{version}" is not known: only its candidate {known.version} was inspected',
                (known.version, *(one for one in nearest if one != known.version)),
                hint=f"ask for {known.version}, or for {newest().version}, the newest release",
            )
    raise UnknownRelease(f'tensorflow "{version}" is not known{nearest_clause(nearest)}', nearest)


@functools.cache
def newest() -> Release:
    """Return the newest stable release."""
    return [known for known in releases() if not known.prerelease][-1]


@functools.cache
def is_candidate(version: str) -> bool:
    """Return True for the newest candidate of a release that is later than every stable one."""
    asked = Version(version)
    candidates = [
        Version(known.version)
        for known in releases()
        if known.prerelease and not Version(known.version).is_devrelease
    ]
    return asked > Version(newest().version) and asked == max(
        (one for one in candidates if one.release == asked.release), default=None
    )


@functools.cache
def newest_patch(minor: str) -> Release:
    """Return the newest stable release of a minor version (`2.19`). Raises UnknownRelease."""
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
        fact=facts.fact(row),
        extra=extra["wheels"] if extra else {},
        extra_fact=facts.fact(extra) if extra else None,
    )
