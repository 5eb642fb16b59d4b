"""Does training in mixed precision work here, does it agree with float32, and how fast is it?

The check compares Keras's policies `mixed_float16` and `mixed_bfloat16` with `float32`: the same model in
turns within one run, in an interpreter of its own, since a policy is global. A policy does not have to be
faster: without tensor cores it isn't, and on a CPU float16 is much slower. But it must give the same losses.
"""

import re
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import child, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged, skipped
from ..child import EXCEPTION
from ..speed import ratios, spread
from ..tensorflow_devices import gpus
from ..training import classifier, compile_model, describe

FULL_PRECISION = "float32"
#: Each policy with its type; the capability from which NVIDIA's GPUs have tensor cores for it (CUDA C++
#: Programming Guide, "Arithmetic instructions" and "Compute capability 8.x"); and the largest relative
#: difference of a loss from float32's: 11 and 8 significant bits, over a few steps.
POLICIES: Dict[str, Tuple[str, Tuple[int, int], float]] = {
    "mixed_float16": ("float16", (7, 0), 3e-2),
    "mixed_bfloat16": ("bfloat16", (8, 0), 8e-2),
}
#: Steps whose losses are compared.
COMPARED = 5
#: A round is a turn of each policy.
ROUNDS, STEPS = 9, 10
_ENOUGH_S, _LEAST_ROUNDS = 60.0, 3
_LIMIT_S = 400.0
#: As TensorFlow's profiler recognizes them (kernel_stats_utils.cc, IsKernelUsingTensorCore), and CUTLASS.
_TENSOR_CORES = re.compile(r"884|1688|16816|hmma|xmma|gmma|tensorop", re.IGNORECASE)


@dataclass(frozen=True)
class Size:
    """image: edge in pixels; width: channels of the first convolution; examples: in a batch. The width is a
    multiple of 8, as tensor cores need."""

    image: int
    width: int
    examples: int


#: The next size is used if a step in float32 takes less than `_LEAST_S`, which would measure the host.
SIZES = {"CPU": (Size(32, 8, 32),), "GPU": (Size(64, 256, 256), Size(64, 256, 1024))}
_LEAST_S = 0.02


def _run(context: Context) -> Result:
    answer = child.fresh(_trial, limit_s=_LIMIT_S)
    evidence: Dict[str, Any] = {}
    for value in answer.values:
        evidence.update(value)
    ended = answer.failure
    if ended is not None and ended.kind == EXCEPTION and ended.detail.startswith("ResourceExhausted"):
        # The GPU is too small or in use, which is not a fault.
        return skipped(statement("memory_too_small", batch=None, error=ended.detail[:200]), evidence)
    if ended is not None:
        return child.broken_off("mixed_precision", answer, evidence)
    evidence["tensor_cores"] = tensor_cores(context.facts["host"]["gpus"], evidence["device_type"])
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def tensor_cores(found: List[Dict[str, Any]], device_type: str) -> Dict[str, Optional[bool]]:
    """Return whether the first GPU has tensor cores for each type; None where that is unknown."""
    capability = found[0].get("compute_capability") if found and device_type == "GPU" else None
    if capability is None:
        return {name: None for name, _, _ in POLICIES.values()}
    return {name: leading_numbers(capability) >= needed for name, needed, _ in POLICIES.values()}


def _trial(tf: Any) -> Iterator[Dict[str, Any]]:
    """Train under each policy: first for the losses, then for the time."""
    device_type = "GPU" if gpus(tf) else "CPU"
    size = _fitting(tf, SIZES[device_type])
    yield {
        "device_type": device_type,
        "keras": describe(tf),
        "model": {"image": size.image, "width": size.width, "batch": size.examples},
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
    }
    images, labels = _batch(tf, size)
    data = _repeated(tf, images, labels)
    models = {policy: _model(tf, size, policy) for policy in (FULL_PRECISION, *POLICIES)}
    seen = {policy: _described(tf, model, images, labels) for policy, model in models.items()}
    taken = _times(models, data)
    policies = []
    for policy, model in models.items():
        kernels, on_tensor_cores = _kernels(tf, device_type, model, data)
        policies.append(
            {
                "policy": policy,
                **seen[policy],
                "step_s": spread(taken[policy]),
                "speedup": ratios(taken[FULL_PRECISION], taken[policy]),
                "kernels": kernels,
                "tensor_core_kernels": on_tensor_cores,
            }
        )
    yield {"policies": policies}


