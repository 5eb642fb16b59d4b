"""Does TensorFlow respect its memory limits, and does training leak no memory?

By default it takes almost all of every GPU at its first operation. Growth and limits can be set only before
that, so each trial has a fresh interpreter. On a machine without a GPU, the trials of GPU memory are left
out; the others show on the CPU what happens to an allocation that is too large, and whether training leaks.
"""

import operator
import os
import statistics
from typing import Any, Dict, Iterator, List, Optional

from ...problems import problem, statement
from .. import child
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged
from ..collectors.driver import free_memory
from ..speed import GRAPH, SIZES, XLA, Model, batch
from ..tensorflow_devices import gpus

_MIB = 1 << 20
#: The share of a GPU's memory that must be free before the default, which takes everything, is tried.
_IDLE = 0.8
#: The share of the free memory that a process with growth may have taken after its first small operation.
_SMALL = 0.5
_LIMIT, _FITS, _EXCEEDS = 1024 * _MIB, 256 * _MIB, 2048 * _MIB
#: More than the 128 TiB that a process can address on x86-64, so that no overcommitting kernel grants it.
_IMPOSSIBLE = 1 << 50
#: Numbers of steps: before memory is first read, in total after that, and between two readings.
_WARM_UP, STEPS, _STRIDE = 20, 50, 10
#: Bytes by which memory may steadily grow over those steps. Measured on the CPU: under 1 MB. The smallest
#: leak that training can have, its weights or its batch once a step, is 15 MB.
TOLERANCE = 4 * _MIB
_EXAMPLES = 32
#: Seconds: the start and the import; the allocator waits 10 s for memory before it says that there is none.
_LIMIT_S = 90.0
#: Variables that change how the allocator behaves.
_VARIABLES = ("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_FORCE_UNIFIED_MEMORY")


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
        evidence["unknown"].append(statement("trial_needs_gpu", trials=["growth", "whole"]))
    for name, trial in trials.items():
        reason = _not_idle(evidence["growth"]) if name == "whole" else None
        if reason is not None:
            evidence["unknown"].append(reason)
            continue
        # If a variable forced memory growth on every process, the default would not be seen.
        unset: Dict[str, Optional[str]] = {"TF_FORCE_GPU_ALLOW_GROWTH": None} if name == "whole" else {}
        answer = child.fresh(trial, device_type, limit_s=_LIMIT_S, environment=unset)
        if answer.failure is not None:
            return child.broken_off(name, answer, evidence)
        evidence[name] = answer.values if name == "leak" else answer.values[0]
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _grow(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Set memory growth before the first operation."""
    gpu = _only_first_gpu(tf)
    tf.config.experimental.set_memory_growth(gpu, True)
    yield _taken_by_one_operation(tf)


def _take_whole(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Try the default, and set growth when it is too late."""
    gpu = _only_first_gpu(tf)
    taken = _taken_by_one_operation(tf)
    yield {**taken, "late_growth": _error(lambda: tf.config.experimental.set_memory_growth(gpu, True))}


def _exhaust(tf: Any, device_type: str) -> Iterator[Dict[str, Any]]:
    """Ask for more memory than there is; on a GPU, for more than the limit of a logical device."""
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
    """Yield the bytes held after every few steps of training, as a graph and compiled."""
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
                "growth_bytes": steady_growth(held),
            }


def steady_growth(held: List[int]) -> int:
    """Return the median growth between two readings, in bytes, times the number of such differences.

    A leak adds to every step. What grows once is not a leak: when the processors are busy, another thread may
    get a memory arena of its own in the middle of training.
    """
    differences = list(map(operator.sub, held[1:], held))
    return int(statistics.median(differences) * len(differences))


def _held(tf: Any, device_type: str) -> int:
    if device_type == "GPU":
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _only_first_gpu(tf: Any) -> Any:
    """Return the first GPU; the others are hidden from TensorFlow."""
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([gpu], "GPU")
    return gpu


def _taken_by_one_operation(tf: Any) -> Dict[str, Any]:
    """Return the memory that TensorFlow's first operation and its context take, according to the driver."""
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
    """Return what the call raises, or None."""
    try:
        call()
    except Exception as error:  # whatever it is, it is the answer
        return {"type": type(error).__name__, "message": str(error)[:300]}
    return None


def _not_idle(growth: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the reason why the default, which takes the whole memory, must not be tried here, or None."""
    if growth is None or growth["free_bytes"] >= _IDLE * growth["total_bytes"]:
        return None
    fields = {name: growth[name] for name in ("free_bytes", "total_bytes")}
    return statement("gpu_memory_in_use", **fields)


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    growth, exhausted = evidence["growth"], evidence["exhausted"]
    if growth is not None and growth["taken_bytes"] > _SMALL * growth["free_bytes"]:
        fields = {name: growth[name] for name in ("taken_bytes", "free_bytes")}
        found.append(problem("growth_takes_too_much", **fields))
    raised, limit = exhausted["raised"], exhausted["limit_bytes"]
    if raised is None:
        found.append(problem("impossible_allocation_granted", asked_bytes=exhausted["asked_bytes"]))
    elif raised["type"] != "ResourceExhaustedError":
        found.append(problem("exhaustion_raised_other", exception=raised["type"]))
    if exhausted["within_limit"] is not None:
        found.append(problem("allocation_within_limit_failed", exception=exhausted["within_limit"]["type"]))
    if limit is not None and exhausted["peak_bytes"] > limit:
        found.append(problem("memory_limit_exceeded", peak_bytes=exhausted["peak_bytes"], limit_bytes=limit))
    if not exhausted["recovered"]:
        found.append(problem("wrong_after_exhaustion"))
    found += [
        problem(
            "memory_grows_over_steps", mode=entry["mode"], growth_bytes=entry["growth_bytes"], steps=STEPS
        )
        for entry in evidence["leak"]
        if entry["growth_bytes"] > TOLERANCE
    ]
    return found


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    growth, whole = evidence["growth"], evidence["whole"]
    return statement(
        "memory_holds",
        device_type=evidence["device_type"],
        growth_bytes=growth["taken_bytes"] if growth else None,
        whole_bytes=whole["taken_bytes"] if whole else None,
        steps=STEPS,
        leaked_bytes=max(entry["growth_bytes"] for entry in evidence["leak"]),
    )


CHECK = Check(
    id="memory",
    title="Do memory growth and limits hold, and does training leak nothing?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=400,
    required=False,
    depth=FULL,
)
