"""The model that checks train, and the comparison of results with a reference.

A small convolutional classifier and its training step, from plain operations. No Keras: it would take seconds
to import, and the probe must work the same with Keras 2 and 3.

The comparison is the one place for tolerances, and for what full float32 adds. Every check computes as users
do, in TensorFlow's defaults: on GPUs of compute capability 8.0 and later, float32 products round their
factors to TensorFloat-32. What fails there is a fault. `also_in_float32` runs the same programs again with
TensorFloat-32 off; what fails only there is a limit.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..problems import FAULT, clause, problem
from ..version_numbers import leading_numbers
from . import child, tensorflow_devices
from .check import ERROR, PASS, Context, Result
from .tensorflow_devices import gpus, telling_line

CLASSES = 10
BATCH = 32
LEARNING_RATE = 0.05
#: For `comparison.tolerance`: a step has three products, and for each two products in its gradient, of two
#: factors each. The longest sum is the gradient by the first filter, over the positions of a batch.
ROUNDINGS, LENGTH = 3 * 3 * 2, BATCH * 8 * 8


@dataclass(frozen=True)
class Run:
    """The loss of each step, its gradient by the last layer, and its seconds (with reading the result)."""

    losses: list[float]
    gradients: list[Any]
    seconds: list[float]
    device: str


def batch(tf: Any) -> tuple[Any, Any]:
    """Return images `[BATCH, 16, 16, 3]` that can be told apart, and their labels; the same on every call."""
    labels = tf.range(BATCH, dtype=tf.int32) % CLASSES
    prototypes = tf.random.stateless_normal((CLASSES, 16, 16, 3), seed=(1, 0))
    noise = tf.random.stateless_normal((BATCH, 16, 16, 3), seed=(2, 0))
    return tf.gather(prototypes, labels) + 0.1 * noise, labels


def step(tf: Any, compiled: bool) -> Any:
    """Return a `tf.function` that trains a fresh copy of the model by one step.

    It returns the loss and the gradient by the last layer.
    """
    shapes = ((3, 3, 3, 8), (3, 3, 8, 16), (4 * 4 * 16, CLASSES))
    weights = [
        tf.Variable(0.1 * tf.random.stateless_normal(shape, seed=(3, number)))
        for number, shape in enumerate(shapes)
    ]

    def train(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = images
            for kernel in weights[:2]:
                hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, strides=2, padding="SAME"))
            logits = tf.linalg.matmul(tf.reshape(hidden, (BATCH, -1)), weights[2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss, gradients[-1]

    return tf.function(train, jit_compile=compiled, autograph=False)


def run(train: Any, images: Any, labels: Any, steps: int) -> Run:
    """Take `steps` steps; the first one's time includes tracing and compilation."""
    losses, seconds, gradients = [], [], []
    device = ""
    for _ in range(steps):
        start = time.perf_counter()
        loss, gradient = train(images, labels)
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
        gradients.append(gradient.numpy())
        device = loss.device
    return Run(losses, gradients, seconds, device)


def apart(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference of two runs' gradients, or updates, by the last layer at each step.

    It is a share of the largest value at that step, and infinity where one is not finite. The first of them
    depends on all products of the forward pass, the later ones on those of the backward pass too. A kernel
    that loses a fifth of its terms changes them by more than half, but the losses by only some percent. The
    gradients by the other layers are left out: rounding turns single ReLUs of theirs on or off, and a batch
    normalization makes their sums cancel, which no tolerance derived from the sums allows for.
    """
    differences = [largest_share(left, right) for left, right in zip(found, expected)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def largest_share(found: Any, expected: Any) -> float:
    """Return the largest difference of two arrays, as a share of the largest value of the expected one."""
    return float(abs(found - expected).max() / abs(expected).max())


def difference(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the largest relative difference between two runs' losses; infinity where one is not finite."""
    if not all(map(math.isfinite, (*left, *right))):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(left, right))


# Problems of a training run that several checks report. mode: the way it ran, if a check tries several.


