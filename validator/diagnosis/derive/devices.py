"""GPUs that are hidden, not known, or missing without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...compat import gpus, kernels, releases
from ...compat.unknown import UnknownGpu, UnknownRelease
from ...model.prediction import Outcome
from ...versions import ComputeCapability
from ..builds import number
from ..observations import Observation, Observations, normalized, release

#: More GPUs than any one machine shows; an index from here on is wrong wherever it is set.
_MANY_GPUS = 64
#: The first compute capability that no stable wheel up to 2.21 works on (tensorflow/tensorflow issue 111958).
_BLACKWELL = (10, 0)
#: The first compute capability that the newest wheels have kernels for (2.17 dropped 5.x).
_OLDEST = ComputeCapability(6, 0)
#: A driver branch that compiles every PTX.
_ANY_DRIVER = 9999


def empty_list(observations: Observations) -> None:
    """An empty list on its own line, after someone asked for the GPUs or TensorFlow was started."""
    empty = observations.first("empty_list")
    asked = next(
        (
            observations.first(kind)
            for kind in ("gpu_list_asked", "factory_notice", "cpu_feature_notice")
            if observations.has(kind)
        ),
        None,
    )
    if asked is not None and empty is not None and not observations.has("gpu_list"):
        observations.derive("gpu_list_empty", {}, asked, empty)


def visible_devices(observations: Observations) -> None:
    """What a value of CUDA_VISIBLE_DEVICES hides (CUDA programming guide, environment variables)."""
    count = max(
        (int(seen.values["count"]) for seen in observations.of("gpu_count") if _small(seen)), default=None
    )
    for seen in observations.of("variable"):
        if seen.values.get("name") not in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            continue
        value = seen.values.get("value", "").strip("'\" ")
        name = seen.values["name"]
        if name == "NVIDIA_VISIBLE_DEVICES":
            if value in ("void", "none"):
                observations.derive(
                    "devices_hidden", {"name": name, "value": value, "why": "no device"}, seen
                )
            continue
        why = _hides(value, count)
        if why:
            observations.derive("devices_hidden", {"name": name, "value": value, "why": why}, seen)


def _small(seen: Observation) -> bool:
    return seen.values.get("count", "").isdecimal() and len(seen.values["count"]) < 4


def _hides(value: str, count: int | None) -> str | None:
    first = value.split(",")[0].strip()
    if not first:
        return "an empty value shows no GPU"
    if re.fullmatch(r"-\d+", first):
        return "a negative index shows no GPU"
    if re.fullmatch(r"\d{1,9}", first):
        index = int(first)
        if count is not None and count > 0 and index >= count:
            return f"there is no GPU {index}: they are numbered from 0 to {count - 1}"
        return f"no machine has a GPU {index}" if index >= _MANY_GPUS else None
    if re.match(r"(?i)(GPU|MIG)-|\$|all$", first):
        return None if not re.match(r"(?i)all$", first) else '"all" is no index: it shows no GPU'
    return f'"{first}" is no index and no UUID: it shows no GPU'


def capabilities(observations: Observations) -> None:
    """GPUs that the release, its cuDNN or the driver does not know, by the name of the model."""
    found = release(observations)
    driver = observations.first("driver")
    cudnn = next(
        (
            seen
            for seen in observations.of("package")
            if normalized(seen.values["name"]).startswith("nvidia-cudnn")
        ),
        None,
    )
    for seen, capability in _gpu_capabilities(observations):
        values = {"gpu": seen.values.get("name", f"capability {capability}"), "capability": capability}
        if found is not None and number(capability) >= _BLACKWELL and number(found[0]) < (2, 22):
            observations.derive("gpu_newer_than_build", {**values, "tensorflow": found[0]}, seen, found[1])
        elif found is not None and _without_kernels(found[0], capability):
            observations.derive("gpu_older_than_build", {**values, "tensorflow": found[0]}, seen, found[1])
        if cudnn is not None and number(cudnn.values["version"]) >= (9, 11) and number(capability) < (7, 5):
            observations.derive(
                "cudnn_dropped_gpu", {**values, "cudnn": cudnn.values["version"]}, seen, cudnn
            )
        if (
            driver is not None
            and number(driver.values["version"])[:1] >= (590,)
            and number(capability) < (7, 5)
        ):
            observations.derive(
                "driver_dropped_gpu", {**values, "driver": driver.values["version"]}, seen, driver
            )


def capability(observations: Observations) -> str | None:
    """The compute capability of the GPU, as it was said or as its model has it; None where GPUs differ."""
    said = {value for _, value in _gpu_capabilities(observations)}
    said |= {
        seen.values["cc"] for seen in observations.of("compute_capability_ignored") if seen.values.get("cc")
    }
    return said.pop() if len(said) == 1 else None


def newest_release(capability: str) -> str | None:
    """The newest stable release whose wheel has machine code for a GPU that today's have none for; None for
    other GPUs, and where no release is known to have."""
    try:
        asked = ComputeCapability.parse(capability)
    except ValueError:
        return None
    if asked >= _OLDEST:
        return None
    for known in reversed(releases.releases()):
        works = kernels.run_on(known.version, asked, _ANY_DRIVER).outcome is Outcome.WORKS
        if works and not known.prerelease:
            return known.version
    return None


def _without_kernels(version: str, capability: str) -> bool:
    """Whether the wheel of a release is known to hold no code that the GPU runs, under any driver."""
    try:
        reason = kernels.run_on(version, ComputeCapability.parse(capability), _ANY_DRIVER)
    except (UnknownRelease, ValueError):
        return False
    return reason.outcome is Outcome.FAILS


def _gpu_capabilities(observations: Observations) -> Iterator[tuple[Observation, str]]:
    for seen in observations.of("compute_capability"):
        if number(seen.values.get("value", "")):
            yield seen, seen.values["value"]
    for seen in observations.of("gpu"):
        try:
            yield seen, str(gpus.gpu(seen.values["name"]).compute_capability)
        except UnknownGpu:
            continue


def driver_parts(observations: Observations) -> None:
    """The driver's library and its kernel module, of which TensorFlow and NVIDIA's tools tell one each."""
    kernel = observations.first("kernel_driver_version")
    for kind in ("libcuda_version", "nvml_library_version"):
        library = observations.first(kind)
        if kernel is None or library is None:
            continue
        versions = {"kernel": kernel.values.get("version", ""), "library": library.values.get("version", "")}
        # Written with and without leading zeros: 470.57.2 and 470.57.02.
        numbers = {number(version) for version in versions.values()}
        if len(numbers) == 2 and () not in numbers and len({len(parts) for parts in numbers}) == 1:
            observations.derive("driver_versions_differ", versions, library, kernel)


def compat_library(observations: Observations) -> None:
    """A directory of cuda-compat where the loader looks first."""
    for seen in observations.of("variable"):
        if seen.values.get("name") == "LD_LIBRARY_PATH":
            directories = seen.values.get("value", "").split(":")
            compat = [path for path in directories if re.search(r"cuda[^/]*/compat/?$", path)]
            if compat:
                observations.derive("compat_library_on_path", {"path": compat[0]}, seen)


#: What says why there is no GPU.
_REASONS = (
    "cuinit_failed",
    "gpu_libraries_not_opened",
    "libcuda_not_loaded",
    "cudart_not_opened",
    "cuda_library_not_loaded",
    "kernel_module_not_running",
    "compute_capability_ignored",
    "gpu_cores_ignored",
)


def no_reason_given(observations: Observations) -> None:
    """A build with CUDA found no GPU and says no reason: from 2.13 to 2.17 a missing libcuda looks so.

    Only such a build registers its factories twice, and prints so (2.14 to 2.20); from 2.18 on the failed
    call to cuInit is printed in every case.
    """
    empty = observations.first("gpu_list_empty") or observations.first("device_not_registered")
    factory = observations.first("factory_notice")
    found = release(observations)
    if empty is None or factory is None or any(observations.has(kind) for kind in _REASONS):
        return
    if found is None or (2, 13) <= number(found[0]) < (2, 18):
        observations.derive("no_gpu_without_a_reason", {}, empty, factory)


RULES = (empty_list, visible_devices, capabilities, driver_parts, compat_library, no_reason_given)
