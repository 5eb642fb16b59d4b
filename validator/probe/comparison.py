"""Compare results with a reference: the one place for tolerances, and for what full float32 adds.

Every check computes as users do, in TensorFlow's defaults: on GPUs of compute capability 8.0 and later,
float32 products round their factors to TensorFloat-32. What fails there is a fault. `also_in_float32` runs
the same programs again with TensorFloat-32 off; what fails only there is a limit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Callable

from ..problems import FAULT, clause, problem
from . import child
from .check import ERROR, PASS, Context, Result
from .tensorflow_devices import full_float32, gpus, telling_line

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
    error, out_of_memory = None, False
    evidence: dict[str, Any] = {}
    with full_float32(tf):
        try:
            found = again()
        except Exception as raised:
            if not child.from_tensorflow(raised, tf):
                raise
            error = f"{type(raised).__name__}: {telling_line(raised)}"
            out_of_memory = type(raised).__name__ == "ResourceExhaustedError"
        else:
            if found.outcome == ERROR:
                return found
            evidence = found.evidence
            faults = [entry for entry in found.problems if entry["severity"] == FAULT]
            if faults:
                error = str(faults[0].get("error") or clause(faults[0]))
            elif found.outcome != PASS:
                error = found.sentence
    problems = list(result.problems)
    if out_of_memory:
        # A GPU without enough memory for both runs says nothing about full float32.
        problems.append(problem("full_float32_not_measured", error=error))
    elif error is not None:
        problems.append(problem(code, gpu=gpu, error=error))
    evidence = {**result.evidence, FULL_FLOAT32: {"error": error, **evidence}}
    return Result(result.outcome, result.statement, problems, evidence)


def half_types(tf: Any) -> tuple[str, ...]:
    """Return the half-precision types of the first GPU; both where there is no GPU, since a CPU has both.

    GPUs of compute capability 8.0 and later have bfloat16 (CUDA C++ Programming Guide, "Compute
    Capabilities").
    """
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
    return {
        "name": name,
        "device": found.device,
        "difference": difference / scale if scale > 0 else math.inf,
        "finite": finite,
    }


def compare_all(tf: Any, found: Results, expected: Results) -> list[dict[str, Any]]:
    """Compare each result of `expected` with the one of that name in `found`."""
    return [compare(tf, name, found[name], expected[name]) for name in expected]


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
