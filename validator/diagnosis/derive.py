"""What follows from several things that were seen: versions that don't fit one another, hidden devices.

Each rule adds an observation of its own kind, which the list of causes may name as a sign. None of them names
a cause: that numbers don't fit is a fact, what it means here is for the causes to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..compat import gpus
from ..compat.unknown import UnknownGpu
from .builds import build, driver_below, driver_floor, number
from .observations import Observation, Observations

#: The first release whose wheels for native Windows have no CUDA (install guide, "Windows native").
_NO_WINDOWS_CUDA = (2, 11)
#: The first release that was built for NumPy 2, with Keras 3.
_NUMPY_2, _KERAS_3 = (2, 18), (2, 16)
#: More GPUs than any one machine shows; an index from here on is wrong wherever it is set.
_MANY_GPUS = 64


def derive(observations: Observations) -> None:
    """Add what follows."""
    for rule in (
        _empty_list,
        _platform,
        _cuda_of_another_version,
        _driver_too_old_for_cuda,
        _cudnn_package,
        _python,
        _python_packages,
        _tensorflow_packages,
        _visible_devices,
        _capabilities,
        _memory_in_use,
        _driver_parts,
        _keras_backend,
        _utilisation,
        _official_image,
        _no_reason_given,
    ):
        rule(observations)


def _empty_list(observations: Observations) -> None:
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


def tensorflow(observations: Observations) -> Observation | None:
    """What tells the release in use: a version said outright, else that of the installed package."""
    said = observations.first("tensorflow")
    if said is not None and said.values.get("version"):
        return said
    packages = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
    return next((package for name in packages if (package := _package(observations, name)) is not None), None)


def _package(observations: Observations, name: str) -> Observation | None:
    return next(
        (seen for seen in observations.of("package") if _normalized(seen.values["name"]) == name), None
    )


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(observations: Observations) -> tuple[str, Observation] | None:
    seen = tensorflow(observations)
    return (seen.values["version"], seen) if seen is not None and number(seen.values["version"]) else None


def _on_windows(observations: Observations) -> Observation | None:
    if observations.has("wsl") or observations.has("container"):
        return None
    return next((seen for seen in observations.of("os") if seen.values.get("name") == "windows"), None)


def _platform(observations: Observations) -> None:
    """Native Windows from 2.11 on, and macOS: no wheel with CUDA exists."""
    found = _release(observations)
    if found is None:
        return
    version, said = found
    windows = _on_windows(observations)
    if windows is not None and number(version) >= _NO_WINDOWS_CUDA:
        observations.derive("windows_without_cuda_build", {"tensorflow": version}, windows, said)
    macos = next((seen for seen in observations.of("os") if seen.values.get("name") == "macos"), None)
    if macos is not None and number(version) >= (1, 2) and windows is None:
        observations.derive("macos_without_cuda_build", {"tensorflow": version}, macos, said)


def _cuda_of_another_version(observations: Observations) -> None:
    """A toolkit or cuDNN on the system that is not the one that this release opens."""
    found = _release(observations)
    needed = build(found[0]) if found else None
    if found is None or needed is None:
        return
    version, said = found
    for seen in observations.of("cuda"):
        if number(seen.values["version"]) and not _fits_cuda(needed.cuda, seen.values["version"]):
            values = {"tensorflow": version, "found": seen.values["version"], "needed": needed.cuda}
            observations.derive("cuda_of_another_version", values, seen, said)
    for seen in observations.of("cudnn"):
        wanted, there = number(needed.cudnn), number(seen.values["version"])
        if not there:
            continue
        values = {"tensorflow": version, "found": seen.values["version"], "needed": needed.cudnn}
        if there[0] != wanted[0]:
            observations.derive("cudnn_of_another_major", values, seen, said)
        elif len(there) > 1 and there[:2] < wanted[:2]:
            observations.derive("cudnn_older_than_built", values, seen, said)


def _fits_cuda(needed: str, found: str) -> bool:
    """Whether a toolkit has the libraries that a release opens: their names hold major and minor version
    up to CUDA 10, and the major alone from 11 on."""
    wanted, there = number(needed), number(found)
    if wanted[0] >= 11 or len(there) < 2:
        return wanted[0] == there[0]
    return wanted[:2] == there[:2]


def _driver_too_old_for_cuda(observations: Observations) -> None:
    """A driver below the floor of the CUDA in use: the release's own, or that of a toolkit or an image."""
    found = _release(observations)
    needed = build(found[0]) if found else None
    driver = observations.first("driver")
    if driver is None:
        return
    windows = _on_windows(observations) is not None
    wanted: list[tuple[str, Observation]] = []
    if found is not None and needed is not None:
        wanted.append((needed.cuda, found[1]))
    wanted += [
        (seen.values["version"], seen) for seen in observations.of("cuda") if number(seen.values["version"])
    ]
    for cuda, said in wanted:
        floor = driver_floor(cuda, windows)
        if floor is not None and driver_below(driver.values["version"], floor):
            values = {"driver": driver.values["version"], "cuda": cuda, "needed": floor}
            observations.derive("driver_below_floor", values, driver, said)
            return