def ran_elsewhere(device: str, wanted: str, mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that a step ran on another kind of device (`GPU`, `CPU`) than it should have."""
    if f"{wanted}:" in device:
        return []
    return [problem("step_ran_elsewhere", mode=mode, device=device, wanted=wanted)]


def not_falling(losses: Sequence[float], mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that the loss doesn't fall, or isn't finite."""
    if all(map(math.isfinite, losses)) and losses[-1] < losses[0]:
        return []
    return [problem("loss_does_not_fall", mode=mode, first=losses[0], last=losses[-1])]


def losses_differ(
    reference: str, found: dict[str, Any], mode: str | None = None, code: str = "losses_differ"
) -> list[dict[str, Any]]:
    """Return the problem that `largest_difference` is above `tolerance`, or isn't a number.

    reference: a word of the vocabulary `reference`, for what they were compared with.
    """
    difference, tolerance = found["largest_difference"], found["tolerance"]
    if difference <= tolerance:
        return []
    fields = {"mode": mode, "reference": reference, "difference": difference, "tolerance": tolerance}
    return [problem(code, **fields)]


def gradients_differ(reference: str, found: dict[str, Any], mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that the gradients or updates differ, as `losses_differ` does."""
    return losses_differ(reference, found, mode, "step_gradients_differ")


# The same classifier as a user of Keras would write it, for Keras 2, Keras 3 and tf_keras.

#: High enough that five steps show in the loss, low enough that the largest model stays stable.
KERAS_LEARNING_RATE = 0.1


def describe(tf: Any) -> dict[str, Any]:
    """Return which Keras `tf.keras` is: `package` (`tf_keras` with `TF_USE_LEGACY_KERAS`) and `version`."""
    package = tf.keras.Model.__module__.partition(".")[0]
    return {"package": package, "version": getattr(sys.modules[package], "__version__", None)}


def major(description: dict[str, Any]) -> int | None:
    """Return 2 or 3; None where the version is unknown."""
    numbers = leading_numbers(str(description["version"]))
    return numbers[0] if numbers else None


def classifier(tf: Any, image: int = 16, width: int = 8) -> Any:
    """Return a small convolutional model, untrained; it has the same weights each time.

    image: edge in pixels; width: channels of the first convolution, of which the second has twice as many.
    """
    keras = tf.keras
    keras.utils.set_random_seed(1)
    inputs = keras.Input((image, image, 3))
    hidden = keras.layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(inputs)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Conv2D(2 * width, 3, strides=2, padding="same", activation="relu")(hidden)
    # Over the whole image, so that the size of the image does not change the size of the gradients.
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    # Under a policy of mixed precision the logits stay in float32, as Keras's guide to it asks.
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(hidden))


def compile_model(tf: Any, model: Any, loss: Any | None = None, **settings: Any) -> Any:
    keras = tf.keras
    model.compile(
        optimizer=keras.optimizers.SGD(KERAS_LEARNING_RATE),
        loss=loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **settings,
    )
    return model


def fit(model: Any, images: Any, labels: Any, steps: int) -> tuple[list[float], list[Any]]:
    """Train a Keras model; return each step's loss, and what all steps so far added to the last layer."""
    kernel = model.layers[-1].kernel
    before, losses, updates = kernel.numpy(), [], []
    for _ in range(steps):
        told = model.fit(images, labels, batch_size=len(labels), epochs=1, shuffle=False, verbose=0)
        losses.append(float(told.history["loss"][0]))
        updates.append(kernel.numpy() - before)
    return losses, updates


#: Names of tensors with their values.
Results = dict[str, Any]

#: Precisions: what a type computes in. FLOAT32 is that of devices without TensorFloat-32, FULL_FLOAT32 that
#: of devices on which it was turned off.
FLOAT32, FULL_FLOAT32, TF32 = "float32", "full_float32", "tf32"
#: The unit roundoff u of each: 2^-p for p significant bits, the implicit one included. IEEE 754 for float32
#: (24) and float16 (11); bfloat16 has 8 (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed.,
#: section 2.1, defines u). TensorFloat-32 has 11 (NVIDIA, "Ampere GA102 GPU Architecture", and the blog
#: "Accelerating AI Training with NVIDIA TF32 Tensor Cores"), but tensor cores ignore the lower 13 bits of a
#: float32 if nothing rounded it before (PTX ISA, "mma": `.tf32`), so u is 2^-10.
_ROUNDOFF = {
    FLOAT32: 2.0**-24,
    FULL_FLOAT32: 2.0**-24,
    TF32: 2.0**-10,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
#: The quantile of the statistical bound. With lambda = 8 a result that is computed right is above it with a
#: probability of 2 exp(-lambda^2 / 2) = 3e-14, so of a million results hardly ever one.
_LAMBDA = 8.0
#: What algorithms cost that don't sum products: convolutions by a transform (Winograd, FFT) were seen to
#: differ by up to 1e-4 in float32, recurrent kernels approximate their activations.
_BY_SUMS, _BY_TRANSFORM = 1e-4, 1e-3
#: In some releases, XLA and cuDNN's recurrent kernels round to TensorFloat-32 even if TensorFlow turned it
#: off. So a difference of up to ten such roundings is not a limit.
_TOLD = 10 * 2.0**-11


def tolerance(precision: str, roundings: int, length: int, *, sums_only: bool = False) -> float:
    """Return the largest difference that rounding explains, as a share of the reference's largest magnitude.

    precision: that of the factors; products are summed in float32. roundings: how often a value is rounded
    to it on the longest way from an input to a result, two for each product (both factors) and one for each
    value that is stored in the type. length: terms in the longest sum. sums_only: only sums of products, so
    no convolution and no approximated function.

    Errors of independent roundings with a mean of zero add up like a random walk (Higham and Mary, "A New
    Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019: lambda sqrt(n) u
    instead of the n u of the worst case), and one rounding has a standard deviation of at most u / sqrt(3)
    (uniform over an interval of 2 u). The factors contribute u sqrt(roundings / 3), the sum itself
    sqrt(length) 2^-24. A wrong kernel differs by 1e-1 and more.
    """
    spread = _ROUNDOFF[precision] * math.sqrt(roundings / 3) + math.sqrt(length) * _ROUNDOFF[FLOAT32]
    least = _TOLD if precision == FULL_FLOAT32 else _BY_SUMS if sums_only else _BY_TRANSFORM
    return max(_LAMBDA * spread, least)


def capability(tf: Any) -> tuple[int, int] | None:
    """Return the compute capability of the first GPU; None where there is no GPU, or it is not known."""
    found = gpus(tf)
    known = tf.config.experimental.get_device_details(found[0]).get("compute_capability") if found else None
    return tuple(known) if known is not None else None


def precision(tf: Any) -> str:
    """Return what float32 products are computed in at present on the device that the checks use.

    GPUs of compute capability 8.0 and later compute them in TensorFloat-32 unless told otherwise (CUDA C++
    Programming Guide, "Compute Capabilities"); `NVIDIA_TF32_OVERRIDE=0` turns it off for every library.
    """
    if (capability(tf) or (0, 0)) < (8, 0) or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return FLOAT32
    return TF32 if tf.config.experimental.tensor_float_32_execution_enabled() else FULL_FLOAT32


def allowed(tf: Any, roundings: int, length: int) -> dict[str, Any]:
    """Return the current `precision` and its `tolerance`, as fields of evidence."""
    found = precision(tf)
    return {"precision": found, "tolerance": tolerance(found, roundings, length)}


def also_in_float32(context: Context, code: str, result: Result, again: Callable[[], Result]) -> Result:
    """Return the result of a check, with what fails only in full float32 as a limit.

    code: of the limit. result: in TensorFlow's defaults. again: does the same once more; it is called with
    TensorFloat-32 off. Nothing is run again if the default failed, since that is a fault and can't be a
    limit, or if the default is full float32 already. `stages` receives the result before the second run, so
    even a crash in full float32 can't fail the check. But a bug of the probe (an exception that
    TensorFlow didn't raise, or the outcome `error`) is no limit: it becomes the result of the check.
    """
    tf = context.tensorflow
    if result.outcome != PASS or precision(tf) != TF32:
        return result
    gpu = str(tf.config.experimental.get_device_details(gpus(tf)[0]).get("device_name"))
    context.tell(child.SETTLED, **result.fields(), limit={"code": code, "gpu": gpu})
    error: str | None = None
    remarks: list[dict[str, Any]] = []
    evidence: dict[str, Any] = {}
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        found = again()
    except Exception as raised:
        if not child.from_tensorflow(raised, tf):
            raise
        error = f"{type(raised).__name__}: {telling_line(raised)}"
        if type(raised).__name__ == "ResourceExhaustedError":
            # A GPU without enough memory for both runs says nothing about full float32.
            remarks = [problem("full_float32_not_measured", error=error)]
    else:
        if found.outcome == ERROR:
            return found
        evidence = found.evidence
        faults = [entry for entry in found.problems if entry["severity"] == FAULT]
        if faults:
            error = str(faults[0].get("error") or clause(faults[0]))
        elif found.outcome != PASS:
            error = found.sentence
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    if error is not None and not remarks:
        remarks = [problem(code, gpu=gpu, error=error)]
    evidence = {**result.evidence, FULL_FLOAT32: {"error": error, **evidence}}
    return Result(result.outcome, result.statement, [*result.problems, *remarks], evidence)


def half_types(tf: Any) -> tuple[str, ...]:
    """Return the half-precision types of the first GPU; both where there is no GPU, since a CPU has both."""
    # GPUs have bfloat16 from compute capability 8.0 on (CUDA C++ Programming Guide, "Compute Capabilities").
    return ("float16",) if (capability(tf) or (8, 0)) < (8, 0) else ("float16", "bfloat16")


def compare(tf: Any, name: str, found: Any, expected: Any) -> dict[str, Any]:
    """Return `{name, device, difference, finite}`.

    difference: the largest, as a share of the largest magnitude in the reference. The comparison runs on
    the CPU: a GPU that computes wrong results must not judge itself.
    """
    with tf.device("/CPU:0"):
        left, right = (tf.cast(tf.identity(value), tf.float32) for value in (found, expected))
        scale = float(tf.reduce_max(tf.abs(right)))
        difference = float(tf.reduce_max(tf.abs(left - right)))
        finite = bool(tf.reduce_all(tf.math.is_finite(left)))
    # A reference of zeros would let everything pass.
    share = difference / scale if scale > 0 else math.inf
    return {"name": name, "device": found.device, "difference": share, "finite": finite}


def compare_all(tf: Any, found: Results, expected: Results) -> list[dict[str, Any]]:
    return [compare(tf, name, found[name], expected[name]) for name in expected]


def tried(tf: Any, step: Any, given: Sequence[Any], expected: Results, compiled: bool) -> dict[str, Any]:
    """Return the compared `results` of a step, or its `error`; if it is compiled, also `hlo`, `compile_s`."""
    seen: dict[str, Any] = {"error": None, "hlo": None, "results": []}
    start = time.perf_counter()
    try:
        if compiled:
            results, seen["compile_s"], seen["hlo"] = tensorflow_devices.compiled(step, *given)
        else:
            results, _ = tensorflow_devices.timed(step, *given)
    except tf.errors.OpError as error:
        took = {"compile_s": time.perf_counter() - start} if compiled else {}
        return {**seen, **took, "error": tensorflow_devices.refusal(error)}
    return {**seen, "results": compare_all(tf, results, expected)}


def computed_elsewhere(results: Sequence[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """Return a problem for each result that is not on the wanted kind of device (`GPU`, `CPU`)."""
    return [
        problem("operation_ran_elsewhere", operation=entry["name"], devices=[entry["device"]])
        for entry in results
        if f"{wanted}:" not in entry["device"]
    ]


def wrong_results(
    results: Sequence[dict[str, Any]], wanted: str, tolerance: float, reference: str, mode: str
) -> list[dict[str, Any]]:
    """Return a problem for each result that is on another kind of device, above the tolerance, or not finite.

    reference: a word of the vocabulary `result_reference`. mode: the way in which the results were computed.
    """
    found = computed_elsewhere(results, wanted)
    for entry in results:
        if not (entry["finite"] and entry["difference"] <= tolerance):
            named = {"operation": entry["name"], "mode": mode, "reference": reference}
            told = {"difference": entry["difference"], "tolerance": tolerance}
            found.append(problem("result_differs", **named, **told))
    return found


def worst(results: Sequence[dict[str, Any]]) -> float:
    """Return the largest difference. Raises ValueError without results: nothing was compared."""
    return max(float(entry["difference"]) for entry in results)


def worst_of_all(entries: Sequence[dict[str, Any]]) -> float:
    """Return the largest difference of several programs; infinity if one of them has an error, no results."""
    return max(math.inf if entry["error"] is not None else worst(entry["results"]) for entry in entries)
