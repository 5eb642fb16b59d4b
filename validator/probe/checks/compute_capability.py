"""Do the kernels in TensorFlow's wheel and in cuDNN run on the GPUs here with this driver?"""

from dataclasses import asdict
from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from ..check import HOST, Check, Context, Result, judged, skipped
from ..collectors import loader
from ..collectors.kernels import JIT, NONE, Coverage, coverage, cudnn_minimum, older


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
        return skipped(statement("compute_capability_unknown"), evidence)
    if any(gpu["kernels"] is None for gpu in gpus):
        return skipped(statement("kernels_unknown"), evidence)
    problems = [entry for gpu in gpus for entry in _problems(gpu, host["driver_cuda"])]
    problems += [
        problem("cudnn_has_no_kernels", **_named(gpu), cudnn=cudnn, minimum=minimum)
        for gpu in gpus
        if gpu["cudnn"] is False
    ]
    return judged(problems, lambda: _passed(gpus, host["driver_cuda"]), evidence)


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
    """Return the version of the cuDNN that TensorFlow opens."""
    opened = (value for value in values if str(value.get("soname")).startswith("libcudnn."))
    return next((value["version"] for value in opened), None)


def _problems(gpu: Dict[str, Any], driver_cuda: Optional[str]) -> List[Dict[str, Any]]:
    if gpu["kernels"] == NONE and gpu["without"] == gpu["units"]:
        return [problem("no_kernels_for_gpu", **_named(gpu))]
    if gpu["kernels"] == NONE:
        told = {key: gpu[key] for key in ("without", "units")}
        return [problem("some_kernels_not_for_gpu", **_named(gpu), **told)]
    if gpu["isa"] and gpu["cuda"] and driver_cuda and older(driver_cuda, gpu["cuda"]):
        return [
            problem(
                "driver_lacks_ptx",
                **_named(gpu),
                compiled=gpu["compiled"],
                units=gpu["units"],
                isa=gpu["isa"],
                cuda=gpu["cuda"],
                driver_cuda=driver_cuda,
            )
        ]
    return []


def _passed(gpus: List[Dict[str, Any]], driver_cuda: Optional[str]) -> Dict[str, Any]:
    told = ("name", "compute_capability", "kernels", "isa", "compiled", "without", "units")
    return statement(
        "kernels_run",
        gpus=[{**{key: gpu[key] for key in told}, "certain": _certain(gpu, driver_cuda)} for gpu in gpus],
    )


def _certain(gpu: Dict[str, Any], driver_cuda: Optional[str]) -> bool:
    """Return whether the driver is known to compile the PTX."""
    if gpu["kernels"] != JIT:
        return True
    return bool(driver_cuda and gpu["cuda"] and not older(driver_cuda, gpu["cuda"]))


def _named(gpu: Dict[str, Any]) -> Dict[str, Any]:
    return {"gpu": gpu["name"], "compute_capability": gpu["compute_capability"]}


CHECK = Check(
    id="compute_capability",
    title="Do the kernels of TensorFlow and cuDNN run on these GPUs with this driver?",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build", "gpu"),
)