def _fitting(tf: Any, sizes: Tuple[Size, ...]) -> Size:
    for size in sizes[:-1]:
        model, data = _model(tf, size, FULL_PRECISION), _repeated(tf, *_batch(tf, size))
        _take(model, data)
        if _take(model, data) >= _LEAST_S:
            return size
    return sizes[-1]


def _repeated(tf: Any, images: Any, labels: Any) -> Any:
    return tf.data.Dataset.from_tensors((images, labels)).repeat()


def _batch(tf: Any, size: Size) -> Tuple[Any, Any]:
    """Return the images of `training`, resized and repeated."""
    images, labels = training.batch(tf)
    times = size.examples // training.BATCH
    images = tf.image.resize(images, (size.image, size.image), method="nearest")
    return tf.tile(images, (times, 1, 1, 1)), tf.tile(labels, (times,))


def _model(tf: Any, size: Size, policy: str) -> Any:
    precision = tf.keras.mixed_precision
    precision.set_global_policy(policy)
    try:
        return compile_model(tf, classifier(tf, size.image, size.width), jit_compile=False)
    finally:
        precision.set_global_policy(FULL_PRECISION)


def _described(tf: Any, model: Any, images: Any, labels: Any) -> Dict[str, Any]:
    """Return the losses of the first steps, and the types that they were computed in."""
    history = model.fit(images, labels, batch_size=len(labels), epochs=COMPARED, shuffle=False, verbose=0)
    layer = next(layer for layer in model.layers if "conv" in layer.name)
    return {
        "compute_dtype": str(layer.compute_dtype),
        "variable_dtype": str(layer.variable_dtype),
        "device": layer(images[:1]).device,
        "optimizer": type(model.optimizer).__name__,
        "losses": [float(loss) for loss in history.history["loss"]],
    }


def _times(models: Dict[str, Any], data: Any) -> Dict[str, List[float]]:
    """Return the seconds of a step under each policy, measured in turns, taking turns at going first."""
    taken: Dict[str, List[float]] = {policy: [] for policy in models}
    for model in models.values():
        _take(model, data)
    started, order = time.monotonic(), list(models)
    for number in range(ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() - started > _ENOUGH_S:
            break
        shift = number % len(order)
        for policy in order[shift:] + order[:shift]:
            taken[policy].append(_take(models[policy], data))
    return taken


def _take(model: Any, data: Any) -> float:
    start = time.perf_counter()
    model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0, shuffle=False)
    return (time.perf_counter() - start) / STEPS


def _kernels(tf: Any, device_type: str, model: Any, data: Any) -> Tuple[Optional[int], Optional[int]]:
    """Return the kernels of a turn, and how many have a name used for tensor cores; None where the profiler
    can't see them."""
    if device_type != "GPU":
        return None, None

    def turn() -> None:
        _take(model, data)

    try:
        seen = [event.name for event in tensorflow_devices.record(tf, turn) if event.is_kernel]
    except (OSError, ValueError, tf.errors.OpError):
        return None, None
    return (len(seen), sum(bool(_TENSOR_CORES.search(name)) for name in seen)) if seen else (None, None)


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    seen = {entry["policy"]: entry for entry in evidence["policies"]}
    expected = seen[FULL_PRECISION]["losses"]
    found = []
    for policy, entry in seen.items():
        found += training.ran_elsewhere(entry["device"], evidence["device_type"], policy)
        found += training.not_falling(entry["losses"], policy)
    for policy, (name, _, tolerance) in POLICIES.items():
        entry = seen[policy]
        entry["tolerance"] = tolerance
        entry["largest_difference"] = training.difference(entry["losses"], expected)
        if (entry["compute_dtype"], entry["variable_dtype"]) != (name, FULL_PRECISION):
            dtypes = {dtype: entry[dtype] for dtype in ("compute_dtype", "variable_dtype")}
            found.append(problem("policy_not_followed", policy=policy, **dtypes))
        found += training.losses_differ("float32", entry, policy)
    if "LossScale" not in seen["mixed_float16"]["optimizer"]:
        found.append(problem("no_loss_scaling"))
    return found


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    seen = {entry["policy"]: entry for entry in evidence["policies"]}
    gains = [
        {
            "type": name,
            "speedup": seen[policy]["speedup"],
            "tensor_cores": evidence["tensor_cores"][name],
        }
        for policy, (name, _, _) in POLICIES.items()
    ]
    return statement("policies_train", device_type=evidence["device_type"], gains=gains)


CHECK = Check(
    id="mixed_precision",
    title="Do the float16 and bfloat16 policies agree with float32, and how fast are they?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=450,
    required=False,
    depth=FULL,
)
