"""What is wrong with the value of an environment variable, where a list of values can't say it.

Each rule yields the problems of one value, judged by the facts. A problem is a `fault` when it breaks
something here, and a `notice` when it would elsewhere, or costs something, or hides what happens.
"""

import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import flags
from .check import gpu_count
from .collectors import copies
from .collectors.kernels import JIT, coverage

FAULT, NOTICE = "fault", "notice"
Facts = Dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """problem: a stable name. wrong: one sentence."""

    problem: str
    severity: str
    wrong: str


#: What `cuInit` returns where a cuda-compat library and the machine do not fit (CUDA Driver API).
_COMPAT_ERRORS = (803, 804)
_KERAS_BACKENDS = {"tensorflow": None, "jax": "jax", "torch": "torch", "numpy": None, "openvino": "openvino"}


def visible_devices(value: str, facts: Facts) -> Iterator[Problem]:
    """CUDA takes the entries up to the first one that it does not know, and hides the rest (CUDA C++
    Programming Guide, CUDA environment variables)."""
    severity = FAULT if gpu_count(facts) else NOTICE
    entries = [entry.strip() for entry in value.split(",")]
    invalid = next((index for index, entry in enumerate(entries) if not _names_gpu(entry, facts)), None)
    if invalid == 0:
        what = "is empty" if not value.strip() else f"begins with {entries[0]!r}, which names no GPU"
        effect = (
            "CUDA offers no GPU at all"
            if severity == FAULT
            else "on a machine with a GPU, CUDA would offer none"
        )
        yield Problem("visible_devices_hides_all_gpus", severity, f"it {what}: {effect}")
    elif invalid is not None:
        hidden = entries[invalid + 1 :]
        behind = f", nor any after it ({', '.join(hidden)})" if hidden else ""
        yield Problem(
            "visible_devices_hides_gpus",
            severity if hidden else NOTICE,
            f"{entries[invalid]!r} names no GPU: CUDA does not offer it{behind}",
        )


def _names_gpu(entry: str, facts: Facts) -> bool:
    """Whether CUDA takes the entry for a GPU; where how many there are is not known, whether it could."""
    known = facts["host"]["gpus"] if facts["host"]["driver_libraries"]["nvml"]["answered"] else None
    if re.fullmatch(r"\d+", entry):
        return known is None or int(entry) < len(known)
    if entry.startswith("GPU-"):
        return known is None or any((gpu["uuid"] or "").startswith(entry) for gpu in known)
    return entry.startswith("MIG-")


def container_devices(value: str, facts: Facts) -> Iterator[Problem]:
    """`none` mounts the driver's libraries without a GPU, `void` or nothing at all (NVIDIA Container
    Toolkit, specialized configurations)."""
    if value in ("", "void", "none") and facts["host"]["container"]:
        brings = "the driver's libraries, but no GPU" if value == "none" else "neither driver nor GPU"
        # The kernel's side shows through into every container.
        lost = facts["host"]["kernel_driver"] is not None and not gpu_count(facts)
        yield Problem(
            "container_without_gpu",
            FAULT if lost else NOTICE,
            f"the container runtime brings {brings} into the container; `all` brings every GPU",
        )


def driver_capabilities(value: str, facts: Facts) -> Iterator[Problem]:
    """Without `compute`, libcuda.so.1 is not mounted: nvidia-smi works, and CUDA does not."""
    if not {"compute", "all"} & set(re.split(r"[,\s]+", value)):
        there = facts["host"]["kernel_driver"] is not None or gpu_count(facts)
        lost = there and facts["host"]["driver_libraries"]["cuda"]["path"] is None
        yield Problem(
            "driver_capabilities_without_compute",
            FAULT if lost else NOTICE,
            "without `compute` the container runtime does not mount libcuda.so.1, and CUDA finds no driver",
        )


def requirement_disabled(value: str, facts: Facts) -> Iterator[Problem]:
    """The container runtime reads it as a boolean."""
    if value.lower() in ("1", "true"):
        yield Problem(
            "driver_requirement_disabled",
            NOTICE,
            "a driver that is too old for this image is not refused at the start, and fails later",
        )


def ptx_jit_forced(value: str, facts: Facts) -> Iterator[Problem]:
    """PTX is in the wheel for its newest compute capability only, which older GPUs can't run."""
    if value != "1":
        return
    stranded = [gpu for gpu, found in _coverage(facts) if found and not found.has_ptx]
    if stranded:
        yield Problem("ptx_jit_forced", FAULT, f"the wheel has no PTX for {_named(stranded)}")
    else:
        yield Problem("ptx_jit_forced", NOTICE, "all kernels are compiled from PTX, which takes long")


