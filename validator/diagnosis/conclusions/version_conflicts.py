"""CUDA, cuDNN, driver and system against the release in use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...compat.older import oldest_driver, release_of_any_age
from ...compat.releases import Release
from ...versions import CudaVersion, DriverRelease, leading_numbers
from ..observations import Observation, Observations, normalized, on_windows, release

#: The first release whose wheels for native Windows have no CUDA (install guide, "Windows native").
_NO_WINDOWS_CUDA = (2, 11)
#: The first release with wheels for macOS that have no CUDA.
_NO_MACOS_CUDA = (1, 2)
#: Source files that were moved in 2.12, as its log lines name them.
_BEFORE_2_12 = re.compile(r"\btensorflow/stream_executor/")
#: Releases of the official GPU images whose TensorFlow can't open their cuDNN.
_IMAGES_FROM, _IMAGES_BEFORE = (2, 18), (2, 22)


def systems(observations: Observations) -> None:
    """Add systems and processors whose wheels have no CUDA in some or all releases, and Kubernetes."""
    windows, macos = on_windows(observations), observations.with_value("os", "name", "macos")
    if windows is not None:
        observations.conclude("on_windows", {}, windows)
    elif macos is not None:
        observations.conclude("macos", {}, macos)
    arm = next(
        (
            one
            for one in observations.of("machine")
            if one.values.get("name", "").lower() in ("aarch64", "arm64")
        ),
        None,
    )
    if arm is not None and windows is None and macos is None:
        observations.conclude("linux_on_arm", {}, arm)
    kubernetes = observations.with_value("container", "kind", "kubernetes")
    if kubernetes is not None:
        observations.conclude("kubernetes", {}, kubernetes)


def platform(observations: Observations) -> None:
    """Add native Windows from 2.11 on, and macOS, for which no wheel with CUDA exists."""
    found = release(observations)
    if found is None:
        return
    version, stated = found
    windows, macos = on_windows(observations), observations.with_value("os", "name", "macos")
    if windows is not None and leading_numbers(version) >= _NO_WINDOWS_CUDA:
        observations.conclude("windows_without_cuda_build", {"tensorflow": version}, windows, stated)
    if macos is not None and windows is None and leading_numbers(version) >= _NO_MACOS_CUDA:
        observations.conclude("macos_without_cuda_build", {"tensorflow": version}, macos, stated)


def _release_and_build(observations: Observations) -> tuple[str, Observation, Release] | None:
    """Return the release in use, the observation of it, and its build; None if one of them is not known."""
    found = release(observations)
    build = release_of_any_age(found[0]) if found else None
    return (*found, build) if found and build else None


def cuda_of_another_version(observations: Observations) -> None:
    """Add a toolkit or cuDNN on the system that is not the one that the release opens."""
    found = _release_and_build(observations)
    if found is None:
        return
    version, stated, build = found
    for one in _with_version(observations, "cuda"):
        if not _has_libraries_of(build.cuda, one.values["version"]):
            values = {"tensorflow": version, "found": one.values["version"], "needed": build.cuda}
            observations.conclude("cuda_of_another_version", values, one, stated)
    for one in _with_version(observations, "cudnn"):
        needed, present = leading_numbers(build.cudnn), leading_numbers(one.values["version"])
        values = {"tensorflow": version, "found": one.values["version"], "needed": build.cudnn}
        if present[0] != needed[0]:
            observations.conclude("cudnn_of_another_major", values, one, stated)
        elif len(present) > 1 and present[:2] < needed[:2]:
            observations.conclude("cudnn_older_than_built", values, one, stated)


def _with_version(observations: Observations, kind: str) -> Iterator[Observation]:
    return (one for one in observations.of(kind) if leading_numbers(one.values["version"]))


def _has_libraries_of(needed: str, found: str) -> bool:
    """Return whether a toolkit has the libraries that a release opens.

    Their names hold the major and the minor version up to CUDA 10, and only the major version from 11 on.
    """
    wanted, present = leading_numbers(needed), leading_numbers(found)
    if wanted[0] >= 11 or len(present) < 2:
        return wanted[0] == present[0]
    return wanted[:2] == present[:2]


def requested_cudart(observations: Observations) -> str:
    """Return the CUDA (`10.1`, `11.0`) whose runtime library was not found, or an empty text."""
    for one in observations.of("cuda_library_not_loaded"):
        match = re.fullmatch(
            r"cudart64_(\d+)(\d)\.dll|libcudart\.so\.(\d+)(?:\.(\d+))?", one.values.get("library", "")
        )
        if match:
            return f"{match[1] or match[3]}.{match[2] or match[4] or 0}"
    return ""


def toolkit_of_another_version(observations: Observations) -> None:
    """Add a toolkit of another version than the runtime library that was not found."""
    requested = requested_cudart(observations)
    if not requested:
        return
    missing = observations.of("cuda_library_not_loaded")[0]
    for one in _with_version(observations, "cuda"):
        if not _has_libraries_of(requested, one.values["version"]):
            values = {
                "library": missing.values["library"],
                "found": one.values["version"],
                "asked": requested,
            }
            observations.conclude("toolkit_of_another_version", values, missing, one)


def driver_too_old_for_cuda(observations: Observations) -> None:
    """Add a driver that is too old for the CUDA of the release, a toolkit or an image."""
    driver = observations.first("driver")
    if driver is None:
        return
    found = _release_and_build(observations)
    windows = on_windows(observations) is not None
    in_use = [(found[2].cuda, found[1])] if found else []
    in_use += [(one.values["version"], one) for one in _with_version(observations, "cuda")]
    for cuda, stated in in_use:
        oldest = _oldest_driver(cuda, windows)
        if oldest is not None and _is_older_driver(driver.values["version"], oldest):
            values = {"driver": driver.values["version"], "cuda": cuda, "needed": str(oldest)}
            observations.conclude("driver_below_floor", values, driver, stated)
            return


def _oldest_driver(cuda: str, windows: bool) -> DriverRelease | None:
    major, *minor = leading_numbers(cuda)
    floor = oldest_driver(CudaVersion(major, minor[0] if minor else 0), windows)
    return floor.driver if floor else None


def _is_older_driver(driver: str, other: DriverRelease) -> bool:
    """Return whether a driver release is older than another. A bare branch stands for its newest release."""
    try:
        return DriverRelease.parse(driver) < other
    except ValueError:
        return False


def cudnn_package(observations: Observations) -> None:
    """Add an installed cuDNN wheel that is older than the cuDNN that TensorFlow was built with."""
    found = _release_and_build(observations)
    if found is None:
        return
    version, stated, build = found
    needed = leading_numbers(build.cudnn)
    for one in observations.of("package"):
        if normalized(one.values["name"]) not in ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "cudnn"):
            continue
        present = leading_numbers(one.values["version"])
        if present and present[:2] < needed[:2]:
            values = {"tensorflow": version, "found": one.values["version"], "needed": build.cudnn}
            kind = "cudnn_older_than_built" if present[0] == needed[0] else "cudnn_of_another_major"
            observations.conclude(kind, values, one, stated)


def age(observations: Observations) -> None:
    """Add that log lines come from a release before 2.12, if the release is not known."""
    old = next((one for one in observations if _BEFORE_2_12.search(one.text)), None)
    if old is not None and release(observations) is None:
        observations.conclude("before_2_12", {}, old)


def official_image(observations: Observations) -> None:
    """Add official GPU images whose TensorFlow can't open their cuDNN (tensorflow/tensorflow issue 94593).

    `latest` is an older image if another release is stated or the log comes from before 2.12. Tags that
    name Python 2 or 3 ended with 2.1.
    """
    stated = release(observations)
    newest = stated is None or leading_numbers(stated[0]) >= _IMAGES_FROM
    newest = newest and not observations.has("before_2_12")
    for one in observations.of("image"):
        name = one.values.get("name", "")
        match = re.search(r"tensorflow/tensorflow:(\d[\w.]*|latest|nightly)[\w.-]*-gpu", name)
        if match is None:
            continue
        moving = match[1] in ("latest", "nightly") and "-py" not in name
        if (moving and newest) or _IMAGES_FROM <= leading_numbers(match[1]) < _IMAGES_BEFORE:
            observations.conclude("official_image", {"image": name}, one)


RULES = (
    systems,
    platform,
    cuda_of_another_version,
    toolkit_of_another_version,
    driver_too_old_for_cuda,
    cudnn_package,
    age,
    official_image,
)
