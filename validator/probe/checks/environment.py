"""Does a variable hide the GPU, or break XLA, Keras or the loader?

The table `data/variables.json` lists the variables. A rule is a function for what a list of allowed values
can't express: it yields the problems of one value, judged by the facts. A problem is a fault when it breaks
something here, and an advisory when it would break something elsewhere, costs time or memory, or hides log
lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Callable

from ...problems import ADVISORY, FAULT, problem, statement
from .. import table
from ..check import HOST, Context, Result, check, gpu_count, judged
from ..collectors import installed
from ..collectors.kernels import JIT, Coverage, coverage
from ..collectors.xla import parse, unknown_flags
from .libraries import too_old

#: Characters of a value in the report, and entries of a list.
_VALUE_LIMIT, _ENTRIES = 2000, 200
Facts = dict[str, Any]
Problems = Iterator[dict[str, Any]]

#: Results of `cuInit` where a cuda-compat library doesn't fit the machine (CUDA Driver API).
_COMPAT_ERRORS = (803, 804)
#: The backends of Keras 3, with the package that each needs besides TensorFlow.
_KERAS_BACKENDS = {"tensorflow": None, "jax": "jax", "torch": "torch", "numpy": None, "openvino": "openvino"}


def visible_devices(value: str, facts: Facts) -> Problems:
    """Read the entries as CUDA does: it hides the first one that it doesn't know, and all after it (CUDA C++
    Programming Guide, CUDA environment variables)."""
    known = facts["host"]["gpus"] if facts["host"]["driver_libraries"]["nvml"]["answered"] else None

    def names_gpu(entry: str) -> bool:
        """Return whether the entry names a GPU for CUDA, or could if the GPUs are not known."""
        if re.fullmatch(r"\d+", entry):
            return known is None or int(entry) < len(known)
        if entry.startswith("GPU-"):
            return known is None or any((gpu["uuid"] or "").startswith(entry) for gpu in known)
        return entry.startswith("MIG-")

    severity = FAULT if gpu_count(facts) else ADVISORY
    entries = [entry.strip() for entry in value.split(",")]
    invalid = next((index for index, entry in enumerate(entries) if not names_gpu(entry)), None)
    if invalid == 0:
        yield problem("visible_devices_hides_all_gpus", severity, entry=entries[0] or None)
    elif invalid is not None:
        hidden = entries[invalid + 1 :]
        severity_here = severity if hidden else ADVISORY
        yield problem("visible_devices_hides_gpus", severity_here, entry=entries[invalid], hidden=hidden)


def container_devices(value: str, facts: Facts) -> Problems:
    """Judge the GPUs that a container asks for.

    `none` mounts the driver's libraries without a GPU; `void` or an empty value mounts nothing (NVIDIA
    Container Toolkit, specialized configurations).
    """
    if value in ("", "void", "none") and facts["host"]["container"]:
        # What the kernel module provides is visible in every container.
        lost = facts["host"]["kernel_driver"] is not None and not gpu_count(facts)
        yield problem("container_without_gpu", FAULT if lost else ADVISORY)


def driver_capabilities(value: str, facts: Facts) -> Problems:
    """Expect `compute`: without it libcuda.so.1 is not mounted, so nvidia-smi works and CUDA doesn't."""
    if not {"compute", "all"} & set(re.split(r"[,\s]+", value)):
        there = facts["host"]["kernel_driver"] is not None or gpu_count(facts)
        lost = there and facts["host"]["driver_libraries"]["cuda"]["path"] is None
        yield problem("driver_capabilities_without_compute", FAULT if lost else ADVISORY)


def requirement_disabled(value: str, facts: Facts) -> Problems:
    """Read the value as the container runtime does, as a boolean."""
    if value.lower() in ("1", "true"):
        yield problem("driver_requirement_disabled")


def ptx_jit_forced(value: str, facts: Facts) -> Problems:
    """Find GPUs without PTX: a wheel has it only for its newest compute capability.

    Older GPUs can't run that.
    """
    if value == "1":
        stranded = _gpus(facts, lambda found: not found.has_ptx)
        yield problem("ptx_jit_forced", FAULT if stranded else ADVISORY, gpus=stranded)


