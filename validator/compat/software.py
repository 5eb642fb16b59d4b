"""The software of a situation, as the rules see it: the versions that matter, and the reasons from them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..model.prediction import Outcome, Reason
from ..model.situation import LINUX, PYPI, WSL2, Situation
from ..model.spec import Variant
from ..versions import CudaVersion, major
from . import (
    cudnn,
    evidence,
    facts,
    installation,
    known_issues,
    loose_values,
    older_releases,
    packages,
    platforms,
)
from .builds import build
from .releases import Release, releases


# Compared by identity, which is fast: equal descriptions of the software get the same one from the cache.
@dataclass(frozen=True, eq=False)
class Software:
    """The software as the rules see it, and the reasons that follow from it.

    from_pypi: True if the facts about PyPI's wheels hold. inspected: True if they also have its kernels.
    known: the values that conditions of known combinations may ask about. combinations: those that may apply
        to a wheel from PyPI, depending on the GPU.
    against: reasons why it fails on every machine. reasons: the others. missing: facts that are not known.
    tried: what people measured and reported with it.
    """

    release: Release | None
    python: str | None
    on_cpu: bool
    from_pypi: bool
    inspected: bool
    cuda: CudaVersion | None
    cudnn: str | None
    nvcc: str | None
    known: Mapping[str, str]
    combinations: tuple[known_issues.Combination, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    tried: tuple[evidence.Tried, ...]


def software(situation: Situation) -> Software:
    """Return the software that a situation describes."""
    return _software(
        _Stated(
            situation.tensorflow,
            situation.python,
            situation.cuda,
            situation.cudnn,
            situation.system,
            situation.machine,
            situation.wheel,
            situation.variant,
            situation.extra,
            situation.library_path,
            tuple(situation.packages.items()),
        )
    )


class _Stated(NamedTuple):
    """The software that a situation states. packages: names with versions. The other fields are those of
    `Situation`.
    """

    tensorflow: str | None
    python: str | None
    cuda: str | None
    cudnn: str | None
    system: str | None
    machine: str | None
    wheel: str | None
    variant: str | None
    extra: bool | None
    library_path: bool | None
    packages: tuple[tuple[str, str], ...]

    @property
    def from_pypi(self) -> bool:
        return self.wheel in (None, PYPI)


@dataclass(frozen=True)
class _Versions:
    """The versions that TensorFlow runs with.

    python: `3.12`. cudnn_major: the major version of cuDNN, if only that is known. packages: by name
    without a CUDA suffix.
    """

    release: Release | None
    python: str | None
    cuda: CudaVersion | None
    cudnn: str | None
    cudnn_major: str | None
    packages: Mapping[str, str]

    @property
    def from_wheels(self) -> bool:
        return any(name.startswith("nvidia-") for name in self.packages)


@functools.lru_cache(maxsize=8192)
def _software(stated: _Stated) -> Software:
    versions = _versions_of(stated)
    known = _known(stated, versions)
    described = stated.from_pypi and versions.release is not None
    combinations = known_issues.on_image(known) if described else ()
    reasons = [reason for reason in _reasons_of(stated, versions, combinations) if reason is not None]
    return Software(
        release=versions.release,
        python=versions.python,
        on_cpu=stated.variant == Variant.CPU.value,
        from_pypi=stated.from_pypi,
        inspected=stated.from_pypi and versions.release in releases(),
        cuda=versions.cuda,
        cudnn=versions.cudnn,
        nvcc=loose_values.numbers(versions.packages.get("nvidia-cuda-nvcc")),
        known=known,
        combinations=tuple(one for one in combinations if one.by_gpu),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
        missing=tuple(_missing_of(stated, versions, reasons)),
        tried=_tried(stated, versions),
    )


def _versions_of(stated: _Stated) -> _Versions:
    """Return the versions; those of installed wheels come before those that were stated."""
    found = {loose_values.without_suffix(name): version for name, version in stated.packages}
    release = older_releases.release_of_any_age(stated.tensorflow or "")
    cuda, cudnn_version = stated.cuda, stated.cudnn
    if stated.extra and release is not None and release.extra_style == "exact":
        # The extra pins the versions that TensorFlow was built with.
        cuda, cudnn_version = cuda or release.cuda, cudnn_version or release.cudnn
    loaded = found.get("nvidia-cudnn") or cudnn_version
    known = loose_values.numbers(loaded)
    return _Versions(
        release,
        loose_values.minor(stated.python),
        loose_values.cuda(found.get("nvidia-cuda-runtime") or cuda),
        known,
        None if known else major(loaded or "") or None,
        found,
    )


def _tried(stated: _Stated, versions: _Versions) -> tuple[evidence.Tried, ...]:
    if versions.release is None or stated.variant == Variant.CPU.value:
        return ()
    # A candidate or nightly that was not inspected is judged by its release, but something else was tried.
    stated_version = stated.tensorflow or ""
    other = older_releases.nearest_inspected(stated_version) is not None
    return evidence.on_software(
        evidence.Installed(
            stated_version if other else versions.release.version,
            versions.python,
            versions.cuda,
            versions.cudnn,
            versions.packages,
            stated.system,
            stated.machine,
            stated.wheel,
            stated.library_path,
        )
    )


def _known(stated: _Stated, versions: _Versions) -> Mapping[str, str]:
    """Return what known combinations may ask about."""
    release = versions.release.version if versions.release else stated.tensorflow
    return known_issues.of_software(release, versions.python, versions.cudnn, stated.extra, versions.packages)


def _reasons_of(
    stated: _Stated, versions: _Versions, combinations: Iterable[known_issues.Combination]
) -> Iterator[Reason | None]:
    yield packages.cpu_package(versions.packages, stated.variant)
    yield platforms.other_build(stated.wheel)
    yield packages.two_cudnns(dict(stated.packages))
    for name, version in stated.packages:
        yield packages.removed_package(name, version)
    release = versions.release
    if release is None:
        return
    yield platforms.without_cuda(release.version, stated.system, stated.machine, stated.wheel)
    if not stated.from_pypi:
        return
    yield from _of_wheel(release, versions)
    yield from (one.reason() for one in combinations if not one.by_gpu)
    if stated.system in (None, LINUX, WSL2):
        yield from _of_installation(release, stated, versions)


def _of_wheel(release: Release, versions: _Versions) -> Iterator[Reason | None]:
    """Yield the reasons about the wheel on PyPI and the libraries that it loads."""
    if versions.python is not None:
        yield installation.python_wheel(release, versions.python)
    if versions.cuda is not None:
        yield installation.cuda_major(release, versions.cuda)
    measured = build(release.version)
    built_with = (measured.cudnn if measured else None) or release.cudnn
    loaded = versions.cudnn or versions.cudnn_major
    if loaded is not None:
        yield cudnn.fits_build(loaded, built_with)
    wheel = loose_values.numbers(versions.packages.get("nvidia-cudnn"))
    yield from packages.mixed_frameworks(release, built_with, versions.packages, wheel)


def _of_installation(release: Release, stated: _Stated, versions: _Versions) -> Iterator[Reason | None]:
    """Yield the reasons about where the CUDA libraries come from, and whether TensorFlow finds them."""
    yield _libraries(release, stated.extra, versions.cuda is not None or versions.from_wheels)
    if stated.extra:
        yield packages.framework_for_another_cuda(release, dict(stated.packages))
    elif stated.cuda is None and versions.cuda is None:
        yield packages.wheels_of_another_cuda(release, dict(stated.packages))
    from_wheels = stated.extra or versions.from_wheels
    yield installation.search_path(release.version, from_wheels, stated.library_path)


def _missing_of(stated: _Stated, versions: _Versions, reasons: Iterable[Reason]) -> Iterator[str]:
    """Yield the facts that a prediction needs and that are not known."""
    needed: dict[str, object] = {
        "tensorflow": versions.release,
        "python": versions.python,
        "cuda": versions.cuda,
        "cudnn": versions.cudnn,
        "machine": stated.machine,
        "wheel": stated.wheel,
    }
    if any(reason.rule == "library_path_not_set" for reason in reasons):
        needed["library_path"] = stated.library_path
    return (name for name, value in needed.items() if value is None)


def _libraries(release: Release, extra: bool | None, has_libraries: bool) -> Reason | None:
    """Return why there are no CUDA libraries; None if there are, or if it is not known."""
    if extra is not False or has_libraries or release.extra_style == "none":
        return None
    return without_libraries(release.version)


def without_system_libraries(release: Release) -> Reason:
    """Return why a release that has no extra fails on a system without CUDA."""
    return release.fact.fails(
        f"tensorflow {release.version} was installed without CUDA's libraries; it has no extra that installs"
        f" them, so CUDA {release.cuda} and cuDNN {release.cudnn} must be on the system",
        "cuda_libraries_not_installed",
    )


def without_libraries(version: str) -> Reason:
    """Return why a TensorFlow without the extra fails. version: empty if it is not known."""
    name, pin = (f"tensorflow {version}", f"=={version}") if version else ("tensorflow", "")
    return facts.rule("platforms", "extra-and-cuda").fails(
        f"{name} was installed without CUDA's libraries; install tensorflow[and-cuda]{pin}",
        "cuda_libraries_not_installed",
    )
