"""How does XLA change the time of a training step, its memory and its number of kernels?

One convolutional classifier is trained eagerly, as a graph and compiled by XLA, in turns within one run, so
that anything else that disturbs the machine disturbs all three. XLA does not have to be faster: the ratios
are only measured. But all three must give the same results.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from ...problems import problem, statement
from .. import comparison, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged, skipped
from ..speed import EAGER, GRAPH, SIZES, XLA, Model, batch, ratios, spread
from ..tensorflow_devices import gpus

MODES = (EAGER, GRAPH, XLA)
#: Examples in a batch; the next size is tried when the GPU's memory doesn't hold one.
BATCHES = {"CPU": (32,), "GPU": (128, 32)}
#: Steps whose losses must agree, the first ones of a fresh model.
COMPARED = 5
#: For the tolerance of the losses, count the successive products in the larger model: two convolutions in
#: each of its eight blocks, and one before and one after them. Double that for the backward pass, and again
#: for the two modes that are compared. The difference was 4e-5 on a CPU and 1.5e-3 on an H200.
_ROUNDINGS = 2 * 2 * 2 * (2 * 8 + 2)
#: A round is a turn of each mode; a turn is this many steps, whose last loss is read back.
ROUNDS, STEPS = 15, 5
#: Seconds after which no further round begins, so that a slow machine does fewer rounds instead of timing
#: out.
_ENOUGH_S, _LEAST_ROUNDS = 30.0, 3
_PROFILED = 3


@dataclass
class Mode:
    """One way to run the step, with its measurements."""

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
    # The GPU is too small or in use, which is not a fault.
    return skipped(statement("memory_too_small", batch=examples, error=full[:200]))


def _measure(tf: Any, device_type: str, examples: int) -> Dict[str, Any]:
    size = SIZES[device_type]
    images, labels = batch(tf, size, examples)
    # The first convolution loads cuDNN, so run one before anything is timed.
    float(Model(tf, size).step(EAGER)(images, labels))
    held = _memory(tf, device_type)
    modes = [Mode(name, Model(tf, size).step(name)) for name in MODES]
    for mode in modes:
        _begin(mode, images, labels)
    started = time.monotonic()
    for number in range(ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() - started > _ENOUGH_S:
            break
        # Each mode goes first in turn.
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
        "memory_unknown": (
            None if held is not None else statement("allocator_keeps_no_count", device_type=device_type)
        ),
        "tolerance": comparison.tolerance(
            comparison.precision(tf), _ROUNDINGS, examples * size.image * size.image
        ),
        "largest_difference": _difference(modes),
    }


def _begin(mode: Mode, images: Any, labels: Any) -> None:
    """Run the steps that are compared; the first includes tracing and compiling."""
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
    """Return the bytes that the GPU's allocator has handed out; reset: start a new peak.

    None if the allocator does not count: the CPU's, and cudaMallocAsync's in some releases.
    """
    if device_type != "GPU":
        return None
    try:
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    except (ValueError, tf.errors.OpError):
        return None


def _count_kernels(
    tf: Any, device_type: str, modes: List[Mode], images: Any, labels: Any
) -> Optional[Dict[str, Any]]:
    """Set the kernels of a step in each mode, or return the reason why they are unknown."""
    if device_type != "GPU":
        return statement("kernels_only_on_gpu")

    def steps() -> None:
        for _ in range(_PROFILED):
            loss = mode.step(images, labels)
        float(loss)

    for mode in modes:
        try:
            seen = tensorflow_devices.record(tf, steps)
        except (OSError, ValueError, tf.errors.OpError) as error:
            return statement("profiler_failed", exception=type(error).__name__, message=str(error)[:200])
        kernels = sum(event.is_kernel for event in seen)
        if not kernels:
            return statement("profiler_saw_nothing")
        mode.kernels = kernels / _PROFILED
    return None


def _peak(mode: Mode, held: Optional[int], others: int) -> Optional[int]:
    """Return the most memory a step took, minus what was held before and the weights of the other models."""
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
    """Return the largest relative difference between any two modes' losses of one step."""
    worst = 0.0
    for losses in zip(*(mode.losses for mode in modes)):
        if not all(map(math.isfinite, losses)):
            return math.inf
        worst = max(worst, (max(losses) - min(losses)) / max(abs(min(losses)), 1e-6))
    return worst


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    xla, graph = (evidence["ratios"][name] for name in (f"{XLA}/{GRAPH}", f"{GRAPH}/{EAGER}"))
    return statement(
        "xla_step_times",
        device_type=evidence["device_type"],
        xla_graph=xla["step_time"],
        memory=xla["peak_bytes"],
        graph_eager=graph["step_time"],
    )


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for mode in evidence["modes"]:
        found += training.ran_elsewhere(mode["device"], evidence["device_type"], mode["mode"])
    difference, tolerance = evidence["largest_difference"], evidence["tolerance"]
    if not math.isfinite(difference):
        found.append(problem("loss_not_finite"))
    elif difference > tolerance:
        found.append(problem("modes_disagree", difference=difference, tolerance=tolerance))
    return found


CHECK = Check(
    id="xla_speedup",
    title="How does XLA change the time, memory and kernels of a training step?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
    required=False,
    depth=FULL,
)
