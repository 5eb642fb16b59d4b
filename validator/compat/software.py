"""Judge software by itself: the versions that matter, and the reasons that don't depend on the machine."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..model.prediction import Outcome, Reason
from ..model.situation import LINUX, PYPI, WSL2, Host, Software
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
class JudgedSoftware:
    """Software as the rules see it, and the reasons that follow from it.

    from_pypi: True if the facts about PyPI's wheels hold. inspected: True if they also have its kernels.
    values: what conditions of known combinations may ask about. combinations: those that may apply to a wheel
        from PyPI, depending on the GPU.
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
    values: Mapping[str, str]
    combinations: tuple[known_issues.Combination, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    tried: tuple[evidence.Tried, ...]


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


def judge_software(software: Software, host: Host) -> JudgedSoftware:
    """Judge software on the system and the architecture of a host, whose driver and GPU don't matter here."""
    return _judge(software, host.system, host.machine)


@functools.lru_cache(maxsize=8192)
def _judge(software: Software, system: str | None, machine: str | None) -> JudgedSoftware:
    versions = _versions_of(software)
    release = versions.release.version if versions.release else software.tensorflow
    values = known_issues.of_software(
        release, versions.python, versions.cudnn, software.extra, versions.packages
    )
    from_pypi = software.wheel in (None, PYPI)
    combinations = known_issues.on_image(values) if from_pypi and versions.release is not None else ()
    reasons = [
        reason
        for reason in _reasons_of(software, system, machine, versions, combinations)
        if reason is not None
    ]
    return JudgedSoftware(
        release=versions.release,
        python=versions.python,
        on_cpu=software.variant == Variant.CPU.value,
        from_pypi=from_pypi,
        inspected=from_pypi and versions.release in releases(),
        cuda=versions.cuda,
        cudnn=versions.cudnn,
        nvcc=loose_values.numbers(versions.packages.get("nvidia-cuda-nvcc")),
        values=values,
        combinations=tuple(one for one in combinations if one.by_gpu),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
        missing=tuple(_missing_of(software, machine, versions, reasons)),
        tried=_tried(software, system, machine, versions),
    )


def _versions_of(software: Software) -> _Versions:
    """Return the versions; those of installed wheels come before those that were stated."""
    wheels = {loose_values.without_suffix(name): version for name, version in software.packages}
    release = older_releases.release_of_any_age(software.tensorflow or "")
    cuda, cudnn_version = software.cuda, software.cudnn
    if software.extra and release is not None and release.extra_style == "exact":
        # The extra pins the versions that TensorFlow was built with.
        cuda, cudnn_version = cuda or release.cuda, cudnn_version or release.cudnn
    loaded = wheels.get("nvidia-cudnn") or cudnn_version
    cudnn_numbers = loose_values.numbers(loaded)
    return _Versions(
        release,
        loose_values.minor(software.python),
        loose_values.cuda(wheels.get("nvidia-cuda-runtime") or cuda),
        cudnn_numbers,
        None if cudnn_numbers else major(loaded or "") or None,
        wheels,
    )


def _tried(
    software: Software, system: str | None, machine: str | None, versions: _Versions
) -> tuple[evidence.Tried, ...]:
    if versions.release is None or software.variant == Variant.CPU.value:
        return ()
    # A candidate or nightly that was not inspected is judged by its release, but something else was tried.
    stated_version = software.tensorflow or ""
    other = older_releases.nearest_inspected(stated_version) is not None
    return evidence.on_software(
        evidence.Installed(
            stated_version if other else versions.release.version,
            versions.python,
            versions.cuda,
            versions.cudnn,
            versions.packages,
            system,
            machine,
            software.wheel,
            software.library_path,
        )
    )


def _reasons_of(
    software: Software,
    system: str | None,
    machine: str | None,
    versions: _Versions,
    combinations: Iterable[known_issues.Combination],
) -> Iterator[Reason | None]:
    yield packages.cpu_package(versions.packages, software.variant)
    yield platforms.other_build(software.wheel)
    yield packages.two_cudnns(software.versions)
    for name, version in software.packages:
        yield packages.removed_package(name, version)
    release = versions.release
    if release is None:
        return
    yield platforms.without_cuda(release.version, system, machine, software.wheel)
    if software.wheel not in (None, PYPI):
        return
    yield from _of_wheel(release, versions)
    yield from (one.reason() for one in combinations if not one.by_gpu)
    if system in (None, LINUX, WSL2):
        yield from _of_installation(release, software, versions)


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


def _of_installation(release: Release, software: Software, versions: _Versions) -> Iterator[Reason | None]:
    """Yield the reasons about where the CUDA libraries come from, and whether TensorFlow finds them."""
    has_libraries = versions.cuda is not None or versions.from_wheels
    if software.extra is False and not has_libraries and release.extra_style != "none":
        yield without_libraries(release.version)
    if software.extra:
        yield packages.framework_for_another_cuda(release, software.versions)
    elif software.cuda is None and versions.cuda is None:
        yield packages.wheels_of_another_cuda(release, software.versions)
    from_wheels = software.extra or versions.from_wheels
    yield installation.search_path(release.version, from_wheels, software.library_path)


def _missing_of(
    software: Software, machine: str | None, versions: _Versions, reasons: Iterable[Reason]
) -> Iterator[str]:
    """Yield the facts that a prediction needs and that are not known."""
    needed: dict[str, object] = {
        "tensorflow": versions.release,
        "python": versions.python,
        "cuda": versions.cuda,
        "cudnn": versions.cudnn,
        "machine": machine,
        "wheel": software.wheel,
    }
    if any(reason.rule == "library_path_not_set" for reason in reasons):
        needed["library_path"] = software.library_path
    return (name for name, value in needed.items() if value is None)


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