def ptx_jit_disabled(value: str, facts: Facts) -> Iterator[Problem]:
    """Kernels that the wheel holds as PTX alone can't run then."""
    if value != "1":
        return
    stranded = [gpu for gpu, found in _coverage(facts) if found and found.kernels == JIT]
    severity, what = (FAULT, _named(stranded)) if stranded else (NOTICE, "newer GPUs")
    yield Problem("ptx_jit_disabled", severity, f"kernels that the wheel has as PTX only can't run on {what}")


def _coverage(facts: Facts) -> List[Tuple[Dict[str, Any], Any]]:
    tensorflow = facts["tensorflow"]
    if tensorflow is None:
        return []
    return [
        (gpu, coverage(tensorflow["version"], tensorflow["build"], gpu["compute_capability"]))
        for gpu in facts["host"]["gpus"]
        if gpu["compute_capability"]
    ]


def _named(gpus: List[Dict[str, Any]]) -> str:
    return ", ".join(sorted({f"{gpu['name']} ({gpu['compute_capability']})" for gpu in gpus}))


def min_multiprocessors(value: str, facts: Facts) -> Iterator[Problem]:
    """GPUs with fewer are left out (gpu_device.cc, GetMinGPUMultiprocessorCount)."""
    if not re.fullmatch(r"-?\d+", value.strip()):
        yield Problem("min_multiprocessors_unread", NOTICE, "it is no number, and the default stays")
        return
    offered = facts["host"]["driver_libraries"]["cuda"].get("gpus") or []
    hidden = [gpu["name"] for gpu in offered if (gpu.get("multiprocessors") or 0) < int(value)]
    if hidden:
        yield Problem("min_multiprocessors_hides_gpus", FAULT, f"TensorFlow leaves out {', '.join(hidden)}")


def number(value: str, facts: Facts) -> Iterator[Problem]:
    """For variables that are read as whole numbers."""
    if not re.fullmatch(r"[+-]?\d+", value.strip()):
        yield Problem("number_unread", NOTICE, "it is no whole number, and the default stays")


def cache_path(value: str, facts: Facts) -> Iterator[Problem]:
    """The driver makes the directory, and goes without a cache where it can't."""
    existing = value
    while existing and not os.path.exists(existing):
        parent = os.path.dirname(existing)
        existing = parent if parent != existing else ""
    if not (os.path.isdir(existing or ".") and os.access(existing or ".", os.W_OK)):
        yield Problem("ptx_cache_unwritable", NOTICE, f"{value} can't be written: nothing is stored")


def log_level(value: str, facts: Facts) -> Iterator[Problem]:
    """Read as a number; a text that is none counts as 0 (tsl/platform/default/logging.cc)."""
    match = re.match(r"\s*(\d+)", value)
    level = int(match[1]) if match else 0
    if level >= 3:
        yield Problem(
            "log_level_hides_errors", NOTICE, "it hides the one line that tells why no GPU is found (cuInit)"
        )
    elif level == 2:
        yield Problem(
            "log_level_hides_warnings", NOTICE, "it hides the warning that names missing CUDA libraries"
        )


def keras_backend(value: str, facts: Facts) -> Iterator[Problem]:
    """Keras 3 reads it at its import, `tf.keras` included; Keras 2 does not."""
    packages = facts["environment"]["packages"]
    if value in ("", "tensorflow") or packages.get("keras", "3").startswith("2."):
        return
    if value not in _KERAS_BACKENDS:
        yield Problem(
            "keras_backend_unknown", FAULT, f"Keras has no backend {value!r}, and can't be imported"
        )
        return
    needs = _KERAS_BACKENDS[value]
    if needs is not None and needs not in packages:
        yield Problem(
            "keras_backend_missing", FAULT, f"{needs} is not installed, and Keras can't be imported"
        )
    else:
        yield Problem("keras_backend_other", NOTICE, f"Keras computes with {value}, not with TensorFlow")


def xla_flags(value: str, facts: Facts) -> Iterator[Problem]:
    """Flags of XLA itself."""
    read = flags.parse(value)
    yield from _flag_problems("xla_flags", read, "xla_", facts)
    directory = read.value("xla_gpu_cuda_data_dir")
    if directory is None:
        return
    if not os.path.isdir(directory):
        said = f"--xla_gpu_cuda_data_dir names {directory}, which is no directory; XLA looks elsewhere"
        yield Problem("xla_cuda_data_dir_missing", NOTICE, said)
    elif not os.path.isdir(os.path.join(directory, "nvvm", "libdevice")):
        said = f"--xla_gpu_cuda_data_dir names {directory}, which has no nvvm/libdevice; XLA looks elsewhere"
        yield Problem("xla_cuda_data_dir_without_libdevice", NOTICE, said)


