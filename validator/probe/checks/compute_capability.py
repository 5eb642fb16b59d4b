"""Do the kernels in TensorFlow's wheel, and those of cuDNN, run on the GPUs here under this driver?"""

from dataclasses import asdict
from typing import Any, Dict, List, Optional

from ..check import FAIL, HOST, PASS, SKIP, Check, Context, Result
from ..collectors import loader
from ..collectors.kernels import JIT, NATIVE, NONE, Coverage, coverage, cudnn_minimum, older


def _run(context: Context) -> Result:
    host, tensorflow = context.facts["host"], context.facts["tensorflow"]
    cudnn = _cudnn(loader.open_libraries(tensorflow["directory"]).values)
    minimum = cudnn_minimum(cudnn) if cudnn else None
    gpus = [
        _gpu(gpu, coverage(tensorflow["version"], tensorflow["build"], gpu["compute_capability"]), minimum)
        for gpu in host["gpus"]
        if gpu["compute_capability"]
    ]
    evidence = {"driver_cuda": host["driver_cuda"], "cudnn": cudnn, "cudnn_minimum": minimum, "gpus": gpus}
    if not gpus:
        return Result(SKIP, "no library of the driver tells a GPU's compute capability", evidence)
    if any(gpu["kernels"] is None for gpu in gpus):
        return Result(SKIP, "which kernels this TensorFlow has is not known", evidence)
    faults = [fault for gpu in gpus for fault in _faults(gpu, host["driver_cuda"])]
    faults += [
        f"cuDNN {cudnn} has kernels from compute capability {minimum} on, none for {_named(gpu)}"
        for gpu in gpus
        if gpu["cudnn"] is False
    ]
    if faults:
        return Result(FAIL, "; ".join(dict.fromkeys(faults)), evidence)
    said = [_sentence(gpu, host["driver_cuda"]) for gpu in gpus]
    return Result(PASS, "; ".join(dict.fromkeys(said)), evidence)


def _gpu(gpu: Dict[str, Any], found: Optional[Coverage], minimum: Optional[str]) -> Dict[str, Any]:
    capability = gpu["compute_capability"]
    covered = asdict(found) if found else dict.fromkeys(Coverage.__dataclass_fields__)
    return {
        "name": gpu["name"],
        "compute_capability": capability,
        **covered,
        "cudnn": None if minimum is None else not older(capability, minimum),
    }


def _cudnn(values: List[Dict[str, Any]]) -> Optional[str]:
    """The version of the cuDNN that TensorFlow opens."""
    opened = (value for value in values if str(value.get("soname")).startswith("libcudnn."))
    return next((value["version"] for value in opened), None)


def _faults(gpu: Dict[str, Any], driver_cuda: Optional[str]) -> List[str]:
    if gpu["kernels"] == NONE:
        return [f"the wheel has no kernels for {_named(gpu)}"]
    if gpu["isa"] and gpu["cuda"] and driver_cuda and older(driver_cuda, gpu["cuda"]):
        return [
            f"on {_named(gpu)} {_compiled(gpu)}, which takes a driver for CUDA {gpu['cuda']} or newer; this"
            f" one is for CUDA {driver_cuda} and answers CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
        ]
    return []


def _sentence(gpu: Dict[str, Any], driver_cuda: Optional[str]) -> str:
    if gpu["kernels"] == NATIVE:
        text = f"{_named(gpu)} runs machine code of the wheel"
    else:
        text = f"on {_named(gpu)} {_compiled(gpu)}"
        if not _certain(gpu, driver_cuda):
            text += ", and whether it can is not known"
    if gpu["without"]:
        text += f"; {gpu['without']} of {gpu['units']} units have no code for it"
    return text


def _compiled(gpu: Dict[str, Any]) -> str:
    units = (
        f"{gpu['compiled']} of {gpu['units']} units of the wheel" if gpu["units"] else "kernels of the wheel"
    )
    isa = f" (ISA {gpu['isa']})" if gpu["isa"] else ""
    return f"the driver compiles {units} from PTX{isa}"


def _certain(gpu: Dict[str, Any], driver_cuda: Optional[str]) -> bool:
    """Whether the driver is known to compile the PTX."""
    if gpu["kernels"] != JIT:
        return True
    return bool(driver_cuda and gpu["cuda"] and not older(driver_cuda, gpu["cuda"]))


def _named(gpu: Dict[str, Any]) -> str:
    return f"{gpu['name']} (compute capability {gpu['compute_capability']})"


CHECK = Check(
    id="compute_capability",
    title="the kernels of TensorFlow and cuDNN run on the GPUs here under this driver",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build", "gpu"),
)
