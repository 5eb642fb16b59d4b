"""Does the driver answer, do the GPUs' device files open, are the GPUs healthy, do variables break anything?

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
from .. import installed, table
from ..check import END, HOST, Context, Result, check, gpu_count, judged, skipped
from ..loader import JIT, Coverage, coverage
from ..xla import parse, unknown_flags
from .libraries import too_old

#: CUresult codes (cuda.h): there is no GPU, or the library is only the toolkit's stub.
_NO_DEVICE, _STUB_LIBRARY = 100, 34


@check("Does the NVIDIA driver answer through NVML and CUDA, and do its parts agree?", HOST, limit_s=10)
def driver(context: Context) -> Result:
    """Look for contradictions. A machine with no trace of a driver or GPU has none."""
    host = context.facts["host"]
    nvml, cuda = host["driver_libraries"]["nvml"], host["driver_libraries"]["cuda"]
    versions = {name: host[name] for name in ("driver", "driver_cuda", "kernel_driver")}
    evidence = {**versions, **host["driver_libraries"]}
    traces = bool(host["device_nodes"] or host["kernel_driver"] or host["gpus"])
    problems = []
    if not cuda["answered"] and cuda["path"] is None:
        problems += [problem("cuda_library_missing", error=cuda["error"])] if traces else []
    elif not cuda["answered"] and cuda["code"] == _STUB_LIBRARY:
        problems += [problem("cuda_library_is_stub", path=cuda["path"])] if traces else []
    elif not cuda["answered"] and (cuda["code"] != _NO_DEVICE or traces):
        problems.append(problem("cuda_not_answering", error=cuda["error"]))
    if (traces or cuda["count"]) and not nvml["answered"]:
        problems.append(problem("nvml_not_answering", error=nvml["error"]))
    if cuda["count"] and not host["device_nodes"]:
        problems.append(problem("gpu_without_device_files"))
    if host["gpus"] and cuda["count"] == 0:
        problems.append(problem("cuda_offers_no_gpu"))
    if host["driver"] and host["kernel_driver"] and host["driver"] != host["kernel_driver"]:
        both = {"libraries": host["driver"], "kernel_module": host["kernel_driver"]}
        problems.append(problem("driver_versions_differ", **both))
    if not problems and not cuda["answered"]:
        return skipped(statement("no_driver", error=cuda["error"]), evidence)
    answers = {"driver": host["driver"], "cuda": host["driver_cuda"], "gpus": cuda["count"]}
    return judged(problems, statement("driver_answers", **answers), evidence)


@check(
    "Do the driver's device files exist, belong to the driver, and open?", HOST, limit_s=10, requires=("gpu",)
)
def gpu_device_nodes(context: Context) -> Result:
    """Judge the device files: a library that replaces the driver can't fake what a kernel driver opens."""
    host = context.facts["host"]
    nodes = host["device_nodes"]
    paths = [node["path"] for node in nodes]
    needed = [r"/dev/dxg"] if host["wsl"] else [r"/dev/nvidia\d+", r"/dev/nvidiactl", r"/dev/nvidia-uvm"]
    problems = []
    for pattern in needed:
        if not any(re.fullmatch(pattern, path) for path in paths):
            problems.append(problem("device_file_missing", path=pattern.replace(r"\d+", "0")))
    for node in nodes:
        if not node["opens"]:
            problems.append(problem("device_file_closed", path=node["path"], error=node["error"]))
        elif not node["device"] or node["registered"] is False:
            problems.append(problem("device_file_foreign", path=node["path"]))
    evidence = {"wsl": host["wsl"], "nodes": nodes}
    return judged(problems, statement("device_files_open", paths=paths), evidence)


