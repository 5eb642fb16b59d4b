"""The system, and signs of the age of a release and of its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...compat.known_issues import trait_holds
from ...versions import leading_numbers
from ..observations import Observation, Observations, on_windows, release

#: Source files that were moved in 2.12, as its log lines name them.
_BEFORE_2_12 = re.compile(r"\btensorflow/stream_executor/")


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
    newest = stated is None or trait_holds("official-image-cudnn", tensorflow=stated[0])
    newest = newest and not observations.has("before_2_12")
    for one in observations.of("image"):
        name = one.values.get("name", "")
        match = re.search(r"tensorflow/tensorflow:(\d[\w.]*|latest|nightly)[\w.-]*-gpu", name)
        if match is None:
            continue
        moving = match[1] in ("latest", "nightly") and "-py" not in name
        if (moving and newest) or trait_holds("official-image-cudnn", tensorflow=match[1]):
            observations.conclude("official_image", {"image": name}, one)


RULES = (
    systems,
    toolkit_of_another_version,
    age,
    official_image,
)
