"""The speed of a training step, eager, as a graph and compiled, on a model that others measure with too.

The model is a residual convolutional classifier from plain operations. `training` has the smallest model that
shows that a step works; this one has what makes real models fast or slow: many convolutions, batch
normalization, elementwise operations between them. The shape is that of ResNet-18 (He et al. 2015,
arXiv:1512.03385), without its first pooling.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, TypeVar

from ...problems import problem, statement
from .. import child, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Context, Result, check, judged, skipped
from ..tensorflow_devices import device_type
from ..xla import parse, unknown_flags

LEARNING_RATE = 0.01
EAGER, GRAPH, XLA = "eager", "graph", "xla"
Run = TypeVar("Run")


@dataclass(frozen=True)
class Size:
    """image: edge in pixels; width: channels of the first stage; blocks: residual blocks of each stage, of
    which each has twice the channels and half the edge of the one before."""

    image: int
    width: int
    blocks: tuple[int, ...]
    classes: int = 10

    @property
    def described(self) -> dict[str, Any]:
        """Return what the evidence says about the model."""
        return {"image": self.image, "width": self.width, "blocks": list(self.blocks)}


#: A step must take long enough that what the host does around it is small: on a GPU a few milliseconds, at
#: a batch of 128. On two cores of a CPU it takes about 0.1 s at a batch of 32.
SIZES: dict[str, Size] = {
    "CPU": Size(image=32, width=16, blocks=(1, 1, 1)),
    "GPU": Size(image=112, width=64, blocks=(2, 2, 2, 2)),
}


def batch(tf: Any, size: Size, examples: int) -> tuple[Any, Any]:
    """Return images `[examples, image, image, 3]` that can be told apart, and labels; the same each time."""
    labels = tf.range(examples, dtype=tf.int32) % size.classes
    prototypes = tf.random.stateless_normal((size.classes, 8, 8, 3), seed=(1, 0))
    images = tf.image.resize(tf.gather(prototypes, labels), (size.image, size.image), method="nearest")
    return images + 0.1 * tf.random.stateless_normal(images.shape, seed=(2, 0)), labels


def _strides(size: Size) -> Iterator[tuple[int, int]]:
    """Yield each block's strides and channels: each stage but the first begins by halving the edge."""
    for stage, blocks in enumerate(size.blocks):
        for block in range(blocks):
            yield 2 if stage and not block else 1, size.width * 2**stage


def shapes(size: Size) -> list[tuple[int, ...]]:
    """Return the shapes of the weights, in the order in which the forward pass uses them."""
    convolutions, channels = [(3, 3, size.width)], size.width
    for strides, wider in _strides(size):
        if strides > 1:
            convolutions.append((1, channels, wider))
        convolutions += [(3, channels, wider), (3, wider, wider)]
        channels = wider
    found: list[tuple[int, ...]] = []
    for edge, before, after in convolutions:
        # The kernel, and the scale and offset of the normalization that follows.
        found += [(edge, edge, before, after), (after,), (after,)]
    return [*found, (channels, size.classes)]


def weight_bytes(size: Size) -> int:
    return 4 * sum(math.prod(shape) for shape in shapes(size))


