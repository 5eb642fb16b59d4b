"""Does TensorFlow respect its memory limits, and does training leak no memory?

By default it takes almost all of every GPU at its first operation. Growth and limits can be set only before
that, so each trial has a fresh interpreter. On a machine without a GPU, the trials of GPU memory are left
out; the others show on the CPU what happens to an allocation that is too large, and whether training leaks.
"""

from __future__ import annotations

import operator
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

from ...problems import problem, statement
from .. import child
from ..check import FULL, TENSORFLOW, Context, Result, check, judged
from ..host import free_memory
from ..tensorflow_devices import device_type
from .speed import GRAPH, SIZES, XLA, batch, training_step

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
EXAMPLES = 32
#: Seconds: the start and the import; the allocator waits 10 s for memory before it says that there is none.
_LIMIT_S = 90.0
#: Variables that change how the allocator behaves.
_VARIABLES = ("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_FORCE_UNIFIED_MEMORY")


@check(
    "Do memory growth and limits hold, and does training leak nothing?", TENSORFLOW, limit_s=400, depth=FULL
)
def memory(context: Context) -> Result:
    kind = device_type(context.tensorflow)
    evidence: dict[str, Any] = {
        "device_type": kind,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "growth": None,
        "whole": None,
        "unknown": [],
    }
    trials: dict[str, Any] = {"exhausted": _exhaust, "leak": _train}
    if kind == "GPU":
        trials = {"growth": _grow, "whole": _take_whole, **trials}
    else:
        evidence["unknown"].append(statement("trial_needs_gpu", trials=["growth", "whole"]))
    for name, trial in trials.items():
        growth = evidence["growth"]
        if name == "whole" and growth["free_bytes"] < _IDLE * growth["total_bytes"]:
            # The default, which takes the whole memory, must not be tried here.
            told = {key: growth[key] for key in ("free_bytes", "total_bytes")}
            evidence["unknown"].append(statement("gpu_memory_in_use", **told))
            continue
        # If a variable forced memory growth on every process, the default would not be seen.
        unset: dict[str, str | None] = {"TF_FORCE_GPU_ALLOW_GROWTH": None} if name == "whole" else {}
        answer = child.fresh(trial, kind, limit_s=_LIMIT_S, environment=unset)
        if answer.failure is not None:
            return child.broken_off(name, answer, evidence)
        evidence[name] = answer.values if name == "leak" else answer.values[0]
    return judge_memory(evidence)


def _grow(tf: Any, kind: str) -> Iterator[dict[str, Any]]:
    tf.config.experimental.set_memory_growth(_only_first_gpu(tf), True)
    yield _taken_by_one_operation(tf)


