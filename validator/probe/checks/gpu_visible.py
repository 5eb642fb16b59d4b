"""Does TensorFlow see the GPUs that the driver sees?"""

from typing import Any, Dict, List

from ...problems import problem, statement
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus

#: Variables that make the driver or TensorFlow ignore GPUs.
_HIDING = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TF_MIN_GPU_MULTIPROCESSOR_COUNT")
#: TensorFlow ignores a GPU with fewer multiprocessors than this, unless the largest GPU here has fewer, too
#: (gpu_device.cc, GetMinGPUMultiprocessorCount).
_MULTIPROCESSORS = 8


def _run(context: Context) -> Result:
    tf, facts = context.tensorflow, context.facts
    seen = [_described(tf, gpu) for gpu in gpus(tf)]
    cuda = facts["host"]["driver_libraries"]["cuda"]
    usable = _usable(cuda.get("gpus") or [])
    variables = facts["environment"]["variables"]
    hiding = {name: variables[name] for name in _HIDING if name in variables}
    evidence = {
        "tensorflow": seen,
        "cuda_devices": cuda["count"],
        "usable": usable,
        "nvml_devices": len(facts["host"]["gpus"]),
        "variables": hiding,
    }
    problems = []
    if not seen:
        shown = [{"name": name, "value": value} for name, value in hiding.items()]
        problems = [problem("tensorflow_sees_no_gpu", offered=cuda["count"], variables=shown)]
    elif len(seen) < usable:
        problems = [problem("tensorflow_sees_fewer_gpus", seen=len(seen), usable=usable)]
    return judged(
        problems,
        lambda: statement("gpus_visible", count=len(seen), name=seen[0]["device_name"]),
        evidence,
    )


def _described(tf: Any, gpu: Any) -> Dict[str, Any]:
    details = tf.config.experimental.get_device_details(gpu)
    capability = details.get("compute_capability")
    return {
        "name": gpu.name,
        "device_name": details.get("device_name"),
        "compute_capability": ".".join(str(part) for part in capability) if capability else None,
    }


def _usable(offered: List[Dict[str, Any]]) -> int:
    counts = [gpu.get("multiprocessors") or 0 for gpu in offered]
    return sum(count >= min(_MULTIPROCESSORS, max(counts)) for count in counts)


CHECK = Check(
    id="gpu_visible",
    title="Does TensorFlow see every GPU that CUDA offers it?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=120,
    requires=("cuda-build", "gpu"),
)