def training_step(tf: Any, size: Size, mode: str) -> Callable[[Any, Any], Any]:
    """Return one step of gradient descent of a new model, `(images, labels) -> loss`, run as `mode` says.

    Two models of one size start equal: kernels as in He et al. 2015 (arXiv:1502.01852), scales of 1, offsets
    of 0.
    """
    weights = []
    for number, shape in enumerate(shapes(size)):
        if len(shape) > 1:
            deviation = math.sqrt(2.0 / math.prod(shape[:-1]))
            start = deviation * tf.random.stateless_normal(shape, seed=(3, number))
        else:
            start = tf.ones(shape) if number % 3 == 1 else tf.zeros(shape)
        weights.append(tf.Variable(start))

    def logits_of(images: Any) -> Any:
        left = iter(weights)

        def convolve(values: Any, strides: int) -> Any:
            values = tf.nn.conv2d(values, next(left), strides=strides, padding="SAME")
            # As Keras calls it: one kernel of cuDNN, and not the operations it is made of.
            return tf.compat.v1.nn.fused_batch_norm(values, next(left), next(left))[0]

        hidden = tf.nn.relu(convolve(images, 2))
        for strides, _ in _strides(size):
            shortcut = convolve(hidden, strides) if strides > 1 else hidden
            inner = tf.nn.relu(convolve(hidden, strides))
            hidden = tf.nn.relu(shortcut + convolve(inner, 1))
        return tf.linalg.matmul(tf.reduce_mean(hidden, axis=(1, 2)), next(left))

    def train(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = logits_of(images)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss

    if mode == EAGER:
        return train
    function: Callable[[Any, Any], Any] = tf.function(train, jit_compile=mode == XLA, autograph=False)
    return function


def spread(samples: Sequence[float]) -> dict[str, float] | None:
    """Return median, quartiles, extremes and number of the samples; None where there are none.

    A single measurement on a busy machine says little.
    """
    if not samples:
        return None
    first = median = third = samples[0]
    if len(samples) > 1:
        first, median, third = statistics.quantiles(samples, n=4, method="inclusive")
    extremes = {"min": min(samples), "max": max(samples)}
    return {"median": median, "q1": first, "q3": third, **extremes, "samples": len(samples)}


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, float] | None:
    """Return the spread of `above / below`, pair by pair: both samples of a pair share their disturbances."""
    return spread([left / right for left, right in zip(above, below) if right > 0])


def turns(runs: Sequence[Run], most: int, enough_s: float) -> Iterator[Run]:
    """Yield each of the runs once in every round, each round beginning with another one.

    There are at least three rounds, and then more until there are `most` or `enough_s` seconds are over: a
    slow machine does fewer instead of timing out.
    """
    started = time.monotonic()
    for number in range(most):
        if number >= 3 and time.monotonic() - started > enough_s:
            return
        first = number % len(runs)
        yield from (*runs[first:], *runs[:first])


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
_PROFILED = 3


@dataclass
class Mode:
    """One way to run the step, with its measurements."""

    name: str
    step: Callable[[Any, Any], Any]
    losses: list[float] = field(default_factory=list)
    first_step_s: float = 0.0
    step_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    kernels: float | None = None
    device: str = ""


