"""Does TensorFlow keep to the memory it is given, and does it give back what it took?

By default it takes almost all of every GPU at its first operation. Growth and limits can be set only before
that, so each trial has a fresh interpreter. On a machine without a GPU those about the GPU have no answer;
what becomes of an allocation that can't be had, and whether training leaks, is asked of the CPU then.
"""

import os
from typing import Any, Dict, Iterator, List, Optional

from .. import fresh
from ..check import FAIL, FULL, PASS, TENSORFLOW, Check, Context, Result
from ..collectors.driver import free_memory
from ..devices import gpus
from ..resnet import GRAPH, SIZES, XLA, Model, batch

_MIB = 1 << 20
#: Of the whole of a GPU's memory, so that the default, which takes all, is tried only where nobody else is.
_IDLE = 0.8
#: The share of the free memory that a process with growth may have taken after its first small operation.
_SMALL = 0.5
_LIMIT, _FITS, _EXCEEDS = 1024 * _MIB, 256 * _MIB, 2048 * _MIB
#: More than the 128 TiB that a process can address on x86-64, so that no overcommitting kernel grants it.
_IMPOSSIBLE = 1 << 50
#: Steps of one size: before memory is first looked at, then in all, and between two looks.
_WARM_UP, STEPS, _STRIDE = 20, 50, 10
#: Bytes by which memory may grow over those steps. Measured on the CPU: under 1 MB. The smallest leak that
#: training can have, its weights or its batch once a step, is 15 MB.
TOLERANCE = 4 * _MIB
_EXAMPLES = 32
#: Seconds: the start and the import; the allocator waits 10 s for memory before it says that there is none.
_LIMIT_S = 90.0
#: What changes how the allocator behaves.
_VARIABLES = ("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_FORCE_UNIFIED_MEMORY")
_TITLES = {
    "growth": "memory growth",
    "whole": "the default without growth",
    "exhausted": "running out of memory",
    "leak": "50 training steps",
}