def _cudnn_package(observations: Observations) -> None:
    """The installed cuDNN wheel against the one that TensorFlow was built with."""
    found = _release(observations)
    needed = build(found[0]) if found else None
    if found is None or needed is None:
        return
    for seen in observations.of("package"):
        if _normalized(seen.values["name"]) not in ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "cudnn"):
            continue
        there, wanted = number(seen.values["version"]), number(needed.cudnn)
        if there and there[:2] < wanted[:2]:
            values = {"tensorflow": found[0], "found": seen.values["version"], "needed": needed.cudnn}
            observations.derive(
                "cudnn_older_than_built" if there[0] == wanted[0] else "cudnn_of_another_major",
                values,
                seen,
                found[1],
            )


def _python(observations: Observations) -> None:
    """A Python for which the release has no wheel."""
    found = _release(observations)
    wanted = observations.value("pip_requested", "version")
    version = wanted or (found[0] if found else None)
    python = observations.first("python")
    needed = build(version) if version else None
    if python is None or needed is None or version is None:
        return
    minor = ".".join(str(part) for part in number(python.values["version"])[:2])
    if minor.count(".") == 1 and minor not in needed.pythons:
        values = {
            "tensorflow": version,
            "python": minor,
            "pythons": f"{needed.pythons[0]} to {needed.pythons[-1]}",
        }
        observations.derive("python_without_wheel", values, python)


def _python_packages(observations: Observations) -> None:
    """NumPy 2 under a build for NumPy 1, Keras 3 under a release for Keras 2, protobuf over its bound."""
    found = _release(observations)
    if found is None:
        return
    version, said = found
    numpy, keras, protobuf = (_package(observations, name) for name in ("numpy", "keras", "protobuf"))
    if numpy is not None and number(numpy.values["version"])[:1] >= (2,) and number(version) < _NUMPY_2:
        values = {"tensorflow": version, "numpy": numpy.values["version"]}
        observations.derive("numpy_2_under_numpy_1_build", values, numpy, said)
    if keras is not None and number(keras.values["version"])[:1] >= (3,) and number(version) < _KERAS_3:
        values = {"tensorflow": version, "keras": keras.values["version"]}
        observations.derive("keras_3_under_keras_2_release", values, keras, said)
    if protobuf is not None and number(protobuf.values["version"])[:1] >= (4,) and number(version) < (2, 12):
        values = {"tensorflow": version, "protobuf": protobuf.values["version"]}
        observations.derive("protobuf_over_bound", values, protobuf, said)


def _tensorflow_packages(observations: Observations) -> None:
    """Builds without CUDA, and several distributions that install the same package over one another."""
    installed: dict[str, Observation] = {}
    for seen in observations.of("package"):
        name = _normalized(seen.values["name"])
        if name in (
            "tensorflow",
            "tensorflow-gpu",
            "tensorflow-cpu",
            "tensorflow-intel",
            "tf-nightly",
            "tf-nightly-cpu",
        ):
            installed.setdefault(name, seen)
        if name in ("tensorflow", "tensorflow-base") and re.match(
            r"(eigen|mkl|cpu)_", seen.values.get("build", "")
        ):
            observations.derive("build_without_cuda", {"build": seen.values["build"]}, seen)
    for name in ("tensorflow-cpu", "tf-nightly-cpu"):
        if name in installed and len(installed) == 1:
            observations.derive("build_without_cuda", {"build": name}, installed[name])
    # tensorflow and tensorflow-gpu, and tensorflow and tensorflow-intel, belong together.
    several = [name for name in installed if name not in ("tensorflow-gpu", "tensorflow-intel")]
    if len(several) > 1:
        observations.derive(
            "several_tensorflow_packages",
            {"packages": ", ".join(several)},
            *(installed[name] for name in several),
        )


