"""Does the NVIDIA driver answer, and do its parts belong together?"""

from typing import Any, Dict, List, Optional

from ..check import FAIL, HOST, PASS, SKIP, Check, Context, Result

#: CUresult codes of a machine that simply has no GPU, or only the toolkit's stub of the library (cuda.h).
_NO_DEVICE, _STUB_LIBRARY = 100, 34


def _run(context: Context) -> Result:
    host = context.facts["host"]
    cuda = host["driver_libraries"]["cuda"]
    evidence = {
        "driver": host["driver"],
        "driver_cuda": host["driver_cuda"],
        "kernel_driver": host["kernel_driver"],
        **host["driver_libraries"],
    }
    faults = _faults(host)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    if not cuda["answered"]:
        return Result(SKIP, f"no NVIDIA driver here ({cuda['error']})", evidence)
    answers = f"driver {host['driver']}, CUDA {host['driver_cuda']}, {cuda['count']} GPU(s)"
    return Result(PASS, answers, evidence)


def _faults(host: Dict[str, Any]) -> List[str]:
    """What contradicts itself. A machine with no trace of a driver or GPU has no fault."""
    nvml, cuda = host["driver_libraries"]["nvml"], host["driver_libraries"]["cuda"]
    traces = bool(host["device_nodes"] or host["kernel_driver"] or host["gpus"])
    faults = [_cuda_fault(cuda, traces)]
    if (traces or cuda["count"]) and not nvml["answered"]:
        faults.append(f"the management library does not answer ({nvml['error']})")
    if cuda["count"] and not host["device_nodes"]:
        faults.append("the CUDA library lists GPUs, but there is no device file of a driver")
    if host["gpus"] and cuda["count"] == 0:
        faults.append("there are GPUs, but CUDA offers none of them (CUDA_VISIBLE_DEVICES?)")
    if host["driver"] and host["kernel_driver"] and host["driver"] != host["kernel_driver"]:
        faults.append(f"libraries of driver {host['driver']} over a kernel module of {host['kernel_driver']}")
    return [fault for fault in faults if fault]


def _cuda_fault(cuda: Dict[str, Any], traces: bool) -> Optional[str]:
    if cuda["answered"]:
        return None
    if cuda["path"] is None:
        return f"a driver is here, but its CUDA library is not found ({cuda['error']})" if traces else None
    if cuda["code"] == _STUB_LIBRARY:
        return f"the toolkit's stub is loaded as the CUDA library ({cuda['path']})" if traces else None
    if cuda["code"] == _NO_DEVICE and not traces:
        return None
    return f"the CUDA library does not answer ({cuda['error']})"


CHECK = Check(
    id="driver",
    title="the NVIDIA driver answers through NVML and CUDA, and its parts agree",
    stage=HOST,
    run=_run,
    limit_s=10,
)