@check("How does XLA change the time, memory and kernels of a training step?", TENSORFLOW, 600, depth=FULL)
def xla_speedup(context: Context) -> Result:
    """Train one classifier eagerly, as a graph and compiled by XLA, in turns within one run.

    Anything else that disturbs the machine then disturbs all three. XLA does not have to be faster: the
    ratios are only measured. But all three must give the same results.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    with tf.device(f"/{kind}:0"):
        for examples in BATCHES[kind]:
            try:
                return judge_xla_speedup(_measure(tf, kind, examples))
            except tf.errors.ResourceExhaustedError as error:
                full = str(error).splitlines()[0]
    # The GPU is too small or in use, which is not a fault.
    return skipped(statement("memory_too_small", batch=examples, error=full[:200]))


def _measure(tf: Any, kind: str, examples: int) -> dict[str, Any]:
    size = SIZES[kind]
    images, labels = batch(tf, size, examples)
    # The first convolution loads cuDNN, so run one before anything is timed.
    float(training_step(tf, size, EAGER)(images, labels))
    held = tensorflow_devices.allocated(tf) if kind == "GPU" else None
    modes = [Mode(name, training_step(tf, size, name)) for name in MODES]
    for mode in modes:
        for number in range(COMPARED):
            start = time.perf_counter()
            loss = mode.step(images, labels)
            mode.losses.append(float(loss))
            if number == 0:
                # With tracing and compiling.
                mode.first_step_s = time.perf_counter() - start
            mode.device = loss.device
    for mode in turns(modes, ROUNDS, 30.0):
        _turn(tf, kind, mode, images, labels)
    # A model's own share is what its steps took, without what was held before and the other models' weights.
    others = None if held is None else held["current"] + (len(modes) - 1) * weight_bytes(size)
    kernels_unknown = count_kernels(tf, kind, modes, images, labels)
    unknown = statement("allocator_keeps_no_count", device_type=kind) if held is None else None
    return {
        "device_type": kind,
        "model": {**size.described, "batch": examples},
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "steps_a_turn": STEPS,
        **described(modes, others),
        "kernels_unknown": kernels_unknown,
        "memory_unknown": unknown,
        "tolerance": _tolerance(tf, size, examples),
        "largest_difference": difference(modes),
    }


def _tolerance(tf: Any, size: Size, examples: int) -> float:
    return training.tolerance(training.precision(tf), _ROUNDINGS, examples * size.image * size.image)


def _turn(tf: Any, kind: str, mode: Mode, images: Any, labels: Any) -> None:
    counted = tensorflow_devices.allocated(tf, reset=True) if kind == "GPU" else None
    start = time.perf_counter()
    for _ in range(STEPS):
        loss = mode.step(images, labels)
    float(loss)
    mode.step_s.append((time.perf_counter() - start) / STEPS)
    if counted is not None:
        mode.peak_bytes.append(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def count_kernels(tf: Any, kind: str, modes: list[Mode], images: Any, labels: Any) -> dict[str, Any] | None:
    """Set the kernels of a step in each mode, or return the reason why they are unknown."""
    if kind != "GPU":
        return statement("kernels_only_on_gpu")

    def steps() -> None:
        for _ in range(_PROFILED):
            loss = mode.step(images, labels)
        float(loss)

    for mode in modes:
        seen, unknown = tensorflow_devices.kernels(tf, steps)
        if unknown is not None:
            return unknown
        mode.kernels = len(seen) / _PROFILED
    return None


def described(modes: list[Mode], others: int | None) -> dict[str, Any]:
    """Return `modes` and `ratios` of the evidence.

    others: bytes that were held beside a mode's own; None where the allocator doesn't count.
    """
    seen: dict[str, dict[str, Any]] = {}
    for mode in modes:
        usual = spread(mode.step_s)
        assert usual is not None
        counted = others is not None and mode.peak_bytes
        seen[mode.name] = {
            "mode": mode.name,
            "device": mode.device,
            "step_s": usual,
            "first_step_s": mode.first_step_s,
            "compile_s": None if mode.name == EAGER else max(0.0, mode.first_step_s - usual["median"]),
            "peak_bytes": max(mode.peak_bytes) - others if counted and others is not None else None,
            "kernels_per_step": mode.kernels,
            "losses": mode.losses,
        }
    samples = {mode.name: mode.step_s for mode in modes}
    compared: dict[str, dict[str, Any]] = {}
    for above, below in ((GRAPH, EAGER), (XLA, GRAPH), (XLA, EAGER)):
        found: dict[str, Any] = {"step_time": ratios(samples[above], samples[below])}
        for name, key in (("peak_bytes", "peak_bytes"), ("kernels", "kernels_per_step")):
            one, other = seen[above][key], seen[below][key]
            found[name] = one / other if one is not None and other else None
        compared[f"{above}/{below}"] = found
    return {"modes": list(seen.values()), "ratios": compared}


def difference(modes: list[Mode]) -> float:
    """Return the largest relative difference between any two modes' losses of one step."""
    worst = 0.0
    for losses in zip(*(mode.losses for mode in modes)):
        if not all(map(math.isfinite, losses)):
            return math.inf
        worst = max(worst, (max(losses) - min(losses)) / max(abs(min(losses)), 1e-6))
    return worst


def judge_xla_speedup(evidence: dict[str, Any]) -> Result:
    problems = []
    for mode in evidence["modes"]:
        problems += training.ran_elsewhere(mode["device"], evidence["device_type"], mode["mode"])
    found, tolerance = evidence["largest_difference"], evidence["tolerance"]
    if not math.isfinite(found):
        problems.append(problem("loss_not_finite"))
    elif found > tolerance:
        problems.append(problem("modes_disagree", difference=found, tolerance=tolerance))
    xla, graph = (evidence["ratios"][name] for name in (f"{XLA}/{GRAPH}", f"{GRAPH}/{EAGER}"))
    told = {"xla_graph": xla["step_time"], "memory": xla["peak_bytes"], "graph_eager": graph["step_time"]}
    return judged(
        problems, statement("xla_step_times", device_type=evidence["device_type"], **told), evidence
    )


