"""Does the GPU compute, and are the results right? A matrix product and a convolution, forward and backward.

Both run on the GPU and on the CPU with the same numbers. Placement is forced (no soft placement), every
result names its device, and the GPU's allocator must have handed out memory: a library that only pretends to
be a GPU driver fails all of this.
"""

from typing import Any, Dict, List

from ...problems import problem, statement
from ..check import FAIL, TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import exact_float32, gpus

#: Largest difference, as a share of the largest magnitude in the CPU's result, in float32 without
#: TensorFloat-32. Sums of 512 products in another order differ by about 1e-6, and convolutions that use a
#: transform by up to 1e-4; a wrong kernel differs by 1e-1 or more.
TOLERANCE = 1e-3
_SIZE = 512


def _run(context: Context) -> Result:
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, None, [problem("no_gpu_to_compute_on")])
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        with exact_float32(tf):
            on_cpu, on_gpu = (_compute(tf, device) for device in ("/CPU:0", "/GPU:0"))
    finally:
        tf.config.set_soft_device_placement(soft)
    results = [_compare(tf, name, on_gpu[name], on_cpu[name]) for name in on_cpu]
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    evidence = {"tolerance": TOLERANCE, "tensor_float_32": False, "results": results, "gpu_peak_bytes": peak}
    return judged(_problems(results, peak), lambda: _passed(results), evidence)


def _passed(results: List[Dict[str, Any]]) -> Dict[str, Any]:
    worst = max(entry["difference"] for entry in results)
    return statement("gpu_agrees_with_cpu", results=len(results), difference=worst)


def _compute(tf: Any, device: str) -> Dict[str, Any]:
    with tf.device("/CPU:0"):
        seeds = iter(range(1, 9))
        left, right, image, kernel = (
            tf.random.stateless_normal(shape, seed=(next(seeds), 0))
            for shape in ((_SIZE, _SIZE), (_SIZE, _SIZE), (8, 32, 32, 16), (3, 3, 16, 32))
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


def _compare(tf: Any, name: str, gpu: Any, cpu: Any) -> Dict[str, Any]:
    """Compare on the CPU: a GPU that computes wrong results must not judge itself."""
    with tf.device("/CPU:0"):
        found, expected = tf.identity(gpu), tf.identity(cpu)
        scale = float(tf.reduce_max(tf.abs(expected)))
        difference = float(tf.reduce_max(tf.abs(found - expected))) / scale
        finite = bool(tf.reduce_all(tf.math.is_finite(found)))
    return {"name": name, "device": gpu.device, "difference": difference, "finite": finite}


def _problems(results: List[Dict[str, Any]], peak: int) -> List[Dict[str, Any]]:
    found = [
        problem("operation_ran_elsewhere", operation=entry["name"], devices=[entry["device"]])
        for entry in results
        if "GPU:" not in entry["device"]
    ]
    found += [
        problem("result_differs_from_cpu", operation=entry["name"], difference=entry["difference"])
        for entry in results
        if not (entry["finite"] and entry["difference"] <= TOLERANCE)
    ]
    if peak <= 0:
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
