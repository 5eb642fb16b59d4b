"""GPUs that are hidden, or missing without a message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...compat import gpus, kernels, releases
from ...compat.errors import UnknownGpu
from ...compat.known_issues import trait_holds
from ...compat.older_releases import release_of_any_age
from ...compat.visible_devices import why_hidden
from ...model.prediction import Outcome
from ...versions import ComputeCapability, leading_numbers
from ..cuda_errors import CUDA_ERROR, CUINIT
from ..observations import Observation, Observations, release

#: The first compute capability that the newest wheels have kernels for (2.17 dropped 5.x).
_OLDEST = ComputeCapability(6, 0)
#: A driver branch that compiles every PTX.
_ANY_DRIVER = 9999


def empty_list(observations: Observations) -> None:
    """Add an empty list on its own line, after a question for GPUs or the start of TensorFlow."""
    if observations.has("gpu_list_empty"):
        return
    empty = observations.first("empty_list")
    before = (observations.first(kind) for kind in ("gpu_list_asked", "factory_notice", "cpu_feature_notice"))
    asked = next((one for one in before if one is not None), None)
    if asked is not None and empty is not None and not observations.has("gpu_list"):
        observations.conclude("gpu_list_empty", {}, asked, empty)


def visible_devices(observations: Observations) -> None:
    """Add values of CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES that hide GPUs.

    Source: CUDA programming guide, environment variables.
    """
    count = max(
        (int(one.values["count"]) for one in observations.of("gpu_count") if _is_small_count(one)),
        default=None,
    )
    for one in observations.of("variable"):
        name, value = one.values.get("name"), one.values.get("value", "").strip("'\" ")
        if name == "NVIDIA_VISIBLE_DEVICES":
            reason = "no device" if value in ("void", "none") else None
        elif name == "CUDA_VISIBLE_DEVICES":
            reason = _why_hidden(value, count)
        else:
            continue
        if reason:
            observations.conclude("devices_hidden", {"name": name, "value": value, "why": reason}, one)


def _is_small_count(one: Observation) -> bool:
    return one.values.get("count", "").isdecimal() and len(one.values["count"]) < 4


def _why_hidden(value: str, count: int | None) -> str | None:
    """Return why a value of CUDA_VISIBLE_DEVICES hides GPUs on a machine with so many, or None."""
    first = value.split(",")[0].strip()
    if count and re.fullmatch(r"\d{1,9}", first) and int(first) >= count:
        return f"there is no GPU {int(first)}: the machine has only {count}, numbered from 0"
    return why_hidden(value)


def capability(observations: Observations) -> str | None:
    """Return the compute capability of the GPU, stated or known by its model; None where GPUs differ."""
    found = {value for _, value in _gpu_capabilities(observations)}
    found |= {
        one.values["cc"] for one in observations.of("compute_capability_ignored") if one.values.get("cc")
    }
    return found.pop() if len(found) == 1 else None


def newest_release_for(capability: str) -> str | None:
    """Return the newest stable release whose wheel has machine code for a GPU that today's wheels dropped.

    Return None for other GPUs, and if no such release is known.
    """
    try:
        wanted = ComputeCapability.parse(capability)
    except ValueError:
        return None
    if wanted >= _OLDEST:
        return None
    for known in reversed(releases.releases()):
        works = kernels.run_on(known.version, wanted, _ANY_DRIVER).outcome is Outcome.WORKS
        if works and not known.prerelease:
            return known.version
    return None


def _gpu_capabilities(observations: Observations) -> Iterator[tuple[Observation, str]]:
    for one in observations.of("compute_capability"):
        if leading_numbers(one.values.get("value", "")):
            yield one, one.values["value"]
    for one in observations.of("gpu"):
        try:
            yield one, str(gpus.gpu(one.values["name"]).compute_capability)
        except UnknownGpu:
            continue


def gpu_newer_than_cuda(observations: Observations) -> None:
    """Add a GPU that is newer than the CUDA of an old release, such as an RTX 3090 with TensorFlow 1.15."""
    found = release(observations)
    build = release_of_any_age(found[0]) if found else None
    if found is None or build is None:
        return
    for one, value in _gpu_capabilities(observations):
        if trait_holds("cuda-older-than-ampere", tensorflow=found[0], capability=value):
            values = {"tensorflow": found[0], "built_with": build.cuda, "newer": value}
            observations.conclude("gpu_newer_than_cuda", values, one, found[1])
            return


def driver_parts(observations: Observations) -> None:
    """Add a driver library and a kernel module whose versions differ."""
    kernel = observations.first("kernel_driver_version")
    for kind in ("libcuda_version", "nvml_library_version"):
        library = observations.first(kind)
        if kernel is None or library is None:
            continue
        versions = {"kernel": kernel.values.get("version", ""), "library": library.values.get("version", "")}
        # Versions are written with and without leading zeros: 470.57.2 and 470.57.02.
        numbers = {leading_numbers(version) for version in versions.values()}
        if len(numbers) == 2 and () not in numbers and len({len(parts) for parts in numbers}) == 1:
            observations.conclude("driver_versions_differ", versions, library, kernel)


def compat_library(observations: Observations) -> None:
    """Add a directory of cuda-compat on the loader's path."""
    for one in observations.of("variable"):
        if one.values.get("name") == "LD_LIBRARY_PATH":
            directories = one.values.get("value", "").split(":")
            compat = [path for path in directories if re.search(r"cuda[^/]*/compat/?$", path)]
            if compat:
                observations.conclude("compat_library_on_path", {"path": compat[0]}, one)


#: Other kinds than errors of cuInit that say why there is no GPU.
_REASONS = (
    "gpu_libraries_not_opened",
    "libcuda_not_loaded",
    "cudart_not_opened",
    "cuda_library_not_loaded",
    "kernel_module_not_running",
    "compute_capability_ignored",
    "gpu_cores_ignored",
)


def no_reason_given(observations: Observations) -> None:
    """Add that a build with CUDA found no GPU and printed no reason, as from 2.13 to 2.17 without libcuda.

    Only a build with CUDA registers its factories twice, which it reports (2.14 to 2.20). From 2.18 on, a
    failed call to cuInit is always printed.
    """
    empty = observations.first("gpu_list_empty") or observations.first("device_not_registered")
    factory = observations.first("factory_notice")
    found = release(observations)
    if empty is None or factory is None or any(observations.has(kind) for kind in _REASONS):
        return
    if observations.with_value(CUDA_ERROR, "place", CUINIT) is not None:
        return
    if found is None or (2, 13) <= leading_numbers(found[0]) < (2, 18):
        observations.conclude("no_gpu_without_a_reason", {}, empty, factory)


RULES = (
    empty_list,
    visible_devices,
    gpu_newer_than_cuda,
    driver_parts,
    compat_library,
    no_reason_given,
)