def _run(context: Context) -> Result:
    device_type = "GPU" if gpus(context.tensorflow) else "CPU"
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "growth": None,
        "whole": None,
        "unknown": [],
    }
    trials: Dict[str, Any] = {"exhausted": _exhaust, "leak": _train}
    if device_type == "GPU":
        trials = {"growth": _grow, "whole": _take_whole, **trials}
    else:
        evidence["unknown"].append("growth and whole: there is no GPU")
    for name, trial in trials.items():
        reason = _not_idle(evidence["growth"]) if name == "whole" else None
        if reason is not None:
            evidence["unknown"].append(reason)
            continue
        # Growth that a variable forces on every process would hide what the default is.
        unset: Dict[str, Optional[str]] = {"TF_FORCE_GPU_ALLOW_GROWTH": None} if name == "whole" else {}
        answer = fresh.call(trial, device_type, limit_s=_LIMIT_S, environment=unset)
        if answer.failure is not None:
            broken = fresh.fault(answer, f"the trial of {_TITLES[name]}")
            return Result(broken.outcome, broken.summary, {**evidence, **broken.evidence})
        evidence[name] = answer.values if name == "leak" else answer.values[0]
    faults = _faults(evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    return Result(PASS, _summary(evidence), evidence)


def _grow(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Memory growth set before the first operation."""
    gpu = _only_first_gpu(tf)
    tf.config.experimental.set_memory_growth(gpu, True)
    yield _taken_by_one_operation(tf)


def _take_whole(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """The default; and growth set when it is too late."""
    gpu = _only_first_gpu(tf)
    taken = _taken_by_one_operation(tf)
    yield {**taken, "late_growth": _error(lambda: tf.config.experimental.set_memory_growth(gpu, True))}


def _exhaust(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Ask for more than there is: on a GPU for more than the limit of a logical device."""
    on_gpu = device_type == "GPU"
    device = _only_first_gpu(tf) if on_gpu else tf.config.list_physical_devices("CPU")[0]
    one = [tf.config.LogicalDeviceConfiguration(memory_limit=_LIMIT // _MIB if on_gpu else None)]
    if on_gpu:
        tf.config.set_logical_device_configuration(device, one)
    with tf.device(f"/{device_type}:0"):
        fits = _error(lambda: tf.zeros(_FITS // 4)) if on_gpu else None
        raised = _error(lambda: tf.zeros((_EXCEEDS if on_gpu else _IMPOSSIBLE) // 4))
        total = float(tf.reduce_sum(tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64)))))
    yield {
        "limit_bytes": _LIMIT if on_gpu else None,
        "within_limit": fits,
        "asked_bytes": _EXCEEDS if on_gpu else _IMPOSSIBLE,
        "raised": raised,
        "recovered": total == 64.0**3,
        "peak_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"] if on_gpu else None,
        "late_configuration": _error(lambda: tf.config.set_logical_device_configuration(device, one * 2)),
    }


def _train(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Bytes held after every few steps of training, as a graph and compiled."""
    if device_type == "GPU":
        tf.config.experimental.set_memory_growth(_only_first_gpu(tf), True)
    size = SIZES["CPU"]
    with tf.device(f"/{device_type}:0"):
        images, labels = batch(tf, size, _EXAMPLES)
        for mode in (GRAPH, XLA):
            step = Model(tf, size).step(mode)
            held = []
            for number in range(_WARM_UP + STEPS + 1):
                if number >= _WARM_UP and (number - _WARM_UP) % _STRIDE == 0:
                    held.append(_held(tf, device_type))
                float(step(images, labels))
            yield {
                "mode": mode,
                "measured": "allocator" if device_type == "GPU" else "resident set",
                "bytes": held,
                "growth_bytes": held[-1] - held[0],
            }


def _held(tf: Any, device_type: str) -> int:
    if device_type == "GPU":
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _only_first_gpu(tf: Any) -> Any:
    """The others are left alone."""
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([gpu], "GPU")
    return gpu


def _taken_by_one_operation(tf: Any) -> Dict[str, Any]:
    """What the CUDA driver has less to give after TensorFlow's first operation; its context included."""
    before = free_memory()
    with tf.device("/GPU:0"):
        total = float(tf.reduce_sum(tf.ones((256, 256))))
    after = free_memory()
    return {
        "total_bytes": before["total"],
        "free_bytes": before["free"],
        "taken_bytes": before["free"] - after["free"],
        "computed": total == 256.0**2,
    }


def _error(call: Any) -> Optional[Dict[str, str]]:
    """What the call raises, or None."""
    try:
        call()
    except Exception as error:  # whatever it is, it is the answer
        return {"type": type(error).__name__, "message": str(error)[:300]}
    return None


def _not_idle(growth: Optional[Dict[str, Any]]) -> Optional[str]:
    """Why the whole of the memory must not be taken here, or None."""
    if growth is None or growth["free_bytes"] >= _IDLE * growth["total_bytes"]:
        return None
    free, total = growth["free_bytes"] // _MIB, growth["total_bytes"] // _MIB
    return f"whole: others use this GPU ({free} of {total} MiB are free), and it would take all that is left"


def _faults(evidence: Dict[str, Any]) -> List[str]:
    faults = []
    growth, exhausted = evidence["growth"], evidence["exhausted"]
    if growth is not None and growth["taken_bytes"] > _SMALL * growth["free_bytes"]:
        faults.append(f"with memory growth a small operation took {growth['taken_bytes'] // _MIB} MiB")
    raised, limit = exhausted["raised"], exhausted["limit_bytes"]
    if raised is None:
        faults.append(f"{exhausted['asked_bytes'] // _MIB} MiB were granted, beyond what there is")
    elif raised["type"] != "ResourceExhaustedError":
        faults.append(f"running out of memory raised {raised['type']}, not ResourceExhaustedError")
    if exhausted["within_limit"] is not None:
        faults.append(f"within the limit: {exhausted['within_limit']['type']}")
    if limit is not None and exhausted["peak_bytes"] > limit:
        faults.append(f"{exhausted['peak_bytes'] // _MIB} MiB were taken where {limit // _MIB} is the limit")
    if not exhausted["recovered"]:
        faults.append("after running out of memory the process computes wrong")
    faults += [
        f"{entry['mode']}: {entry['growth_bytes'] / _MIB:.1f} MiB more after {STEPS} steps"
        for entry in evidence["leak"]
        if entry["growth_bytes"] > TOLERANCE
    ]
    return faults


def _summary(evidence: Dict[str, Any]) -> str:
    leaked = max(entry["growth_bytes"] for entry in evidence["leak"])
    parts = ["running out of memory is raised and survived", f"{STEPS} steps leak nothing ({leaked} bytes)"]
    if evidence["growth"] is not None:
        parts.insert(0, f"growth takes {evidence['growth']['taken_bytes'] // _MIB} MiB")
    if evidence["whole"] is not None:
        parts.insert(1, f"the default {evidence['whole']['taken_bytes'] // _MIB} MiB")
    return f"on the {evidence['device_type']}: {', '.join(parts)}"


CHECK = Check(
    id="memory",
    title="memory growth and limits hold, running out is survived, training leaks nothing",
    stage=TENSORFLOW,
    run=_run,
    limit_s=400,
    required=False,
    depth=FULL,
)
