"""Was the GPU itself healthy while it was measured, and did nobody else compute on it?

On a GPU with memory errors, a slowed-down GPU, or one that another process uses, neither failed nor passed
checks say anything about the environment. So a fault that this check finds makes the verdict `unproven` and
never `failed` (validator/model/verdict.py), except for an Xid message that a faulty program causes.

A value that NVML doesn't report is unknown and does not fail the check: WSL, MIG and vGPU hide most of them,
and a GeForce has no ECC. The check does fail if the watch ended early, or if a value could be read before the
run but not after it.
"""

from typing import Any, Dict, List

from ...problems import problem, statement
from ..check import END, Check, Context, Result, judged

#: Xid messages that a faulty program causes, which NVIDIA's device plugin for Kubernetes ignores
#: (NVIDIA/k8s-device-plugin internal/rm/health.go; NVIDIA, "XID Errors"): graphics engine exception, memory
#: page fault, processing stopped, preemptive cleanup, video processor exception, context switch timeout.
PROGRAM_XIDS = (13, 31, 43, 45, 68, 109)
#: Reasons for lower clocks that are signs of trouble with power or cooling, each with the number of readings
#: in a row from which it counts. hw_slowdown may also be reported while the performance state changes
#: (nvml.h), which takes one reading.
TROUBLE = {"hw_slowdown": 2, "sw_thermal_slowdown": 1, "hw_thermal_slowdown": 1, "hw_power_brake_slowdown": 1}
#: The values that may be unknown, each with its fields in a snapshot.
_VALUES = {
    "memory errors": "uncorrected_errors",
    "remapping": "remapping_pending",
    "clocks": "clocks",
    "processes": "processes",
}


def _run(context: Context) -> Result:
    seen: Dict[str, Any] = context.facts["health"]
    cuda = context.facts["host"]["driver_libraries"]["cuda"]
    measured = {gpu.get("uuid") for gpu in cuda.get("gpus") or []} - {None}
    # If no UUIDs match (MIG instances have their own), any GPU may be the one that was measured.
    common = [gpu for gpu in seen["gpus"] if gpu["uuid"] in measured] or seen["gpus"]
    kept = [{name: value for name, value in gpu.items() if name != "uuid"} for gpu in common]
    evidence: Dict[str, Any] = {**seen, "gpus": kept}
    evidence["unknown"] = _unknown(evidence)
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _unknown(evidence: Dict[str, Any]) -> List[str]:
    unknown = [
        name
        for name, field in _VALUES.items()
        if any(gpu["before"][field] is None for gpu in evidence["gpus"])
    ]
    return unknown + ([] if evidence["xid_sources"] else ["Xid messages"])


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    if evidence["error"] is not None or not evidence["begun"] or not evidence["ended"]:
        return [problem("gpu_not_watched", error=evidence["error"])]
    if not evidence["gpus"]:
        return [problem("gpu_not_watched", error="NVML shows no GPU")]
    return [found for index, gpu in enumerate(evidence["gpus"]) for found in _found(index, gpu)]


def _found(index: int, gpu: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    before, after = gpu["before"], gpu["after"]
    lost = [name for name, field in _VALUES.items() if before[field] is not None and after[field] is None]
    if lost:
        found.append(problem("gpu_lost", gpu=index, values=lost))
    if before["uncorrected_errors"] is not None and after["uncorrected_errors"] is not None:
        new = after["uncorrected_errors"] - before["uncorrected_errors"]
        # A count that decreased was reset together with the GPU.
        if new:
            found.append(
                problem("gpu_memory_errors", gpu=index, before=before["uncorrected_errors"], new=new)
            )
    for state in ("pending", "failed"):
        if after[f"remapping_{state}"]:
            found.append(problem("gpu_remapping", gpu=index, state=state))
    hardware = sorted({str(code) for code in gpu["xids"] if code not in PROGRAM_XIDS}, key=int)
    program = sorted({str(code) for code in gpu["xids"] if code in PROGRAM_XIDS}, key=int)
    if hardware:
        found.append(problem("gpu_xid", gpu=index, codes=hardware))
    if program:
        found.append(problem("gpu_program_xid", gpu=index, codes=program))
    found += _slowed(index, gpu)
    times = {"before": before["processes"], "during": gpu["others_during"], "after": after["processes"]}
    shared = [name for name, count in times.items() if count]
    if shared:
        found.append(problem("gpu_shared", gpu=index, times=shared))
    return found


def _slowed(index: int, gpu: Dict[str, Any]) -> List[Dict[str, Any]]:
    seen = {
        name: counts["readings"]
        for name, counts in gpu["reasons"].items()
        if counts["in_a_row"] >= TROUBLE.get(name, gpu["readings"] + 1)
    }
    if not seen:
        return []
    share = max(seen.values()) / gpu["readings"]
    return [problem("gpu_slowed", gpu=index, reasons=sorted(seen), share=share)]


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    return statement(
        "gpu_healthy",
        gpus=len(evidence["gpus"]),
        readings=max(gpu["readings"] for gpu in evidence["gpus"]),
        unknown=evidence["unknown"],
    )


CHECK = Check(
    id="gpu_health",
    title="Was the GPU healthy while it was measured, and did no other process use it?",
    stage=END,
    run=_run,
    limit_s=60,
    requires=("gpu",),
)
