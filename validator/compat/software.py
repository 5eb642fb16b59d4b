"""The software of a situation, as the rules see it: the versions that matter, and the reasons from them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.prediction import Outcome, Reason
from ..model.situation import LINUX, PYPI, WSL2, Situation
from ..model.spec import Variant
from ..versions import CudaVersion
from . import cudnn, facts, installation, known_issues, loose, older, packages, platforms
from .builds import build
from .releases import Release, releases


# Compared by identity, which is fast: equal descriptions of the software get the same one from the cache.
@dataclass(frozen=True, eq=False)
class Software:
    """The software as the rules see it, and the reasons that follow from it.

    from_pypi: True if the facts about PyPI's wheels hold. inspected: True if they also have its kernels.
    combinations: ids of the known combinations that apply and have a condition on the GPU.
    against: reasons why it fails on every machine. reasons: the others. missing: facts that are not known.
    """

    release: Release | None
    python: str | None
    on_cpu: bool
    from_pypi: bool
    inspected: bool
    cuda: CudaVersion | None
    cudnn: str | None
    nvcc: str | None
    combinations: tuple[str, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]


def software(situation: Situation) -> Software:
    """Return the software that a situation describes."""
    return _software(
        (situation.tensorflow, situation.python, situation.cuda, situation.cudnn),
        (situation.system, situation.machine, situation.wheel, situation.variant),
        situation.extra,
        situation.library_path,
        tuple(situation.packages.items()),
    )


@functools.lru_cache(maxsize=8192)
def _software(
    versions: tuple[str | None, str | None, str | None, str | None],
    kind: tuple[str | None, str | None, str | None, str | None],
    extra: bool | None,
    library_path: bool | None,
    installed: tuple[tuple[str, str], ...],
) -> Software:
    tensorflow, python, cuda, cudnn_version = versions
    system, machine, wheel, variant = kind
    found = {loose.without_suffix(name): version for name, version in installed}
    from_wheels = any(name.startswith("nvidia-") for name in found)
    release = older.release_of_any_age(tensorflow or "")
    if extra and release is not None and release.extra_style == "exact":
        # The extra pins the versions that TensorFlow was built with.
        cuda = cuda or release.cuda
        cudnn_version = cudnn_version or release.cudnn
    toolkit = loose.cuda(found.get("nvidia-cuda-runtime") or cuda)
    cudnn_version = loose.numbers(found.get("nvidia-cudnn") or cudnn_version)
    minor = loose.minor(python)
    from_pypi = wheel in (None, PYPI)
    reasons = [
        packages.cpu_package(found, variant),
        platforms.other_build(wheel),
        packages.two_cudnns(dict(installed)),
        *(packages.removed_package(name, version) for name, version in installed),
    ]
    combinations: tuple[known_issues.Combination, ...] = ()
    if release is not None:
        reasons.append(platforms.without_cuda(release.version, system, machine, wheel))
    if release is not None and from_pypi:
        combinations = known_issues.on_image(release.version, minor, extra, found)
        reasons += _of_wheel(release, minor, toolkit, cudnn_version, found)
        reasons += [one.reason() for one in combinations if one.capabilities is None]
        if system in (None, LINUX, WSL2):
            has_libraries = toolkit is not None or from_wheels
            reasons.append(_libraries(release, extra, has_libraries))
            if extra:
                reasons.append(packages.framework_for_another_cuda(release, dict(installed)))
            if cuda is None and not extra and toolkit is None:
                reasons.append(packages.wheels_of_another_cuda(release, dict(installed)))
            reasons.append(installation.search_path(release.version, extra or from_wheels, library_path))
    kept = [reason for reason in reasons if reason is not None]
    needed: Mapping[str, object] = {
        "tensorflow": release,
        "python": minor,
        "cuda": toolkit,
        "cudnn": cudnn_version,
        "machine": machine,
        "wheel": wheel,
        **({"library_path": library_path} if any(r.rule == "library_path_not_set" for r in kept) else {}),
    }
    return Software(
        release=release,
        python=minor,
        on_cpu=variant == Variant.CPU.value,
        from_pypi=from_pypi,
        inspected=from_pypi and release in releases(),
        cuda=toolkit,
        cudnn=cudnn_version,
        nvcc=loose.numbers(found.get("nvidia-cuda-nvcc")),
        combinations=tuple(one.fact.id for one in combinations if one.capabilities is not None),
        against=tuple(reason for reason in kept if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in kept if reason.outcome is not Outcome.FAILS),
        missing=tuple(name for name, value in needed.items() if value is None),
    )


def _of_wheel(
    release: Release,
    python: str | None,
    toolkit: CudaVersion | None,
    cudnn_version: str | None,
    found: Mapping[str, str],
) -> Iterator[Reason | None]:
    """Return the reasons about the wheel on PyPI and the libraries that it loads."""
    if python is not None:
        yield installation.python_wheel(release, python)
    if toolkit is not None:
        yield installation.cuda_major(release, toolkit)
    measured = build(release.version)
    built_with = (measured.cudnn if measured else None) or release.cudnn
    if cudnn_version is not None:
        yield cudnn.fits_build(cudnn_version, built_with)
    yield from packages.mixed_frameworks(release, built_with, found, loose.numbers(found.get("nvidia-cudnn")))


def _libraries(release: Release, extra: bool | None, has_libraries: bool) -> Reason | None:
    """Return why there are no CUDA libraries; None if there are, or if it is not known."""
    if extra is not False or has_libraries or release.extra_style == "none":
        return None
    return facts.rule("platforms", "extra-and-cuda").fails(
        f"tensorflow {release.version} was installed without CUDA's libraries; install"
        f" tensorflow[and-cuda]=={release.version}",
        "cuda_libraries_not_installed",
    )
