"""The driver and the GPUs: does it answer, do its device files open, and did the GPUs stay healthy?"""

from __future__ import annotations

import re
from typing import Any

from ...problems import problem, statement
from ..check import END, HOST, Context, Result, check, judged, skipped

#: CUresult codes (cuda.h): there is no GPU, or the library is only the toolkit's stub.
_NO_DEVICE, _STUB_LIBRARY = 100, 34


@check("Does the NVIDIA driver answer through NVML and CUDA, and do its parts agree?", HOST, limit_s=10)
def driver(context: Context) -> Result:
    """Look for contradictions. A machine with no trace of a driver or GPU has none."""
    host = context.facts["host"]
    nvml, cuda = host["driver_libraries"]["nvml"], host["driver_libraries"]["cuda"]
    evidence = {
        "driver": host["driver"],
        "driver_cuda": host["driver_cuda"],
        "kernel_driver": host["kernel_driver"],
        **host["driver_libraries"],
    }
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
        versions = {"libraries": host["driver"], "kernel_module": host["kernel_driver"]}
        problems.append(problem("driver_versions_differ", **versions))
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
    gpu = r"/dev/dxg" if host["wsl"] else r"/dev/nvidia\d+"
    needed = [gpu] if host["wsl"] else [gpu, r"/dev/nvidiactl", r"/dev/nvidia-uvm"]
    problems = [
        problem("device_file_missing", path=pattern.replace(r"\d+", "0"))
        for pattern in needed
        if not any(re.fullmatch(pattern, node["path"]) for node in nodes)
    ]
    problems += [
        problem("device_file_closed", path=node["path"], error=node["error"])
        for node in nodes
        if not node["opens"]
    ]
    problems += [
        problem("device_file_foreign", path=node["path"])
        for node in nodes
        if node["opens"] and (not node["device"] or node["registered"] is False)
    ]
    paths = [node["path"] for node in nodes]
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


@check(
    "Was the GPU healthy while it was measured, and did no other process use it?",
    END,
    limit_s=60,
    requires=("gpu",),
)
def gpu_health(context: Context) -> Result:
    """Judge what `watch` saw on the GPUs that were measured.

    On a GPU with memory errors, a slowed-down GPU, or one that another process uses, neither failed nor
    passed checks say anything about the environment. So a fault that this check finds makes the verdict
    `unproven` and never `failed` (validator/model/verdict.py), except for an Xid message that a faulty
    program causes.

    A value that NVML doesn't report is unknown and does not fail the check: WSL, MIG and vGPU hide most of
    them, and a GeForce has no ECC. The check does fail if the watch ended early, or if a value could be read
    before the run but not after it.
    """
    seen: dict[str, Any] = context.facts["health"]
    cuda = context.facts["host"]["driver_libraries"]["cuda"]
    measured = {gpu.get("uuid") for gpu in cuda.get("gpus") or []} - {None}
    # If no UUIDs match (MIG instances have their own), any GPU may be the one that was measured.
    common = [gpu for gpu in seen["gpus"] if gpu["uuid"] in measured] or seen["gpus"]
    gpus = [{name: value for name, value in gpu.items() if name != "uuid"} for gpu in common]
    unknown = [
        name for name, field in _VALUES.items() if any(gpu["before"][field] is None for gpu in gpus)
    ] + ([] if seen["xid_sources"] else ["Xid messages"])
    if seen["error"] is not None or not seen["begun"] or not seen["ended"]:
        problems = [problem("gpu_not_watched", error=seen["error"])]
    elif not gpus:
        problems = [problem("gpu_not_watched", error="NVML shows no GPU")]
    else:
        problems = [entry for index, gpu in enumerate(gpus) for entry in _unhealthy(index, gpu)]

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
    hardware = sorted({str(code) for code in gpu["xids"] if code not in PROGRAM_XIDS}, key=int)
    program = sorted({str(code) for code in gpu["xids"] if code in PROGRAM_XIDS}, key=int)
    if hardware:
        found.append(problem("gpu_xid", gpu=index, codes=hardware))
    if program:
        found.append(problem("gpu_program_xid", gpu=index, codes=program))
    slowed = {
        name: counts["readings"]
        for name, counts in gpu["reasons"].items()
        if counts["in_a_row"] >= TROUBLE.get(name, gpu["readings"] + 1)
    }
    if slowed:
        share = max(slowed.values()) / gpu["readings"]
        found.append(problem("gpu_slowed", gpu=index, reasons=sorted(slowed), share=share))
    times = {"before": before["processes"], "during": gpu["others_during"], "after": after["processes"]}
    shared = [name for name, count in times.items() if count]
    if shared:
        found.append(problem("gpu_shared", gpu=index, times=shared))
    return found