#: Xid messages that a faulty program causes, which NVIDIA's device plugin for Kubernetes ignores
#: (NVIDIA/k8s-device-plugin internal/rm/health.go; NVIDIA, "XID Errors"): graphics engine exception, memory
#: page fault, processing stopped, preemptive cleanup, video processor exception, context switch timeout.
PROGRAM_XIDS = (13, 31, 43, 45, 68, 109)
#: Reasons for lower clocks that are signs of trouble with power or cooling, each with the number of readings
#: in a row from which it counts. hw_slowdown may also be reported while the performance state changes
#: (nvml.h), which takes one reading.
TROUBLE = {"hw_slowdown": 2, "sw_thermal_slowdown": 1, "hw_thermal_slowdown": 1, "hw_power_brake_slowdown": 1}
#: The values that may be unknown, each with its field in a snapshot.
_VALUES = {
    "memory errors": "uncorrected_errors",
    "remapping": "remapping_pending",
    "clocks": "clocks",
    "processes": "processes",
}


@check("Was the GPU healthy while it was measured, and did no other process use it?", END, 60, ("gpu",))
def gpu_health(context: Context) -> Result:
    """Judge what `watch` saw on the GPUs that were measured.

    On a GPU with memory errors, a slowed-down GPU, or one that another process uses, neither failed nor
    passed checks say anything about the environment. So a fault that this check finds makes the verdict
    `unproven` and never `failed` (validator/model/verdict.py), except for an Xid message that a faulty
    program causes. A value that NVML doesn't report is unknown and does not fail the check: WSL, MIG and vGPU
    hide most of them, and a GeForce has no ECC.
    """
    seen: dict[str, Any] = context.facts["health"]
    cuda = context.facts["host"]["driver_libraries"]["cuda"]
    measured = {gpu.get("uuid") for gpu in cuda.get("gpus") or []} - {None}
    # If no UUIDs match (MIG instances have their own), any GPU may be the one that was measured.
    common = [gpu for gpu in seen["gpus"] if gpu["uuid"] in measured] or seen["gpus"]
    gpus = [{name: value for name, value in gpu.items() if name != "uuid"} for gpu in common]
    hidden = {field for gpu in gpus for field, value in gpu["before"].items() if value is None}
    unknown = [name for name, field in _VALUES.items() if field in hidden]
    unknown += [] if seen["xid_sources"] else ["Xid messages"]
    problems = [entry for index, gpu in enumerate(gpus) for entry in _unhealthy(index, gpu)]
    if seen["error"] is not None or not seen["begun"] or not seen["ended"] or not gpus:
        whole = seen["error"] is None and seen["begun"] and seen["ended"]
        problems = [problem("gpu_not_watched", error="NVML shows no GPU" if whole else seen["error"])]
    readings = max((gpu["readings"] for gpu in gpus), default=0)
    passed = statement("gpu_healthy", gpus=len(gpus), readings=readings, unknown=unknown)
    return judged(problems, passed, {**seen, "gpus": gpus, "unknown": unknown})


