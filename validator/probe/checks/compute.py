"""The GPU computes: TensorFlow sees it, its results are right, and a training step really runs on it."""

from __future__ import annotations

import functools
import statistics
from typing import Any, Callable

from ...problems import problem, statement
from .. import child, tensorflow_devices, training
from ..check import FAIL, TENSORFLOW, Context, Result, check, judged
from ..tensorflow_devices import gpus

#: Variables that make the driver or TensorFlow ignore GPUs.
_HIDING = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TF_MIN_GPU_MULTIPROCESSOR_COUNT")
#: TensorFlow ignores a GPU with fewer multiprocessors than this, unless the largest GPU here has fewer, too
#: (gpu_device.cc, GetMinGPUMultiprocessorCount).
_MULTIPROCESSORS = 8


_ON_GPU = ("cuda-build", "gpu")


@check("Does TensorFlow see every GPU that CUDA offers it?", TENSORFLOW, limit_s=120, requires=_ON_GPU)
def gpu_visible(context: Context) -> Result:
    tf, facts = context.tensorflow, context.facts
    seen = []
    for gpu in gpus(tf):
        details = tf.config.experimental.get_device_details(gpu)
        numbers = ".".join(map(str, details.get("compute_capability") or ())) or None
        device = details.get("device_name")
        seen.append({"name": gpu.name, "device_name": device, "compute_capability": numbers})
    cuda = facts["host"]["driver_libraries"]["cuda"]
    counts = [gpu.get("multiprocessors") or 0 for gpu in cuda.get("gpus") or []]
    usable = sum(count >= min(_MULTIPROCESSORS, max(counts)) for count in counts)
    variables = facts["environment"]["variables"]
    hiding = {name: variables[name] for name in _HIDING if name in variables}
    evidence = {
        "tensorflow": seen,
        "cuda_devices": cuda["count"],
        "usable": usable,
        "nvml_devices": len(facts["host"]["gpus"]),
        "variables": hiding,
    }
    if not seen:
        shown = [{"name": name, "value": value} for name, value in hiding.items()]
        blind = problem("tensorflow_sees_no_gpu", offered=cuda["count"], variables=shown)
        return Result(FAIL, None, [blind], evidence)
    problems = []
    if len(seen) < usable:
        problems = [problem("tensorflow_sees_fewer_gpus", seen=len(seen), usable=usable)]
    passed = statement("gpus_visible", count=len(seen), name=seen[0]["device_name"])
    return judged(problems, passed, evidence)


_SIZE = 512
_IMAGES, _KERNEL = (8, 32, 32, 16), (3, 3, 16, 32)
#: For the tolerance: a convolution and its gradient are two products, one after the other, and the gradient
#: by the filter sums over all positions of all images.
_ROUNDINGS, _LENGTH = 4, 8 * 32 * 32


@check(
    "Do a matrix product and a convolution on the GPU agree with the CPU?", TENSORFLOW, 300, requires=_ON_GPU
)
def gpu_compute(context: Context) -> Result:
    """Compute the same, forward and backward, on the GPU and on the CPU.

    Placement is forced (no soft placement), every result names its device, and the GPU's allocator must have
    handed out memory: a library that only pretends to be a GPU driver fails all of this.
    """
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, None, [problem("no_gpu_to_compute_on")])

    def measured() -> Result:
        on_cpu, on_gpu = (_compute(tf, device) for device in ("/CPU:0", "/GPU:0"))
        results = training.compare_all(tf, on_gpu, on_cpu)
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        within = training.allowed(tf, _ROUNDINGS, _LENGTH)
        return judge_gpu_compute({**within, "results": results, "gpu_peak_bytes": peak})

    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        return training.also_in_float32(context, "gpu_compute_float32", measured(), measured)
    finally:
        tf.config.set_soft_device_placement(soft)


def _compute(tf: Any, device: str) -> dict[str, Any]:
    shapes = ((_SIZE, _SIZE), (_SIZE, _SIZE), _IMAGES, _KERNEL)
    with tf.device("/CPU:0"):
        given = [tf.random.stateless_normal(shape, seed=(seed, 0)) for seed, shape in enumerate(shapes, 1)]
    with tf.device(device):
        left, right, image, kernel = (tf.identity(value) for value in given)
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


