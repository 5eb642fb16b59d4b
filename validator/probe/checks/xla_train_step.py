"""Does XLA compile a training step, and does it train like the uncompiled step?

Where TensorFlow sees no GPU, the check uses the CPU. `evidence.device_type` says which it was, so that a
certificate can demand the GPU.
"""

import statistics
from typing import Any, Dict, List

from ...problems import problem, statement
from .. import child, comparison, training
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus, proof

STEPS = 10


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    context.tell(child.DOING, statement=statement("compiling", program="training step", type="float32"))
    result = _measured(tf, device_type)
    return comparison.also_in_float32(
        context, "xla_train_step_float32", result, lambda: _measured(tf, device_type)
    )


def _measured(tf: Any, device_type: str) -> Result:
    precision = comparison.precision(tf)
    with tf.device(f"/{device_type}:0"):
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
        "precision": precision,
        # Both the compiled step and the one it is compared with are rounded.
        "tolerance": comparison.tolerance(precision, 2 * training.ROUNDINGS, training.LENGTH),
        "largest_difference": training.apart(compiled.gradients, plain.gradients),
        "compile_s": compiled.seconds[0] - _usual(compiled),
        "step_s": _usual(compiled),
        "step_uncompiled_s": _usual(plain),
    }
    return judged(
        _problems(evidence),
        lambda: statement(
            "step_compiled",
            device_type=device_type,
            instructions=evidence["hlo"]["instructions"],
            first=compiled.losses[0],
            last=compiled.losses[-1],
            steps=STEPS,
        ),
        evidence,
    )


def _usual(run: training.Run) -> float:
    """Return the seconds of a step once it is compiled."""
    return statistics.median(run.seconds[1:])


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    if evidence["hlo"]["module"] is None or not evidence["hlo"]["instructions"]:
        found.append(problem("no_compiled_module"))
    found += training.ran_elsewhere(evidence["device"], evidence["device_type"], "compiled")
    found += training.not_falling(evidence["losses"])
    return found + training.gradients_differ("uncompiled", evidence)


CHECK = Check(
    id="xla_train_step",
    title="Does a training step compiled by XLA train, and agree with the uncompiled one?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
)
