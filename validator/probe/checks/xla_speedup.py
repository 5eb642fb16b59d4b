"""What does XLA change: the time of a training step, the memory it takes, the number of kernels?

One convolutional classifier is trained eager, as a graph and compiled by XLA, in turns within one run, so
that whatever else disturbs the machine disturbs all three. That XLA is faster is no condition: the ratios are
what was measured. That all three compute the same is one.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from .. import xplane
from ..check import FAIL, FULL, PASS, SKIP, TENSORFLOW, Check, Context, Result
from ..devices import gpus
from ..figures import ratios, said, spread
from ..resnet import EAGER, GRAPH, SIZES, XLA, Model, batch

MODES = (EAGER, GRAPH, XLA)
#: Examples in a batch; the next when the GPU's memory does not hold one.
BATCHES = {"CPU": (32,), "GPU": (128, 32)}
#: Steps whose losses must agree, the first ones of a fresh model.
COMPARED = 5
#: Largest relative difference between their losses; 4e-5 was measured on the CPU. On a GPU with
#: TensorFloat-32, as users train, and with convolution algorithms that each mode chooses by itself.
TOLERANCE = {"CPU": 3e-4, "GPU": 2e-2}
#: A round is a turn of each mode; a turn is so many steps, whose last loss is read back.
ROUNDS, STEPS = 15, 5
#: Seconds after which no further round begins, so that a slow machine has fewer and not a timeout.
_ENOUGH_S, _LEAST_ROUNDS = 30.0, 3
_PROFILED = 3


@dataclass
class Mode:
    """One way to run the step, and what was seen of it."""

    name: str
    step: Callable[[Any, Any], Any]
    losses: List[float] = field(default_factory=list)
    first_step_s: float = 0.0
    step_s: List[float] = field(default_factory=list)
    peak_bytes: List[int] = field(default_factory=list)
    kernels: Optional[float] = None
    device: str = ""


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    with tf.device(f"/{device_type}:0"):
        for examples in BATCHES[device_type]:
            try:
                return _judged(_measure(tf, device_type, examples))
            except tf.errors.ResourceExhaustedError as error:
                full = str(error).splitlines()[0]
    # Of a GPU that is too small, or in use: nobody's fault.
    return Result(SKIP, f"the GPU's memory does not hold a batch of {examples}: {full[:200]}")


def _measure(tf: Any, device_type: str, examples: int) -> Dict[str, Any]:
    size = SIZES[device_type]
    images, labels = batch(tf, size, examples)
    # The first convolution loads cuDNN: before anything is timed.
    float(Model(tf, size).step(EAGER)(images, labels))
    held = _memory(tf, device_type)
    modes = [Mode(name, Model(tf, size).step(name)) for name in MODES]
    for mode in modes:
        _begin(mode, images, labels)
    started = time.monotonic()
    for number in range(ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() - started > _ENOUGH_S:
            break
        # Each in turn goes first.
        for mode in modes[number % 3 :] + modes[: number % 3]:
            _turn(tf, device_type, mode, images, labels)
    others = (len(modes) - 1) * Model(tf, size).weight_bytes
    kernels_unknown = _count_kernels(tf, device_type, modes, images, labels)
    return {
        "device_type": device_type,
        "model": {"image": size.image, "width": size.width, "blocks": list(size.blocks), "batch": examples},
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "steps_a_turn": STEPS,
        "modes": [_seen(mode, held, others) for mode in modes],
        "ratios": _ratios({mode.name: mode for mode in modes}, held, others),
        "kernels_unknown": kernels_unknown,
        "memory_unknown": None if held is not None else _no_memory(device_type),
        "tolerance": TOLERANCE[device_type],
        "largest_difference": _difference(modes),
    }


def _begin(mode: Mode, images: Any, labels: Any) -> None:
    """The steps that are compared; the first includes tracing and compiling."""
    for number in range(COMPARED):
        start = time.perf_counter()
        loss = mode.step(images, labels)
        mode.losses.append(float(loss))
        if number == 0:
            mode.first_step_s = time.perf_counter() - start
        mode.device = loss.device


def _turn(tf: Any, device_type: str, mode: Mode, images: Any, labels: Any) -> None:
    reset = _memory(tf, device_type, reset=True) is not None
    start = time.perf_counter()
    for _ in range(STEPS):
        loss = mode.step(images, labels)
    float(loss)
    mode.step_s.append((time.perf_counter() - start) / STEPS)
    if reset:
        mode.peak_bytes.append(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def _memory(tf: Any, device_type: str, reset: bool = False) -> Optional[int]:
    """Bytes that the GPU's allocator has handed out; `reset`: count the peak anew. None where it keeps no
    count, as the CPU's does not, nor cudaMallocAsync's in some releases."""
    if device_type != "GPU":
        return None
    try:
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    except (ValueError, tf.errors.OpError):
        return None


def _no_memory(device_type: str) -> str:
    return "the CPU's allocator keeps no count" if device_type == "CPU" else "this allocator keeps no count"


def _count_kernels(tf: Any, device_type: str, modes: List[Mode], images: Any, labels: Any) -> Optional[str]:
    """Kernels of a step into each mode; why not, or None."""
    if device_type != "GPU":
        return "there are kernels on a GPU only"

    def steps() -> None:
        for _ in range(_PROFILED):
            loss = mode.step(images, labels)
        float(loss)

    for mode in modes:
        try:
            seen = xplane.record(tf, steps)
        except (OSError, ValueError, tf.errors.OpError) as error:
            return f"the profiler does not work here: {type(error).__name__}: {str(error)[:200]}"
        kernels = sum(event.is_kernel for event in seen)
        if not kernels:
            return "the profiler saw no kernel (CUPTI may be missing, or not permitted)"
        mode.kernels = kernels / _PROFILED
    return None


def _peak(mode: Mode, held: Optional[int], others: int) -> Optional[int]:
    """The most memory a step took, without what lay there before and without the other models' weights."""
    return max(mode.peak_bytes) - held - others if held is not None and mode.peak_bytes else None