def ptx_jit_disabled(value: str, facts: Facts) -> Problems:
    """Find GPUs for which the wheel holds kernels only as PTX."""
    if value == "1":
        stranded = _gpus(facts, lambda found: found.kernels == JIT)
        yield problem("ptx_jit_disabled", FAULT if stranded else ADVISORY, gpus=stranded)


def _gpus(facts: Facts, stranded: Callable[[Coverage], bool]) -> list[dict[str, Any]]:
    """Return the kinds of GPUs that the installed TensorFlow's kernels reach in the given way."""
    named, tensorflow = set(), facts["tensorflow"]
    for gpu in facts["host"]["gpus"] if tensorflow else []:
        if gpu["compute_capability"]:
            found = coverage(tensorflow["version"], tensorflow["build"], gpu["compute_capability"])
            if found and stranded(found):
                named.add((str(gpu["name"]), gpu["compute_capability"]))
    return [{"name": name, "compute_capability": capability} for name, capability in sorted(named)]


def min_multiprocessors(value: str, facts: Facts) -> Problems:
    """Find GPUs with too few multiprocessors for TensorFlow (gpu_device.cc, GetMinGPUMultiprocessorCount)."""
    if not re.fullmatch(r"-?\d+", value.strip()):
        yield problem("min_multiprocessors_unread")
        return
    offered = facts["host"]["driver_libraries"]["cuda"].get("gpus") or []
    hidden = [gpu["name"] for gpu in offered if (gpu.get("multiprocessors") or 0) < int(value)]
    if hidden:
        yield problem("min_multiprocessors_hides_gpus", gpus=hidden)


def number(value: str, facts: Facts) -> Problems:
    """Expect a whole number."""
    if not re.fullmatch(r"[+-]?\d+", value.strip()):
        yield problem("number_unread")


def cache_path(value: str, facts: Facts) -> Problems:
    """Expect a directory that the driver can create; otherwise it uses no cache."""
    existing = value
    while existing and not os.path.exists(existing):
        parent = os.path.dirname(existing)
        existing = parent if parent != existing else ""
    if not (os.path.isdir(existing or ".") and os.access(existing or ".", os.W_OK)):
        yield problem("ptx_cache_unwritable")


def log_level(value: str, facts: Facts) -> Problems:
    """Read a number as TensorFlow does: other text counts as 0 (tsl/platform/default/logging.cc)."""
    match = re.match(r"\s*(\d+)", value)
    level = int(match[1]) if match else 0
    if level >= 3:
        yield problem("log_level_hides_errors")
    elif level == 2:
        yield problem("log_level_hides_warnings")


def keras_backend(value: str, facts: Facts) -> Problems:
    """Judge the backend, which Keras 3 reads when it (or `tf.keras`) is imported; Keras 2 doesn't read it."""
    packages = facts["environment"]["packages"]
    if value in ("", "tensorflow") or packages.get("keras", "3").startswith("2."):
        return
    if value not in _KERAS_BACKENDS:
        yield problem("keras_backend_unknown")
        return
    needs = _KERAS_BACKENDS[value]
    if needs is not None and needs not in packages:
        yield problem("keras_backend_missing", package=needs)
    else:
        yield problem("keras_backend_other")


def xla_flags(value: str, facts: Facts) -> Problems:
    """Judge flags of XLA itself."""
    codes = ("xla_flags_file_name", "xla_flags_from_file", "xla_flags_unknown_flag")
    yield from _flag_problems(codes, value, "xla_", facts)
    directory = parse(value).value("xla_gpu_cuda_data_dir")
    if directory is None:
        return
    if not os.path.isdir(directory):
        yield problem("xla_cuda_data_dir_missing", directory=directory)
    elif not os.path.isdir(os.path.join(directory, "nvvm", "libdevice")):
        yield problem("xla_cuda_data_dir_without_libdevice", directory=directory)


