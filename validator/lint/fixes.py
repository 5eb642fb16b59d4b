"""The codes of findings, which are those of rules of `compat`, with what each is about and how to fix it."""

from __future__ import annotations

from collections.abc import Mapping

from ..compat import builds, releases
from ..compat.offers import has_extra, newest_that_works, requirement
from ..compat.older_releases import release_of_any_age
from ..compat.releases import Release
from ..model.prediction import Rule
from ..model.situation import LINUX, X86_64, Host
from ..versions import leading_numbers
from . import markers
from .environment import Stated

#: Code -> what a file says that can't work.
CODES: Mapping[Rule, str] = {
    "cuda_of_another_version": "CUDA of another version than TensorFlow loads: a base image, NVIDIA's wheels"
    " (`-cu11`, `-cu12`, `-cu13`), or a package of conda",
    "cudnn_of_another_major": "cuDNN of another major version than TensorFlow was compiled with",
    "cudnn_older_than_built": "cuDNN of an older minor version than TensorFlow was compiled with",
    "python_without_wheel": "a Python for which this TensorFlow has no wheel",
    "mixed_frameworks": "PyTorch or JAX in the same environment, whose wheels bring a cuDNN that TensorFlow"
    " rejects, or the wheels of cuDNN for two versions of CUDA",
    "package_removed": "a package that was replaced, such as `tensorflow-gpu`, in a version that only fails"
    " to install",
    "release_missing": "a release of the package `tensorflow` that does not exist, such as 2.16.0; a release"
    " that is newer than those that this tool knows may exist, and is not reported",
    "invalid_version": "a package next to TensorFlow that is pinned to an invalid version, such as `==9.x`,"
    " in a Dockerfile, a requirements file, or a list of requirements in another file",
    "cpu_package": "`tensorflow-cpu` where the file says that a GPU will be used",
    "cuda_libraries_not_installed": "`tensorflow` without `[and-cuda]` in an image without CUDA, where the"
    " file says that a GPU will be used; also any release before 2.14, because these have no such extra",
    "devices_hidden": "`CUDA_VISIBLE_DEVICES` in a Dockerfile or a compose file, with a value that hides"
    " every GPU, such as `-1` or an empty one",
    "known_issue": "versions that are known to break each other, such as NumPy 2 with an older TensorFlow",
}


def fix(code: Rule, version: str, python: Stated | None, *, from_image: bool) -> str:
    """Return what to do about a finding, as sentences; nothing where its message says it.

    version: the TensorFlow release, empty if it is not known. from_image: True if a base image is to blame.
    """
    release = release_of_any_age(version) if version else releases.newest()
    if release is None:
        return ""
    if code in ("cuda_of_another_version", "cudnn_of_another_major", "cudnn_older_than_built"):
        return _libraries(release, from_image)
    if code == "python_without_wheel":
        return _python(release, python)
    if code == "cuda_libraries_not_installed" and version and not has_extra(release):
        other = _suggested(python) if python else release
        instead = f", or require {requirement(other)}, which brings its own" if has_extra(other) else ""
        return f"Use a base image with CUDA {release.cuda} and cuDNN {release.cudnn}{instead}."
    if code in ("cpu_package", "cuda_libraries_not_installed", "package_removed"):
        if not version:
            release = _suggested(python)
        return f"Require {requirement(release)}." + ("" if has_extra(release) else f" {_system(release)}")
    if code == "devices_hidden":
        return (
            "Leave the variable out. Choose the GPUs when you start the container, such as with"
            " docker run --gpus."
        )
    if code == "mixed_frameworks":
        return "Install each framework in an environment of its own."
    # The message of a known combination says what to do, and that of a missing release which ones exist.
    return ""


def _suggested(python: Stated | None) -> Release:
    """Return the newest release that finds the libraries in NVIDIA's wheels, with a Python that fits."""
    allowed = markers.pythons(python.value) if python else ()
    chosen = newest_that_works(Host(system=LINUX, machine=X86_64), allowed[-1] if allowed else None)
    return chosen.release if chosen else releases.newest()


def _libraries(release: Release, from_image: bool) -> str:
    measured = builds.build(release.version)
    cudnn = (measured.cudnn if measured else None) or release.cudnn
    parts = []
    if from_image:
        parts.append(f"Use a base image with CUDA {release.cuda} and cuDNN {cudnn}.")
    elif release.wheels:
        major, minor = leading_numbers(cudnn)[:2]
        pin = f"nvidia-cudnn-{release.suffix}>={major}.{minor},<{major + 1}"
        parts.append(f"Leave out NVIDIA's wheels, or use those of {release.suffix}, such as {pin}.")
    else:
        parts.append(_system(release))
    if has_extra(release):
        parts.append(f"{requirement(release)} brings the libraries itself.")
    return " ".join(parts)


def _python(release: Release, python: Stated | None) -> str:
    pythons = release.pythons
    several = f"{pythons[0]} to {pythons[-1]}" if len(pythons) > 2 else " or ".join(pythons)
    own = f"Use Python {several}"
    wanted = markers.pythons(python.value) if python else ()
    fitting = [
        one
        for one in releases.releases()
        if not one.prerelease and any(minor in one.pythons for minor in wanted)
    ]
    if not fitting:
        return f"{own}."
    other = fitting[-1]
    minor = [one for one in wanted if one in other.pythons][-1]
    return f"{own}, or tensorflow=={other.version}, which has a wheel for Python {minor}."


def _system(release: Release) -> str:
    return f"Install CUDA {release.cuda} and cuDNN {release.cudnn} on the system."