def judge_gpu_compute(evidence: dict[str, Any]) -> Result:
    results = evidence["results"]
    problems = training.computed_elsewhere(results, "GPU")
    for entry in results:
        if not (entry["finite"] and entry["difference"] <= evidence["tolerance"]):
            told = {"operation": entry["name"], "difference": entry["difference"]}
            problems.append(problem("result_differs_from_cpu", **told))
    if evidence["gpu_peak_bytes"] <= 0:
        problems.append(problem("nothing_allocated_on_gpu"))
    passed = statement("gpu_agrees_with_cpu", results=len(results), difference=training.worst(results))
    return judged(problems, passed, evidence)


TRAIN_STEPS = 10


@check(
    "Does a training step compiled by XLA train, and agree with the uncompiled one?", TENSORFLOW, limit_s=600
)
def xla_train_step(context: Context) -> Result:
    """Train a compiled step and an uncompiled one, on the CPU where TensorFlow sees no GPU.

    `evidence.device_type` says which it was, so that a certificate can demand the GPU.
    """
    tf = context.tensorflow
    device_type = tensorflow_devices.device_type(tf)
    context.tell(child.DOING, statement=statement("compiling", program="training step", type="float32"))

    def measured() -> Result:
        with tf.device(f"/{device_type}:0"):
            images, labels = training.batch(tf)
            step = training.step(tf, compiled=True)
            compiled = training.run(step, images, labels, TRAIN_STEPS)
            plain = training.run(training.step(tf, compiled=False), images, labels, TRAIN_STEPS)
            module = step.experimental_get_compiler_ir(images, labels)(stage="optimized_hlo")
        # The seconds of a step once it is compiled.
        usual, usual_plain = (statistics.median(run.seconds[1:]) for run in (compiled, plain))
        evidence = {
            "device_type": device_type,
            "device": compiled.device,
            "hlo": tensorflow_devices.proof(module),
            "losses": compiled.losses,
            "losses_uncompiled": plain.losses,
            # Both the compiled step and the one it is compared with are rounded.
            **training.allowed(tf, 2 * training.ROUNDINGS, training.LENGTH),
            "largest_difference": training.apart(compiled.gradients, plain.gradients),
            "compile_s": compiled.seconds[0] - usual,
            "step_s": usual,
            "step_uncompiled_s": usual_plain,
        }
        return judge_xla_train_step(evidence)

    return training.also_in_float32(context, "xla_train_step_float32", measured(), measured)


def judge_xla_train_step(evidence: dict[str, Any]) -> Result:
    problems = []
    hlo, losses, device_type = evidence["hlo"], evidence["losses"], evidence["device_type"]
    if hlo["module"] is None or not hlo["instructions"]:
        problems.append(problem("no_compiled_module"))
    problems += training.ran_elsewhere(evidence["device"], device_type, "compiled")
    problems += training.not_falling(losses)
    problems += training.gradients_differ("uncompiled", evidence)
    told = {"device_type": device_type, "instructions": hlo["instructions"]}
    passed = statement("step_compiled", **told, first=losses[0], last=losses[-1], steps=TRAIN_STEPS)
    return judged(problems, passed, evidence)


STEPS = 5
#: The operations that are the work of a training step, as parts of the names that graph optimization gives
#: them. What surrounds them (constants, shapes) may be on the CPU.
COMPUTING = ("Conv2D", "MatMul", "Relu", "SoftmaxCrossEntropy", "AssignSub")
#: The operations instead of those, if `TF_XLA_FLAGS` makes TensorFlow put them into XLA clusters.
_CLUSTER = "_XlaRun"


@check("Does a training step that names no device run on the GPU?", TENSORFLOW, 300, requires=_ON_GPU)
def silent_cpu(context: Context) -> Result:
    """Run a step with nothing placed by hand, as a user would, and look where it ran.

    When TensorFlow can't use the GPU, that silently runs on the CPU and succeeds. So there are three
    independent kinds of evidence: where the placer put each operation, what the GPU's allocator handed out,
    and which kernels the profiler saw. The gradients must be those of the CPU; a device that only claims to
    compute would not produce them.
    """
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, None, [problem("training_on_cpu")])

    measured = functools.partial(_train_unplaced, tf)
    return training.also_in_float32(context, "silent_cpu_float32", measured(), measured)