#: What XLA keeps on disk: the variable that takes the flag, the beginning of the variable's flags, the flag.
CACHES = (
    ("TF_XLA_FLAGS", "tf_xla_", "tf_xla_persistent_cache_directory"),
    ("XLA_FLAGS", "xla_", "xla_gpu_per_fusion_autotune_cache_dir"),
)
_FIRST_STEP_S = 280.0
FIRST, SECOND = "first", "second"


@check(
    "Does a second process find what XLA compiled in the first, and compute the same?",
    TENSORFLOW,
    limit_s=600,
    requires=("gpu",),
    depth=FULL,
)
def xla_cache(context: Context) -> Result:
    """Train the model of `xla_speedup` in two fresh interpreters, the second with the cache of the first.

    The entry point of an image sets these flags. Neither process may find what the driver or an earlier run
    has kept, so the cache of CUDA is in the same directory.
    """
    facts = context.facts["tensorflow"]
    evidence: dict[str, Any] = {"device_type": device_type(context.tensorflow), FIRST: None, SECOND: None}
    with tensorflow_devices.dump() as directory:
        environment: dict[str, str | None] = {"CUDA_CACHE_PATH": os.path.join(directory, "cuda")}
        evidence["flags"] = []
        for variable, prefix, name in CACHES:
            flag = f"--{name}={directory}"
            if not unknown_flags(parse(flag), prefix, facts["directory"]):
                environment[variable] = f"{os.environ.get(variable, '')} {flag}".strip()
                evidence["flags"].append(f"--{name}")
        if not any(flag.startswith("--tf_xla_") for flag in evidence["flags"]):
            return skipped(statement("xla_cache_unknown"), evidence)
        for turn in (FIRST, SECOND):
            answer = child.fresh(
                _first_steps, evidence["device_type"], limit_s=_FIRST_STEP_S, environment=environment
            )
            if answer.failure is not None:
                return child.broken_off(f"xla_cache_{turn}", answer, evidence)
            sizes = [path.stat().st_size for path in Path(directory).iterdir()]
            kept = {"programs": len(list(Path(directory).glob("*.pb"))), "bytes": sum(sizes)}
            evidence[turn] = {**answer.values[0], **kept}
    return judge_xla_cache(evidence)


def _first_steps(tf: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Train a compiled model. A convolution outside of XLA comes first, because it loads cuDNN."""
    tensorflow_devices.gpus(tf)
    size, examples = SIZES[kind], BATCHES[kind][-1]
    with tf.device(f"/{kind}:0"):
        images, labels = batch(tf, size, examples)
        float(training_step(tf, size, EAGER)(images, labels))
        step, losses, seconds = training_step(tf, size, XLA), [], []
        for _ in range(COMPARED):
            start = time.perf_counter()
            losses.append(float(step(images, labels)))
            seconds.append(time.perf_counter() - start)
    yield {
        "first_step_s": seconds[0],
        "compile_s": max(0.0, seconds[0] - statistics.median(seconds[1:])),
        "losses": losses,
        "tolerance": _tolerance(tf, size, examples),
    }


def judge_xla_cache(evidence: dict[str, Any]) -> Result:
    first, second, problems = evidence[FIRST], evidence[SECOND], []
    evidence["largest_difference"] = training.difference(second["losses"], first["losses"])
    evidence["ratio"] = second["first_step_s"] / first["first_step_s"]
    if not first["programs"]:
        problems.append(problem("xla_cache_empty"))
    elif second["programs"] > first["programs"]:
        problems.append(problem("xla_cache_missed", programs=second["programs"] - first["programs"]))
    if evidence["largest_difference"] > first["tolerance"]:
        found = {"difference": evidence["largest_difference"], "tolerance": first["tolerance"]}
        problems.append(problem("xla_cache_differs", **found))
    passed = statement("xla_cache_used", ratio=evidence["ratio"], programs=first["programs"])
    return judged(problems, passed, evidence)
