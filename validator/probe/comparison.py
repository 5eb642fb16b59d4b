"""Compares results: those of a GPU or of a compiled program with those of a reference."""

import math
from typing import Any, Dict, List, Sequence, Tuple

from ..problems import problem

#: Names of tensors with their values.
Results = Dict[str, Any]
#: For results in a type: the largest difference, as a share of the largest magnitude in the reference,
#: which is in float32. float32: sums in another order differ by about 1e-6, convolutions by a transform by
#: up to 1e-4, and XLA and cuDNN's recurrent kernels of some releases round to TensorFloat-32 whatever
#: TensorFlow is told (11 bits, 5e-4). float16 and bfloat16 round each value to 11 and to 8 bits (5e-4 and
#: 4e-3), several times from the input to a gradient; on a CPU the checks differ by up to 4e-3 and 2e-2. A
#: wrong kernel differs by 1e-1 and more.
TOLERANCES = {"float32": 5e-3, "float16": 2e-2, "bfloat16": 8e-2}


def half_types(tf: Any, gpus: Sequence[Any]) -> Tuple[str, ...]:
    """Return the half-precision types of the first GPU; both where there is no GPU, since a CPU has both.

    GPUs of compute capability 8.0 and later have bfloat16 (CUDA C++ Programming Guide, "Compute
    Capabilities").
    """
    capability = (
        tf.config.experimental.get_device_details(gpus[0]).get("compute_capability") if gpus else None
    )
    return ("float16",) if capability is not None and tuple(capability) < (8, 0) else ("float16", "bfloat16")


def compare(tf: Any, name: str, found: Any, expected: Any) -> Dict[str, Any]:
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


def compare_all(tf: Any, found: Results, expected: Results) -> List[Dict[str, Any]]:
    """Compare each result of `expected` with the one of that name in `found`."""
    return [compare(tf, name, found[name], expected[name]) for name in expected]


def differing(
    results: Sequence[Dict[str, Any]], tolerance: float, reference: str, mode: str
) -> List[Dict[str, Any]]:
    """Return a problem for each result that is above the tolerance or not finite.

    reference: a word of the vocabulary `result_reference`. mode: the way in which the results were computed.
    """
    return [
        problem(
            "result_differs",
            operation=entry["name"],
            mode=mode,
            reference=reference,
            difference=entry["difference"],
            tolerance=tolerance,
        )
        for entry in results
        if not (entry["finite"] and entry["difference"] <= tolerance)
    ]


def computed_elsewhere(results: Sequence[Dict[str, Any]], wanted: str) -> List[Dict[str, Any]]:
    """Return a problem for each result that is not on the wanted kind of device (`GPU`, `CPU`)."""
    return [
        problem("operation_ran_elsewhere", operation=entry["name"], devices=[entry["device"]])
        for entry in results
        if f"{wanted}:" not in entry["device"]
    ]


def worst(results: Sequence[Dict[str, Any]]) -> float:
    """Return the largest difference."""
    return max(float(entry["difference"]) for entry in results)