def _train_unplaced(tf: Any) -> Result:
    before = tensorflow_devices.allocated(tf, reset=True)
    images, labels = training.batch(tf)
    step = training.step(tf, compiled=False)
    placed, (first, gradient) = tensorflow_devices.operations(lambda: step(images, labels))
    losses, gradients = [float(first)], [gradient.numpy()]

    def others() -> None:
        # The profiler must see this one; if it does not, it sees nothing here.
        with tf.device("/GPU:0"):
            tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64))).numpy()
        rest = training.run(step, images, labels, STEPS - 1)
        losses.extend(rest.losses)
        gradients.extend(rest.gradients)

    kernels = profiled(tf, others)
    after = tensorflow_devices.allocated(tf)
    with tf.device("/CPU:0"):
        expected = training.run(training.step(tf, compiled=False), *training.batch(tf), STEPS)
    evidence: dict[str, Any] = {
        "steps": STEPS,
        "placement": placed,
        "loss_device": first.device,
        "allocated_bytes": after["peak"] - before["current"] if before and after else None,
        # The batch alone, without weights, activations and gradients.
        "least_bytes": sum(each.shape.num_elements() * each.dtype.size for each in (images, labels)),
        **kernels,
        "losses": losses,
        "losses_cpu": expected.losses,
        **training.allowed(tf, training.ROUNDINGS, training.LENGTH),
        "largest_difference": training.apart(gradients, expected.gradients),
    }
    return judge_silent_cpu(evidence)


def profiled(tf: Any, work: Callable[[], None]) -> dict[str, Any]:
    """Return what the profiler saw the GPU do during `work`, which runs once even if the profiler fails."""
    done = []

    def once() -> None:
        work()
        done.append(True)

    seen, unknown = tensorflow_devices.kernels(tf, once)
    if not done:
        work()
    count, seconds = (len(seen), sum(event.seconds for event in seen)) if seen else (None, None)
    return {"kernels": count, "gpu_time_s": seconds, "gpu_time_unknown": unknown}


def judge_silent_cpu(evidence: dict[str, Any]) -> Result:
    problems = []
    clustered = any(entry["op"] == _CLUSTER for entry in evidence["placement"])
    for family in (*COMPUTING, _CLUSTER):
        found = [entry for entry in evidence["placement"] if family in entry["op"]]
        elsewhere = sorted({entry["device"] for entry in found if not entry["device"].startswith("GPU:")})
        if elsewhere:
            problems.append(problem("operation_ran_elsewhere", operation=family, devices=elsewhere))
        elif not found and not clustered and family != _CLUSTER:
            problems.append(problem("operation_not_executed", operation=family))
    if "GPU:" not in evidence["loss_device"]:
        problems.append(problem("loss_not_on_gpu", device=evidence["loss_device"]))
    allocated, least = evidence["allocated_bytes"], evidence["least_bytes"]
    if allocated is None:
        problems.append(problem("allocator_count_missing"))
    elif allocated < least:
        problems.append(problem("too_little_allocated", allocated_bytes=allocated, least_bytes=least))
    # A step without XLA runs at least one kernel for each kind of operation except assignments; a cluster
    # runs one.
    fewest = (STEPS - 1) * (1 if clustered else len(COMPUTING) - 1)
    kernels, seconds = evidence["kernels"], evidence["gpu_time_s"]
    if kernels is not None and (kernels < fewest or not seconds > 0):
        problems.append(problem("too_few_kernels", kernels=kernels, seconds=seconds, steps=STEPS - 1))
    problems += training.gradients_differ("cpu", evidence)
    told = {"kernels": kernels, "gpu_time_ms": None if seconds is None else seconds * 1e3}
    unknown = evidence["gpu_time_unknown"]
    passed = statement("step_ran_on_gpu", allocated_bytes=allocated, **told, unknown=unknown)
    return judged(problems, passed, evidence)
