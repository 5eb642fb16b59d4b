"""Did the training step really run on the GPU?

Training that names no device goes on without a word on the CPU when TensorFlow can't use the GPU, and ends
with success. So the step is taken as a user takes it, with nothing placed by hand, and three witnesses that
know nothing of each other are asked: where the placer put each operation, what the GPU's allocator handed
out, and which kernels the profiler saw. The losses must be those of the CPU, which a device that only claims
to compute would not come by.
"""

from typing import Any, Dict, List, Optional

from .. import devices, training, xplane
from ..check import FAIL, PASS, TENSORFLOW, Check, Context, Result
from ..devices import exact_float32, gpus

STEPS = 5
#: Largest relative difference between a step's losses on the GPU and on the CPU, in float32 without
#: TensorFloat-32: the two convolve by different algorithms.
TOLERANCE = 2e-2
#: The operations that are the work of a training step, as parts of the names that graph optimization gives
#: them. What surrounds them (constants, shapes) may rightly lie on the CPU.
COMPUTING = ("Conv2D", "MatMul", "Relu", "SoftmaxCrossEntropy", "AssignSub")
#: In their place, where `TF_XLA_FLAGS` puts whatever it can into XLA's clusters.
_CLUSTER = "_XlaRun"


def _run(context: Context) -> Result:
    tf = context.tensorflow
    if not gpus(tf):
        return Result(FAIL, "TensorFlow sees no GPU: training runs on the CPU")
    with exact_float32(tf):
        before = _allocator(tf, reset=True)
        images, labels = training.batch(tf)
        step = training.step(tf, compiled=False)
        placed, first = devices.operations(lambda: step(images, labels))
        losses = [float(first)]

        def others() -> None:
            # The profiler must see this one; if it does not, it sees nothing here.
            with tf.device("/GPU:0"):
                tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64))).numpy()
            losses.extend(training.run(step, images, labels, STEPS - 1).losses)

        kernels = _kernels(tf, others)
        after = _allocator(tf)
        with tf.device("/CPU:0"):
            expected = training.run(training.step(tf, compiled=False), *training.batch(tf), STEPS).losses
    evidence: Dict[str, Any] = {
        "steps": STEPS,
        "placement": placed,
        "loss_device": first.device,
        "allocated_bytes": after["peak"] - before["current"] if before and after else None,
        "least_bytes": _bytes(images, labels),
        **kernels,
        "losses": losses,
        "losses_cpu": expected,
        "tolerance": TOLERANCE,
        "largest_difference": training.difference(losses, expected),
    }
    faults = _faults(evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    return Result(PASS, _summary(evidence), evidence)


def _allocator(tf: Any, reset: bool = False) -> Optional[Dict[str, int]]:
    """The count of the GPU's allocator; None where TensorFlow has made no such device, or it keeps none."""
    try:
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        info: Dict[str, int] = tf.config.experimental.get_memory_info("GPU:0")
        return info
    except (ValueError, tf.errors.OpError):
        return None


def _bytes(*tensors: Any) -> int:
    """What the batch alone takes; the weights, activations and gradients come on top."""
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


def _kernels(tf: Any, work: Any) -> Dict[str, Any]:
    """What the profiler saw the GPU do during `work`, which it does in any case."""
    unknown, seen = None, []
    done = []

    def once() -> None:
        work()
        done.append(True)

    try:
        seen = [event for event in xplane.record(tf, once) if event.is_kernel]
    except (OSError, ValueError, tf.errors.OpError) as error:
        if not done:
            work()
        unknown = f"the profiler does not work here: {type(error).__name__}: {str(error)[:200]}"
    if not seen and unknown is None:
        unknown = "the profiler saw no kernel, not even one that was placed on the GPU by hand (CUPTI may be"
        unknown += " missing, or not permitted)"
    return {
        "kernels": len(seen) if seen else None,
        "gpu_time_s": sum(event.seconds for event in seen) if seen else None,
        "gpu_time_unknown": unknown,
    }


def _faults(evidence: Dict[str, Any]) -> List[str]:
    faults = []
    clustered = any(entry["op"] == _CLUSTER for entry in evidence["placement"])
    for family in (*COMPUTING, _CLUSTER):
        found = [entry for entry in evidence["placement"] if family in entry["op"]]
        elsewhere = sorted({entry["device"] for entry in found if not entry["device"].startswith("GPU:")})
        if elsewhere:
            faults.append(f"{family} ran on {', '.join(elsewhere)}")
        elif not found and not clustered and family != _CLUSTER:
            faults.append(f"no {family} was executed")
    if "GPU:" not in evidence["loss_device"]:
        faults.append(f"the loss lies on {evidence['loss_device']}")
    if evidence["allocated_bytes"] is None:
        faults.append("the GPU's allocator gives no count")
    elif evidence["allocated_bytes"] < evidence["least_bytes"]:
        faults.append(
            f"the GPU's allocator handed out {evidence['allocated_bytes']} bytes, but the batch alone takes"
            f" {evidence['least_bytes']}"
        )
    # A step without XLA is at least one kernel for each family but the assignments; a cluster, one.
    least = (STEPS - 1) * (1 if clustered else len(COMPUTING) - 1)
    if evidence["kernels"] is not None and (evidence["kernels"] < least or not evidence["gpu_time_s"] > 0):
        faults.append(
            f"the GPU ran {evidence['kernels']} kernels in {evidence['gpu_time_s']:.6f} s, fewer than"
            f" {STEPS - 1} steps are made of"
        )
    if not evidence["largest_difference"] <= evidence["tolerance"]:
        faults.append(f"the losses differ from the CPU's by {evidence['largest_difference']:.1e}")
    return faults


def _summary(evidence: Dict[str, Any]) -> str:
    time = (
        f"GPU time unknown: {evidence['gpu_time_unknown']}"
        if evidence["kernels"] is None
        else f"{evidence['kernels']} kernels took {evidence['gpu_time_s'] * 1e3:.2f} ms"
    )
    return f"the step ran on the GPU, {evidence['allocated_bytes']} bytes were allocated there; {time}"


CHECK = Check(
    id="silent_cpu",
    title="a training step that names no device runs on the GPU",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("cuda-build", "gpu"),
)