def tf_xla_flags(value: str, facts: Facts) -> Problems:
    """Judge flags of TensorFlow's bridge to XLA."""
    codes = ("tf_xla_flags_file_name", "tf_xla_flags_from_file", "tf_xla_flags_unknown_flag")
    yield from _flag_problems(codes, value, "tf_xla_", facts)
    read = parse(value)
    level = read.value("tf_xla_auto_jit")
    if level is not None and not re.fullmatch(r"-?\d+|fusible|single-gpu\(-?\d+\)", level):
        yield problem("tf_xla_auto_jit_unread", level=level)
    retired = "tf_xla_enable_xla_devices"
    if (f"--{retired}", None) in read.flags or read.value(retired) == "true":
        yield problem("xla_devices_retired")


def _flag_problems(codes: tuple[str, str, str], value: str, prefix: str, facts: Facts) -> Problems:
    """Judge flags. codes: for a missing file, flags from a file, and an unknown flag."""
    missing, from_file, unknown = codes
    read = parse(value)
    if read.missing:
        yield problem(missing)
    elif read.file is not None:
        yield problem(from_file, file=read.file)
    tensorflow = facts["tensorflow"]
    names = unknown_flags(read, prefix, tensorflow["directory"] if tensorflow else None)
    if names:
        yield problem(unknown, flags=names)


def library_path(value: str, facts: Facts) -> Problems:
    """Find directories that put another library before the one that fits."""
    directories = installed.library_path({"LD_LIBRARY_PATH": value})
    cuda, there = facts["host"]["driver_libraries"]["cuda"], gpu_count(facts) > 0
    for directory in directories:
        holds_driver = os.path.exists(os.path.join(directory, "libcuda.so.1"))
        parts = os.path.normpath(directory).split(os.sep)
        if holds_driver and "stubs" in parts:
            yield problem("stubs_on_library_path", FAULT if there else ADVISORY, directory=directory)
        elif holds_driver and "compat" in parts:
            refused = there and cuda.get("code") in _COMPAT_ERRORS
            yield problem("compat_on_library_path", FAULT if refused else ADVISORY, directory=directory)
    wheels = facts["tensorflow"]["built_with"] if facts["tensorflow"] else {}
    floor = next((version for name, version in wheels.items() if name.startswith("nvidia-cudnn-cu")), None)
    if floor is not None:
        soname = f"libcudnn.so.{floor.partition('.')[0]}"
        first = next(iter(installed.copies(soname, directories, (), {})), None)
        if first is not None and first.found_by == installed.LIBRARY_PATH:
            version = installed.version_of(first.path, soname)
            if too_old(version, floor):
                yield problem("old_cudnn_on_library_path", path=first.path, version=version, built_with=floor)


#: The rules, by the name in the table.
RULES: dict[str, Callable[[str, Facts], Problems]] = {
    rule.__name__: rule
    for rule in (
        *(cache_path, container_devices, driver_capabilities, keras_backend, library_path, log_level),
        *(min_multiprocessors, number, ptx_jit_disabled, ptx_jit_forced, requirement_disabled),
        *(tf_xla_flags, visible_devices, xla_flags),
    )
}


def problems(row: dict[str, Any], value: str, facts: Facts) -> Problems:
    """Yield what is wrong with the value of the variable that a row of the table describes."""
    if "accepts" in row and value not in row["accepts"]:
        yield problem(row["otherwise"])
    notice: dict[str, Any] | None = row.get("notice")
    if notice is not None and value in notice["values"]:
        yield problem(notice["code"])
    if "rule" in row:
        yield from RULES[row["rule"]](value, facts)


@check("Does a variable hide the GPU, or break XLA, Keras or the loader?", HOST, limit_s=60)
def environment(context: Context) -> Result:
    variables = context.facts["environment"]["variables"]
    rows = {row["name"]: row for row in table("variables")["variables"]}
    known = {name: value[:_VALUE_LIMIT] for name, value in sorted(variables.items()) if name in rows}
    described = [{"name": name, "value": value, "kind": rows[name]["kind"]} for name, value in known.items()]
    others = sorted(name for name in variables if name not in rows)
    found = [
        {**entry, "variable": name, "value": value}
        for name, value in known.items()
        for entry in problems(rows[name], variables[name], context.facts)
    ]
    passed = statement("variables_harmless", count=len(known)) if known else statement("variables_unset")
    return judged(found, passed, {"variables": described[:_ENTRIES], "others": others[:_ENTRIES]})
