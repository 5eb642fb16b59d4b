"""Does the GPU compute, and are the results right? A matrix product and a convolution, forward and backward.

Both run on the GPU and on the CPU with the same numbers. Placement is forced (no soft placement), every
result names its device, and the GPU's allocator must have handed out memory: a library that only pretends to
be a GPU driver fails all of this.
"""

from typing import Any, Dict, List

from ...problems import problem, statement
from .. import comparison
from ..check import FAIL, TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus

_SIZE = 512
_IMAGES, _KERNEL = (8, 32, 32, 16), (3, 3, 16, 32)
#: For the tolerance: a convolution and its gradient are two products, one after the other, and the gradient
#: by the filter sums over all positions of all images.
_ROUNDINGS, _LENGTH = 4, 8 * 32 * 32


def _run(context: Context) -> Result:
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, None, [problem("no_gpu_to_compute_on")])
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        return comparison.also_in_float32(
            context, "gpu_compute_float32", _measured(tf), lambda: _measured(tf)
        )
    finally:
        tf.config.set_soft_device_placement(soft)


def _measured(tf: Any) -> Result:
    on_cpu, on_gpu = (_compute(tf, device) for device in ("/CPU:0", "/GPU:0"))
    precision = comparison.precision(tf)
    return _judged(
        {
            "precision": precision,
            "tolerance": comparison.tolerance(precision, _ROUNDINGS, _LENGTH),
            "results": comparison.compare_all(tf, on_gpu, on_cpu),
            "gpu_peak_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"],
        }
    )


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence["results"]), evidence)


def _passed(results: List[Dict[str, Any]]) -> Dict[str, Any]:
    return statement("gpu_agrees_with_cpu", results=len(results), difference=comparison.worst(results))


def _compute(tf: Any, device: str) -> Dict[str, Any]:
    with tf.device("/CPU:0"):
        seeds = iter(range(1, 9))
        left, right, image, kernel = (
            tf.random.stateless_normal(shape, seed=(next(seeds), 0))
            for shape in ((_SIZE, _SIZE), (_SIZE, _SIZE), _IMAGES, _KERNEL)
        )
    with tf.device(device):
        left, right, image, kernel = (tf.identity(value) for value in (left, right, image, kernel))
        with tf.GradientTape() as tape:
            tape.watch((image, kernel))
            convolved = tf.nn.conv2d(image, kernel, strides=1, padding="SAME")
            loss = tf.reduce_sum(tf.square(convolved))
        by_image, by_kernel = tape.gradient(loss, (image, kernel))
        return {
            "matmul": tf.linalg.matmul(left, right),
            "convolution": convolved,
            "convolution_by_input": by_image,
            "convolution_by_filter": by_kernel,
        }


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    results = evidence["results"]
    found = comparison.computed_elsewhere(results, "GPU")
    found += [
        problem("result_differs_from_cpu", operation=entry["name"], difference=entry["difference"])
        for entry in results
        if not (entry["finite"] and entry["difference"] <= evidence["tolerance"])
    ]
    if evidence["gpu_peak_bytes"] <= 0:
        found.append(problem("nothing_allocated_on_gpu"))
    return found


CHECK = Check(
    id="gpu_compute",
    title="Do a matrix product and a convolution on the GPU agree with the CPU?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("cuda-build", "gpu"),
)