def _seen(mode: Mode, held: Optional[int], others: int) -> Dict[str, Any]:
    usual = spread(mode.step_s)
    assert usual is not None
    return {
        "mode": mode.name,
        "device": mode.device,
        "step_s": usual,
        "first_step_s": mode.first_step_s,
        "compile_s": None if mode.name == EAGER else max(0.0, mode.first_step_s - usual["median"]),
        "peak_bytes": _peak(mode, held, others),
        "kernels_per_step": mode.kernels,
        "losses": mode.losses,
    }


def _ratios(modes: Dict[str, Mode], held: Optional[int], others: int) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for above, below in ((GRAPH, EAGER), (XLA, GRAPH), (XLA, EAGER)):
        left, right = modes[above], modes[below]
        found[f"{above}/{below}"] = {
            "step_time": ratios(left.step_s, right.step_s),
            "peak_bytes": _over(_peak(left, held, others), _peak(right, held, others)),
            "kernels": _over(left.kernels, right.kernels),
        }
    return found


def _over(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above is not None and below else None


def _difference(modes: List[Mode]) -> float:
    """The largest relative difference between any two modes' losses of one step."""
    worst = 0.0
    for losses in zip(*(mode.losses for mode in modes)):
        if not all(map(math.isfinite, losses)):
            return math.inf
        worst = max(worst, (max(losses) - min(losses)) / max(abs(min(losses)), 1e-6))
    return worst


def _judged(evidence: Dict[str, Any]) -> Result:
    faults = _faults(evidence)
    if not math.isfinite(evidence["largest_difference"]):
        evidence["largest_difference"] = None
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    ratio = evidence["ratios"][f"{XLA}/{GRAPH}"]
    memory = "" if ratio["peak_bytes"] is None else f" and {ratio['peak_bytes']:.2f} of its memory"
    graph = said(evidence["ratios"][f"{GRAPH}/{EAGER}"]["step_time"])
    return Result(
        PASS,
        f"on the {evidence['device_type']} a step compiled by XLA takes {said(ratio['step_time'])} of the"
        f" time of a graph's{memory}; a graph's takes {graph} of an eager one's",
        evidence,
    )


def _faults(evidence: Dict[str, Any]) -> List[str]:
    wanted = evidence["device_type"]
    faults = [
        f"the {mode['mode']} step ran on {mode['device']}, not on the {wanted}"
        for mode in evidence["modes"]
        if f"{wanted}:" not in mode["device"]
    ]
    difference = evidence["largest_difference"]
    if not math.isfinite(difference):
        faults.append("a loss is not finite")
    elif difference > evidence["tolerance"]:
        faults.append(f"eager, graph and XLA disagree: their losses differ by {difference:.1e}")
    return faults


CHECK = Check(
    id="xla_speedup",
    title="what XLA changes: step time, memory and kernels, against graph and eager",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
    required=False,
    depth=FULL,
)