def tf_xla_flags(value: str, facts: Facts) -> Iterator[Problem]:
    """Flags of TensorFlow's bridge to XLA."""
    read = flags.parse(value)
    yield from _flag_problems("tf_xla_flags", read, "tf_xla_", facts)
    level = read.value("tf_xla_auto_jit")
    if level is not None and not re.fullmatch(r"-?\d+|fusible|single-gpu\(-?\d+\)", level):
        yield Problem("tf_xla_auto_jit_unread", FAULT, f"--tf_xla_auto_jit={level} ends the process")
    retired = "tf_xla_enable_xla_devices"
    if (f"--{retired}", None) in read.flags or read.value(retired) == "true":
        said = "the devices XLA_GPU and XLA_CPU that it brings back are retired; use jit_compile=True"
        yield Problem("xla_devices_retired", NOTICE, said)


def _flag_problems(problem: str, read: flags.Flags, prefix: str, facts: Facts) -> Iterator[Problem]:
    if read.missing:
        said = "it does not begin with a dash, and XLA takes it for the name of a file, which is not there"
        yield Problem(f"{problem}_file_name", FAULT, f"{said}; the process ends at XLA's first use")
    elif read.file is not None:
        said = f"it does not begin with a dash: flags are read from the file {read.file!r}"
        yield Problem(f"{problem}_from_file", NOTICE, said)
    tensorflow = facts["tensorflow"]
    names = flags.unknown(read, prefix, tensorflow["directory"] if tensorflow else None)
    if names:
        said = f"this TensorFlow has no flag {', '.join(names)}; the process ends at XLA's first use"
        yield Problem(f"{problem}_unknown_flag", FAULT, said)


def library_path(value: str, facts: Facts) -> Iterator[Problem]:
    """Directories that put another library before the fitting one."""
    directories = copies.library_path({"LD_LIBRARY_PATH": value})
    cuda, there = facts["host"]["driver_libraries"]["cuda"], gpu_count(facts) > 0
    for directory in directories:
        holds_driver = os.path.exists(os.path.join(directory, "libcuda.so.1"))
        parts = os.path.normpath(directory).split(os.sep)
        if holds_driver and "stubs" in parts:
            said = f"{directory} holds a stub in place of libcuda.so.1, which finds no GPU"
            yield Problem("stubs_on_library_path", FAULT if there else NOTICE, said)
        elif holds_driver and "compat" in parts:
            refused = there and cuda.get("code") in _COMPAT_ERRORS
            said = f"{directory} holds a cuda-compat libcuda.so.1, which only data-center GPUs accept"
            yield Problem("compat_on_library_path", FAULT if refused else NOTICE, said)
    yield from _old_cudnn(directories, facts)


def _old_cudnn(directories: List[str], facts: Facts) -> Iterator[Problem]:
    tensorflow = facts["tensorflow"]
    wheels = tensorflow["built_with"] if tensorflow else {}
    floor = next((version for name, version in wheels.items() if name.startswith("nvidia-cudnn-cu")), None)
    if floor is None:
        return
    soname = f"libcudnn.so.{floor.partition('.')[0]}"
    first = next(iter(copies.copies(soname, directories, (), {})), None)
    if first is None or first.found_by != copies.LIBRARY_PATH:
        return
    version = copies.version_of(first.path, soname)
    if version is not None and _minor(version) < _minor(floor):
        said = f"{first.path} comes first: cuDNN {version}, older than the {floor} that it was built with"
        yield Problem("old_cudnn_on_library_path", FAULT, said)


def _minor(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


#: By the name in the table.
RULES: Dict[str, Callable[[str, Facts], Iterator[Problem]]] = {
    function.__name__: function
    for function in (
        cache_path,
        container_devices,
        driver_capabilities,
        keras_backend,
        library_path,
        log_level,
        min_multiprocessors,
        number,
        ptx_jit_disabled,
        ptx_jit_forced,
        requirement_disabled,
        tf_xla_flags,
        visible_devices,
        xla_flags,
    )
}


def problems(row: Dict[str, Any], value: str, facts: Facts) -> Iterator[Problem]:
    """What is wrong with the value of the variable that a row of the table describes."""
    if "accepts" in row and value not in row["accepts"]:
        yield Problem(**row["otherwise"])
    notice: Optional[Dict[str, Any]] = row.get("notice")
    if notice is not None and value in notice["values"]:
        yield Problem(notice["problem"], NOTICE, notice["wrong"])
    if "rule" in row:
        yield from RULES[row["rule"]](value, facts)