def _unhealthy(index: int, gpu: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    before, after = gpu["before"], gpu["after"]
    lost = [name for name, field in _VALUES.items() if before[field] is not None and after[field] is None]
    if lost:
        found.append(problem("gpu_lost", gpu=index, values=lost))
    errors = before["uncorrected_errors"], after["uncorrected_errors"]
    # A count that decreased was reset together with the GPU.
    if None not in errors and errors[0] != errors[1]:
        found.append(problem("gpu_memory_errors", gpu=index, before=errors[0], new=errors[1] - errors[0]))
    for state in ("pending", "failed"):
        if after[f"remapping_{state}"]:
            found.append(problem("gpu_remapping", gpu=index, state=state))
    codes = sorted(set(gpu["xids"]))
    for name, program in (("gpu_xid", False), ("gpu_program_xid", True)):
        told = [str(code) for code in codes if (code in PROGRAM_XIDS) is program]
        found += [problem(name, gpu=index, codes=told)] if told else []
    reasons, never = gpu["reasons"], gpu["readings"] + 1
    slowed = sorted(name for name in reasons if reasons[name]["in_a_row"] >= TROUBLE.get(name, never))
    if slowed:
        share = max(reasons[name]["readings"] for name in slowed) / gpu["readings"]
        found.append(problem("gpu_slowed", gpu=index, reasons=slowed, share=share))
    times = {"before": before["processes"], "during": gpu["others_during"], "after": after["processes"]}
    shared = [name for name, count in times.items() if count]
    if shared:
        found.append(problem("gpu_shared", gpu=index, times=shared))
    return found


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
    # `none` mounts the driver's libraries without a GPU; `void` or an empty value mounts nothing (NVIDIA
    # Container Toolkit, specialized configurations).
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


def ptx_jit_forced(value: str, facts: Facts) -> Problems:
    """Find GPUs without PTX: a wheel has it only for its newest compute capability, so not for older GPUs."""
    return _ptx_problems("ptx_jit_forced", value, facts, lambda found: not found.has_ptx)


def ptx_jit_disabled(value: str, facts: Facts) -> Problems:
    """Find GPUs for which the wheel holds kernels only as PTX."""
    return _ptx_problems("ptx_jit_disabled", value, facts, lambda found: found.kernels == JIT)


def _ptx_problems(code: str, value: str, facts: Facts, stranded: Callable[[Coverage], bool]) -> Problems:
    """Yield a problem that names the kinds of GPUs that the installed TensorFlow can't use this way."""
    named, tensorflow = set(), facts["tensorflow"]
    for gpu in facts["host"]["gpus"] if tensorflow and value == "1" else []:
        if gpu["compute_capability"]:
            found = coverage(tensorflow["version"], tensorflow["build"], gpu["compute_capability"])
            if found and stranded(found):
                named.add((str(gpu["name"]), gpu["compute_capability"]))
    gpus = [{"name": name, "compute_capability": capability} for name, capability in sorted(named)]
    if value == "1":
        yield problem(code, FAULT if gpus else ADVISORY, gpus=gpus)


def min_multiprocessors(value: str, facts: Facts) -> Problems:
    """Find GPUs with too few multiprocessors for TensorFlow (gpu_device.cc, GetMinGPUMultiprocessorCount)."""
    if not re.fullmatch(r"-?\d+", value.strip()):
        yield problem("min_multiprocessors_unread")
        return
    offered = facts["host"]["driver_libraries"]["cuda"].get("gpus") or []
    hidden = [gpu["name"] for gpu in offered if (gpu.get("multiprocessors") or 0) < int(value)]
    if hidden:
        yield problem("min_multiprocessors_hides_gpus", gpus=hidden)


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
    packages, needs = facts["environment"]["packages"], _KERAS_BACKENDS.get(value)
    if value in ("", "tensorflow") or packages.get("keras", "3").startswith("2."):
        return
    if value not in _KERAS_BACKENDS:
        yield problem("keras_backend_unknown")
    elif needs is not None and needs not in packages:
        yield problem("keras_backend_missing", package=needs)
    else:
        yield problem("keras_backend_other")


def xla_flags(value: str, facts: Facts) -> Problems:
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
        *(min_multiprocessors, ptx_jit_disabled, ptx_jit_forced, tf_xla_flags, visible_devices, xla_flags),
    )
}


def problems(row: dict[str, Any], value: str, facts: Facts) -> Problems:
    """Yield what is wrong with the value of the variable that a row of the table describes."""
    if "accepts" in row and value not in row["accepts"]:
        yield problem(row["otherwise"])
    if "matches" in row and not re.fullmatch(row["matches"], value.strip()):
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
    found = []
    for name, value in known.items():
        wrong = problems(rows[name], variables[name], context.facts)
        found += [{**entry, "variable": name, "value": value} for entry in wrong]
    passed = statement("variables_harmless", count=len(known)) if known else statement("variables_unset")
    return judged(found, passed, {"variables": described[:_ENTRIES], "others": others[:_ENTRIES]})
