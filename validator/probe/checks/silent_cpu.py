"""Did the training step really run on the GPU?

When TensorFlow can't use the GPU, training that names no device silently runs on the CPU and succeeds. So the
step is run as a user would run it, with nothing placed by hand, and there are three independent kinds of
evidence: where the placer put each operation, what the GPU's allocator handed out, and which kernels the
profiler saw. The gradients must be those of the CPU; a device that only claims to compute would not produce
them.
"""

from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from .. import comparison, tensorflow_devices, training
from ..check import FAIL, TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus

STEPS = 5
#: The operations that are the work of a training step, as parts of the names that graph optimization gives
#: them. What surrounds them (constants, shapes) may be on the CPU.
COMPUTING = ("Conv2D", "MatMul", "Relu", "SoftmaxCrossEntropy", "AssignSub")
#: The operations instead of those, if `TF_XLA_FLAGS` makes TensorFlow put them into XLA clusters.
_CLUSTER = "_XlaRun"


def _run(context: Context) -> Result:
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, None, [problem("training_on_cpu")])
    return comparison.also_in_float32(context, "silent_cpu_float32", _measured(tf), lambda: _measured(tf))


def _measured(tf: Any) -> Result:
    precision = comparison.precision(tf)
    before = _allocator(tf, reset=True)
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

    kernels = _kernels(tf, others)
    after = _allocator(tf)
    with tf.device("/CPU:0"):
        expected = training.run(training.step(tf, compiled=False), *training.batch(tf), STEPS)
    evidence: Dict[str, Any] = {
        "steps": STEPS,
        "placement": placed,
        "loss_device": first.device,
        "allocated_bytes": after["peak"] - before["current"] if before and after else None,
        "least_bytes": _bytes(images, labels),
        **kernels,
        "losses": losses,
        "losses_cpu": expected.losses,
        "precision": precision,
        "tolerance": comparison.tolerance(precision, training.ROUNDINGS, training.LENGTH),
        "largest_difference": training.apart(gradients, expected.gradients),
    }
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _allocator(tf: Any, reset: bool = False) -> Optional[Dict[str, int]]:
    """Return the GPU allocator's counts; None where TensorFlow made no such device, or it keeps no counts."""
    try:
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        info: Dict[str, int] = tf.config.experimental.get_memory_info("GPU:0")
        return info
    except (ValueError, tf.errors.OpError):
        return None


def _bytes(*tensors: Any) -> int:
    """Return the size of the batch, which does not include weights, activations and gradients."""
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


def _kernels(tf: Any, work: Any) -> Dict[str, Any]:
    """Return what the profiler saw the GPU do during `work`, which runs even if the profiler fails."""
    unknown, seen = None, []
    done = []

    def once() -> None:
        work()
        done.append(True)

    try:
        seen = [event for event in tensorflow_devices.record(tf, once) if event.is_kernel]
    except (OSError, ValueError, tf.errors.OpError) as error:
        if not done:
            work()
        unknown = statement("profiler_failed", exception=type(error).__name__, message=str(error)[:200])
    if not seen and unknown is None:
        unknown = statement("profiler_saw_nothing")
    return {
        "kernels": len(seen) if seen else None,
        "gpu_time_s": sum(event.seconds for event in seen) if seen else None,
        "gpu_time_unknown": unknown,
    }


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
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
    if evidence["allocated_bytes"] is None:
        problems.append(problem("allocator_count_missing"))
    elif evidence["allocated_bytes"] < evidence["least_bytes"]:
        told = {name: evidence[name] for name in ("allocated_bytes", "least_bytes")}
        problems.append(problem("too_little_allocated", **told))
    # A step without XLA runs at least one kernel for each kind of operation except assignments; a cluster
    # runs one.
    least = (STEPS - 1) * (1 if clustered else len(COMPUTING) - 1)
    if evidence["kernels"] is not None and (evidence["kernels"] < least or not evidence["gpu_time_s"] > 0):
        seconds = evidence["gpu_time_s"]
        problems.append(
            problem("too_few_kernels", kernels=evidence["kernels"], seconds=seconds, steps=STEPS - 1)
        )
    return problems + training.gradients_differ("cpu", evidence)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    seconds = evidence["gpu_time_s"]
    return statement(
        "step_ran_on_gpu",
        allocated_bytes=evidence["allocated_bytes"],
        kernels=evidence["kernels"],
        gpu_time_ms=None if seconds is None else seconds * 1e3,
        unknown=evidence["gpu_time_unknown"],
    )


CHECK = Check(
    id="silent_cpu",
    title="Does a training step that names no device run on the GPU?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("cuda-build", "gpu"),
)
