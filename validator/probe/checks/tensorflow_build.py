"""What was this TensorFlow built for, and has it kernels for the GPUs here?"""

import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..check import FAIL, PASS, TENSORFLOW, Check, Context, Result

NATIVE, JIT, NONE = "native", "jit", "none"


def _run(context: Context) -> Result:
    tf, facts = context.tensorflow, context.facts
    build = dict(tf.sysconfig.get_build_info())
    built_for = [str(entry) for entry in build.get("cuda_compute_capabilities", [])]
    gpus = [
        {"name": gpu["name"], "compute_capability": capability, "kernels": kernels(capability, built_for)}
        for gpu, capability in ((gpu, gpu["compute_capability"]) for gpu in facts["host"]["gpus"])
    ]
    evidence = {
        "version": tf.version.VERSION,
        "git_version": tf.version.GIT_VERSION,
        "compiler_version": tf.version.COMPILER_VERSION,
        "build": build,
        "gpus": gpus,
    }
    faults = _faults(tf, facts, gpus)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    cuda, cudnn = build.get("cuda_version"), build.get("cudnn_version")
    summary = f"TensorFlow {tf.version.VERSION} for CUDA {cuda}, cuDNN {cudnn}"
    jit = sorted({str(gpu["compute_capability"]) for gpu in gpus if gpu["kernels"] == JIT})
    note = f"; the driver compiles kernels for {', '.join(jit)} from PTX" if jit else ""
    return Result(PASS, summary + note, evidence)


def _faults(tf: Any, facts: Dict[str, Any], gpus: Iterable[Dict[str, Any]]) -> List[str]:
    faults = [
        f"no kernels for compute capability {gpu['compute_capability']} ({gpu['name']})"
        for gpu in gpus
        if gpu["kernels"] == NONE
    ]
    installed = facts["tensorflow"]["version"]
    if installed is not None and _plain(installed) != _plain(tf.version.VERSION):
        faults.append(f"{tf.version.VERSION} is imported, but {installed} is installed")
    return faults


def _plain(version: str) -> str:
    """Without dashes and `.post1`, which the wheel's version has and the library's own has not."""
    return re.sub(r"\.post\d+$", "", version.replace("-", ""))


def kernels(capability: Optional[str], built_for: List[str]) -> Optional[str]:
    """How the wheel's kernels reach a GPU: `native`, `jit` (from PTX, by the driver), `none`; None: unknown.

    Machine code for X.Y runs on X.Z with Z >= Y; PTX on every later capability (CUDA C++ Programming
    Guide, binary and PTX compatibility). `compute_90` in the build information means machine code for 9.0
    and PTX; kernels that the compiler generates have PTX alone, so the newest capability counts as `jit`.
    """
    if capability is None or not built_for:
        return None
    gpu = _pair(capability.replace(".", ""))
    machine_code = [_pair(entry[len("sm_") :]) for entry in built_for if entry.startswith("sm_")]
    ptx = [_pair(entry[len("compute_") :]) for entry in built_for if entry.startswith("compute_")]
    if any(target <= gpu for target in ptx):
        return JIT
    if any(target[0] == gpu[0] and target[1] <= gpu[1] for target in machine_code):
        return NATIVE
    return NONE


def _pair(digits: str) -> Tuple[int, int]:
    digits = digits.rstrip("af")
    return int(digits[:-1]), int(digits[-1])


CHECK = Check(
    id="tensorflow_build",
    title="TensorFlow is built with CUDA and has kernels for the GPUs here",
    stage=TENSORFLOW,
    run=_run,
    limit_s=30,
    requires=("cuda-build",),
)
