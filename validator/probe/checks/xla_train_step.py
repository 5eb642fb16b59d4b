"""Does XLA compile a training step, and does the compiled step train as the uncompiled one does?

On a machine where TensorFlow sees no GPU the same is asked of the CPU; `evidence.device_type` says which it
was, so that a certificate can demand the GPU.
"""

import math
import statistics
from typing import Any, Dict, List

from .. import training
from ..check import FAIL, PASS, TENSORFLOW, Check, Context, Result
from ..devices import exact_float32, gpus
from ..hlo import proof

STEPS = 10
#: Largest relative difference between the losses of a step, compiled and not, in float32. Fused and
#: unfused sums differ by about 1e-6 a step; on a GPU the two may also use different convolution algorithms.
TOLERANCE = {"CPU": 1e-3, "GPU": 2e-2}


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    with tf.device(f"/{device_type}:0"), exact_float32(tf):
        images, labels = training.batch(tf)
        step = training.step(tf, compiled=True)
        compiled = training.run(step, images, labels, STEPS)
        plain = training.run(training.step(tf, compiled=False), images, labels, STEPS)
        module = step.experimental_get_compiler_ir(images, labels)(stage="optimized_hlo")
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "device": compiled.device,
        "hlo": proof(module),
        "losses": compiled.losses,
        "losses_uncompiled": plain.losses,
        "tolerance": TOLERANCE[device_type],
        "largest_difference": training.difference(compiled.losses, plain.losses),
        "tensor_float_32": False,
        "compile_s": compiled.seconds[0] - _usual(compiled),
        "step_s": _usual(compiled),
        "step_uncompiled_s": _usual(plain),
    }
    faults = _faults(evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    return Result(
        PASS,
        f"compiled for the {device_type}: {evidence['hlo']['instructions']} instructions,"
        f" loss {compiled.losses[0]:.3f} to {compiled.losses[-1]:.3f} in {STEPS} steps",
        evidence,
    )


def _usual(run: training.Run) -> float:
    """Seconds of a step once it is compiled."""
    return statistics.median(run.seconds[1:])


def _faults(evidence: Dict[str, Any]) -> List[str]:
    losses, wanted = evidence["losses"], evidence["device_type"]
    faults = []
    if evidence["hlo"]["module"] is None or not evidence["hlo"]["instructions"]:
        faults.append("XLA gave no compiled module")
    if f"{wanted}:" not in evidence["device"]:
        faults.append(f"the compiled step ran on {evidence['device']}, not on the {wanted}")
    if not all(math.isfinite(loss) for loss in losses) or losses[-1] >= losses[0]:
        faults.append(f"the loss does not fall: {losses[0]:.4f} to {losses[-1]:.4f}")
    if not evidence["largest_difference"] <= evidence["tolerance"]:
        faults.append(f"losses differ from the uncompiled step's by {evidence['largest_difference']:.1e}")
    return faults


CHECK = Check(
    id="xla_train_step",
    title="a training step compiled by XLA trains, and agrees with the uncompiled one",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
)
