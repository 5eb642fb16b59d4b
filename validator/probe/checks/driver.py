"""Does the NVIDIA driver answer through NVML and CUDA, and do its parts agree?"""

from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from ..check import HOST, Check, Context, Result, judged, skipped

#: CUresult codes (cuda.h): there is no GPU, or the library is only the toolkit's stub.
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
    problems = _problems(host)
    if not problems and not cuda["answered"]:
        return skipped(statement("no_driver", error=cuda["error"]), evidence)
    return judged(
        problems,
        lambda: statement(
            "driver_answers", driver=host["driver"], cuda=host["driver_cuda"], gpus=cuda["count"]
        ),
        evidence,
    )


def _problems(host: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return each contradiction. A machine with no trace of a driver or GPU has none."""
    nvml, cuda = host["driver_libraries"]["nvml"], host["driver_libraries"]["cuda"]
    traces = bool(host["device_nodes"] or host["kernel_driver"] or host["gpus"])
    found = [_cuda_problem(cuda, traces)]
    if (traces or cuda["count"]) and not nvml["answered"]:
        found.append(problem("nvml_not_answering", error=nvml["error"]))
    if cuda["count"] and not host["device_nodes"]:
        found.append(problem("gpu_without_device_files"))
    if host["gpus"] and cuda["count"] == 0:
        found.append(problem("cuda_offers_no_gpu"))
    if host["driver"] and host["kernel_driver"] and host["driver"] != host["kernel_driver"]:
        found.append(
            problem("driver_versions_differ", libraries=host["driver"], kernel_module=host["kernel_driver"])
        )
    return [entry for entry in found if entry]


def _cuda_problem(cuda: Dict[str, Any], traces: bool) -> Optional[Dict[str, Any]]:
    if cuda["answered"]:
        return None
    if cuda["path"] is None:
        return problem("cuda_library_missing", error=cuda["error"]) if traces else None
    if cuda["code"] == _STUB_LIBRARY:
        return problem("cuda_library_is_stub", path=cuda["path"]) if traces else None
    if cuda["code"] == _NO_DEVICE and not traces:
        return None
    return problem("cuda_not_answering", error=cuda["error"])


CHECK = Check(
    id="driver",
    title="Does the NVIDIA driver answer through NVML and CUDA, and do its parts agree?",
    stage=HOST,
    run=_run,
    limit_s=10,
)