def _take_whole(tf: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Try the default, and set growth when it is too late."""
    gpu = _only_first_gpu(tf)
    taken = _taken_by_one_operation(tf)
    yield {**taken, "late_growth": _error(lambda: tf.config.experimental.set_memory_growth(gpu, True))}


def _exhaust(tf: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Ask for more memory than there is; on a GPU, for more than the limit of a logical device."""
    on_gpu = kind == "GPU"
    device = _only_first_gpu(tf) if on_gpu else tf.config.list_physical_devices("CPU")[0]
    asked = _EXCEEDS if on_gpu else _IMPOSSIBLE
    one = [tf.config.LogicalDeviceConfiguration(memory_limit=_LIMIT // _MIB if on_gpu else None)]
    if on_gpu:
        tf.config.set_logical_device_configuration(device, one)
    with tf.device(f"/{kind}:0"):
        fits = _error(lambda: tf.zeros(_FITS // 4)) if on_gpu else None
        raised = _error(lambda: tf.zeros(asked // 4))
        total = float(tf.reduce_sum(tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64)))))
    yield {
        "limit_bytes": _LIMIT if on_gpu else None,
        "within_limit": fits,
        "asked_bytes": asked,
        "raised": raised,
        "recovered": total == 64.0**3,
        "peak_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"] if on_gpu else None,
        "late_configuration": _error(lambda: tf.config.set_logical_device_configuration(device, one * 2)),
    }


def _train(tf: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the bytes held after every few steps of training, as a graph and compiled."""
    if kind == "GPU":
        tf.config.experimental.set_memory_growth(_only_first_gpu(tf), True)
    size = SIZES["CPU"]
    with tf.device(f"/{kind}:0"):
        images, labels = batch(tf, size, EXAMPLES)
        for mode in (GRAPH, XLA):
            step = training_step(tf, size, mode)
            held = []
            for number in range(_WARM_UP + STEPS + 1):
                if number >= _WARM_UP and (number - _WARM_UP) % _STRIDE == 0:
                    if kind == "GPU":
                        held.append(int(tf.config.experimental.get_memory_info("GPU:0")["current"]))
                    else:
                        pages = Path("/proc/self/statm").read_text().split()[1]
                        held.append(int(pages) * os.sysconf("SC_PAGE_SIZE"))
                float(step(images, labels))
            measured = "allocator" if kind == "GPU" else "resident set"
            yield {"mode": mode, "measured": measured, "bytes": held, "growth_bytes": steady_growth(held)}


def steady_growth(held: list[int]) -> int:
    """Return the median growth between two readings, in bytes, times the number of such differences.

    A leak adds to every step. What grows once is not a leak: when the processors are busy, another thread may
    get a memory arena of its own in the middle of training.
    """
    differences = list(map(operator.sub, held[1:], held))
    return int(statistics.median(differences) * len(differences))


def _only_first_gpu(tf: Any) -> Any:
    """Return the first GPU; the others are hidden from TensorFlow."""
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([gpu], "GPU")
    return gpu


def _taken_by_one_operation(tf: Any) -> dict[str, Any]:
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


def _error(call: Callable[[], object]) -> dict[str, str] | None:
    try:
        call()
    except Exception as error:  # whatever it is, it is the answer
        return {"type": type(error).__name__, "message": str(error)[:300]}
    return None


def judge_memory(evidence: dict[str, Any]) -> Result:
    problems = []
    growth, whole, exhausted = evidence["growth"], evidence["whole"], evidence["exhausted"]
    if growth is not None and growth["taken_bytes"] > _SMALL * growth["free_bytes"]:
        told = {name: growth[name] for name in ("taken_bytes", "free_bytes")}
        problems.append(problem("growth_takes_too_much", **told))
    raised, limit, peak = exhausted["raised"], exhausted["limit_bytes"], exhausted["peak_bytes"]
    if raised is None:
        problems.append(problem("impossible_allocation_granted", asked_bytes=exhausted["asked_bytes"]))
    elif raised["type"] != "ResourceExhaustedError":
        problems.append(problem("exhaustion_raised_other", exception=raised["type"]))
    if exhausted["within_limit"] is not None:
        failed = exhausted["within_limit"]["type"]
        problems.append(problem("allocation_within_limit_failed", exception=failed))
    if limit is not None and peak > limit:
        problems.append(problem("memory_limit_exceeded", peak_bytes=peak, limit_bytes=limit))
    if not exhausted["recovered"]:
        problems.append(problem("wrong_after_exhaustion"))
    for entry in evidence["leak"]:
        if entry["growth_bytes"] > TOLERANCE:
            told = {"mode": entry["mode"], "growth_bytes": entry["growth_bytes"]}
            problems.append(problem("memory_grows_over_steps", **told, steps=STEPS))
    taken, everything = ((trial or {}).get("taken_bytes") for trial in (growth, whole))
    leaked = max(entry["growth_bytes"] for entry in evidence["leak"])
    told = {"device_type": evidence["device_type"], "growth_bytes": taken, "whole_bytes": everything}
    return judged(problems, statement("memory_holds", **told, steps=STEPS, leaked_bytes=leaked), evidence)