def _visible_devices(observations: Observations) -> None:
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


def _capabilities(observations: Observations) -> None:
    """GPUs that the release, its cuDNN or the driver does not know, by the name of the model."""
    found = _release(observations)
    driver = observations.first("driver")
    cudnn = next(
        (
            seen
            for seen in observations.of("package")
            if _normalized(seen.values["name"]).startswith("nvidia-cudnn")
        ),
        None,
    )
    for seen, capability in _gpu_capabilities(observations):
        values = {"gpu": seen.values.get("name", f"capability {capability}"), "capability": capability}
        if found is not None and number(capability) >= (10, 0) and number(found[0]) < (2, 22):
            observations.derive("gpu_newer_than_build", {**values, "tensorflow": found[0]}, seen, found[1])
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


def _gpu_capabilities(observations: Observations) -> Iterator[tuple[Observation, str]]:
    for seen in observations.of("compute_capability"):
        if number(seen.values.get("value", "")):
            yield seen, seen.values["value"]
    for seen in observations.of("gpu"):
        try:
            yield seen, str(gpus.gpu(seen.values["name"]).compute_capability)
        except UnknownGpu:
            continue


def _memory_in_use(observations: Observations) -> None:
    """Memory that is taken though nothing of one's own runs (a row of nvidia-smi)."""
    for seen in observations.of("gpu_memory"):
        used, total = (seen.values.get(name, "").strip() for name in ("used", "total"))
        if (
            used.isdecimal()
            and total.isdecimal()
            and len(used) < 8
            and int(total)
            and int(used) * 2 > int(total)
        ):
            observations.derive("memory_mostly_used", {"used": used, "total": total}, seen)


def _driver_parts(observations: Observations) -> None:
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


def _no_reason_given(observations: Observations) -> None:
    """A build with CUDA found no GPU and says no reason: from 2.13 to 2.17 a missing libcuda looks so.

    Only such a build registers its factories twice, and prints so (2.14 to 2.20); from 2.18 on the failed
    call to cuInit is printed in every case.
    """
    empty, factory = observations.first("gpu_list_empty"), observations.first("factory_notice")
    found = _release(observations)
    if empty is None or factory is None or any(observations.has(kind) for kind in _REASONS):
        return
    if found is None or (2, 13) <= number(found[0]) < (2, 18):
        observations.derive("no_gpu_without_a_reason", {}, empty, factory)


def _keras_backend(observations: Observations) -> None:
    """Another backend in use than the variable names."""
    wanted = next(
        (seen for seen in observations.of("variable") if seen.values.get("name") == "KERAS_BACKEND"), None
    )
    if wanted is None or not wanted.values.get("value"):
        return
    value = wanted.values["value"].strip("'\"").lower()
    for seen in observations.of("keras_backend"):
        active = next(
            (seen.values[name].lower() for name in ("value", "said", "named") if seen.values.get(name)), ""
        )
        if active and active != value and not (active == "pytorch" and value == "torch"):
            observations.derive("keras_backend_differs", {"active": active, "wanted": value}, seen, wanted)
            return
    if value in ("jax", "torch", "numpy", "openvino", "theano", "cntk"):
        observations.derive("keras_backend_of_another_framework", {"value": value}, wanted)


#: Percent of the GPU's time up to which it is hardly used.
_HARDLY_USED = 30


def _utilisation(observations: Observations) -> None:
    """A low utilisation, told in numbers."""
    for seen in observations.of("gpu_util"):
        percent = seen.values.get("percent", "")
        if percent.isdecimal() and int(percent) <= _HARDLY_USED:
            observations.derive("gpu_hardly_used", {"percent": percent}, seen)


def _official_image(observations: Observations) -> None:
    """The official GPU images whose cuDNN their TensorFlow can't open (tensorflow/tensorflow issue 94593)."""
    for seen in observations.of("image"):
        name = seen.values.get("name", "")
        match = re.search(r"tensorflow/tensorflow:(\d[\w.]*|latest|nightly)[\w.-]*-gpu", name)
        if match and (match[1] in ("latest", "nightly") or (2, 18) <= number(match[1]) < (2, 22)):
            observations.derive("official_image", {"image": name}, seen)
