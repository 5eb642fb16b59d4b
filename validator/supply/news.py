"""Compare the package index with the facts: TensorFlow releases, their Pythons, CUDA and cuDNN wheels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..compat import freshness, policies, releases
from ..locks.index import IndexFile, PackageIndex
from ..versions import Version

#: The projects of cuDNN's wheels: one for each CUDA major version, with releases of its own.
CUDNN_PROJECTS = {"cu12": "nvidia-cudnn-cu12", "cu13": "nvidia-cudnn-cu13"}
CUDA_PROJECT = "cuda-toolkit"
#: The Python whose wheel is inspected, if there is one for it, so that releases are compared like with like.
_MEASURED_PYTHON = "3.11"
_CPYTHON = re.compile(r"cp3([0-9]{1,2})")


@dataclass(frozen=True)
class Asked:
    """The kinds of TensorFlow releases to ask for, besides stable ones."""

    candidates: bool = False
    nightlies: bool = False


#: Stable releases only.
STABLE = Asked()


@dataclass(frozen=True)
class NewRelease:
    """A TensorFlow release that the facts don't know.

    pythons: those that it has wheels for, oldest first. wheel: the one to inspect.
    """

    version: str
    pythons: tuple[str, ...]
    wheel: IndexFile


@dataclass(frozen=True)
class News:
    """The releases on the index that the facts don't have.

    pythons: for each known release with wheels for Pythons that the facts don't know, all of its Pythons.
    cuda: for each new CUDA release, the wheel of the metapackage `cuda-toolkit`. cudnn: new releases by
    suffix.
    """

    releases: tuple[NewRelease, ...] = ()
    pythons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: tuple[IndexFile, ...] = ()
    cudnn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_seen(self) -> dict[str, list[str]]:
        """Return the news as texts by kind, as `freshness.remark` reads them."""
        known = {release.version: release.pythons for release in releases.releases()}
        seen = {
            freshness.TENSORFLOW: [release.version for release in self.releases],
            freshness.PYTHON: [
                f"{version} for Python {python}"
                for version, pythons in self.pythons.items()
                for python in pythons
                if python not in known[version]
            ],
            freshness.CUDA: [cuda_release(file) for file in self.cuda],
            freshness.CUDNN: [
                f"{version} ({suffix})" for suffix, versions in self.cudnn.items() for version in versions
            ],
        }
        return {kind: versions for kind, versions in seen.items() if versions}

    def __bool__(self) -> bool:
        return bool(self.releases or self.pythons or self.cuda or self.cudnn)


def news(index: PackageIndex, asked: Asked) -> News:
    """Ask the index. Raises MissingError if it can't be reached, or has no wheel of a project."""
    tensorflow = _by_version(index.wheels("tensorflow"))
    found = [*_new_releases(tensorflow, asked.candidates)]
    if asked.nightlies:
        found += _newest_nightly(_by_version(index.wheels("tf-nightly")))
    return News(
        releases=tuple(sorted(found, key=lambda release: Version(release.version))),
        pythons={
            known.version: pythons
            for known in releases.releases()
            if (pythons := _pythons(tensorflow.get(Version(known.version), ())))
            and set(pythons) - set(known.pythons)
        },
        cuda=_new_cuda(index.wheels(CUDA_PROJECT)),
        cudnn={
            suffix: versions
            for suffix, project in CUDNN_PROJECTS.items()
            if (versions := _new_cudnn(suffix, index.wheels(project)))
        },
    )


def _by_version(files: Iterable[IndexFile]) -> dict[Version, list[IndexFile]]:
    found: dict[Version, list[IndexFile]] = {}
    for file in files:
        found.setdefault(file.version, []).append(file)
    return found


def _new_releases(offered: Mapping[Version, list[IndexFile]], candidates: bool) -> Iterable[NewRelease]:
    """Return the stable releases that are newer than all known ones, or than those of their minor version.

    With candidates, also the newest candidate of each later release.
    """
    stable = [Version(known.version) for known in releases.releases() if not known.prerelease]
    known = {Version(known.version) for known in releases.releases()}
    newest_of_minor: dict[tuple[int, ...], Version] = {}
    for version in stable:
        newest_of_minor[version.release[:2]] = max(version, newest_of_minor.get(version.release[:2], version))
    last = max((version for version in offered if not version.is_prerelease), default=max(stable))
    newest_candidates: dict[tuple[int, ...], Version] = {}
    for version in offered:
        if version.is_devrelease:
            continue
        if version.is_prerelease:
            if version > last:
                before = newest_candidates.get(version.release, version)
                newest_candidates[version.release] = max(version, before)
        elif version not in known and version > newest_of_minor.get(version.release[:2], max(stable)):
            yield from _release(version, offered[version])
    if candidates:
        for version in newest_candidates.values():
            if version not in known:
                yield from _release(version, offered[version])


def _newest_nightly(offered: Mapping[Version, list[IndexFile]]) -> Iterable[NewRelease]:
    newest = max(offered)
    if newest > max(Version(known.version) for known in releases.releases()):
        yield from _release(newest, offered[newest])


def _release(version: Version, files: list[IndexFile]) -> Iterable[NewRelease]:
    """Return the release, or nothing if it has no wheel for Linux with x86_64."""
    pythons = _pythons(files)
    if pythons:
        python = _MEASURED_PYTHON if _MEASURED_PYTHON in pythons else pythons[0]
        wheel = next(file for file in files if _python(file) == python)
        yield NewRelease(str(version), pythons, wheel)


def _pythons(files: Iterable[IndexFile]) -> tuple[str, ...]:
    found = {python for file in files if (python := _python(file)) is not None}
    return tuple(sorted(found, key=Version))


def _python(file: IndexFile) -> str | None:
    """Return the Python of a wheel for Linux with x86_64, None for another one."""
    if not file.on_linux:
        return None
    for tag in file.tags:
        # A free-threaded Python (cp313t) has the same interpreter tag, but another ABI.
        if tag.interpreter == tag.abi and (found := _CPYTHON.fullmatch(tag.interpreter)):
            return f"3.{found[1]}"
    return None


def _new_cuda(files: Iterable[IndexFile]) -> tuple[IndexFile, ...]:
    known = {Version(release.version) for release in policies.cuda_releases()}
    new = {
        cuda_release(file): file
        for file in files
        if file.version > min(known)
        and Version(cuda_release(file)) not in known
        and not file.version.is_prerelease
    }
    return tuple(new.values())


def cuda_release(file: IndexFile) -> str:
    """Return the CUDA release of a wheel of the metapackage: `13.0.3` of 13.0.3.0."""
    return ".".join(map(str, file.version.release[:3]))


def _new_cudnn(suffix: str, files: Iterable[IndexFile]) -> tuple[str, ...]:
    known = {Version(version) for version in policies.cudnn_releases(suffix)}
    new = {file.version for file in files if file.on_linux and not file.version.is_prerelease} - known
    return tuple(str(version) for version in sorted(new))
