"""Does XLA compile a convolution with bias and activation, and its gradient, and do they compute the same?

XLA fuses convolution, bias and activation into one call of cuDNN (`__cudnn$convBiasActivationForward`) that
uncompiled programs don't make. With TensorFlow 2.21 and cuDNN 9.3 or 9.5 its autotuner finds no
configuration for that call on common GPUs (aws/deep-learning-containers#6417 and #6418), and Keras compiles
with XLA by default. The check therefore compiles the convolution by itself, in each floating-point type that
the GPU has, and looks into the compiled program.
"""

import functools
import time
from typing import Any, Dict, Iterator, List, Sequence

from ...problems import problem, statement
from .. import child, comparison, tensorflow_devices
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..comparison import Results
from ..tensorflow_devices import gpus

FULL_PRECISION = "float32"
_PROGRAM = "forward and gradient"
#: Small, because an autotuner runs every configuration that cuDNN offers for each convolution of a program.
_IMAGES, _KERNEL = (4, 12, 12, 8), (3, 3, 8, 16)
#: For the tolerance: the convolution, the bias and the activation, each stored in the type; and as many again
#: in the backward pass. The longest sum is the gradient by the filter, over all positions of all images.
_ROUNDINGS, _LENGTH = 8, 4 * 12 * 12


def _run(context: Context) -> Result:
    tf = context.tensorflow
    found = gpus(tf)
    device_type = "GPU" if found else "CPU"
    types = (FULL_PRECISION, *comparison.half_types(tf, found))

    def measured(*chosen: str) -> Result:
        return _judged(
            {
                "device_type": device_type,
                "types": list(chosen),
                "programs": list(_programs(context, device_type, chosen)),
            }
        )

    return comparison.also_in_float32(
        context, "xla_convolution_float32", measured(*types), lambda: measured(FULL_PRECISION)
    )


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _step(tf: Any, images: Any, kernel: Any, bias: Any) -> Results:
    """Return a convolution with bias and activation, and its gradient, as one program.

    Compiled together they take one convolution less than two programs, and all of them are autotuned.
    """
    given = {"input": images, "filter": kernel, "bias": bias}
    with tf.GradientTape() as tape:
        tape.watch(tuple(given.values()))
        activated = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias))
        loss = tf.reduce_mean(tf.square(tf.cast(activated, tf.float32)))
    gradients = tape.gradient(loss, tuple(given.values()))
    return {
        "convolution with bias and activation": activated,
        **{f"gradient by {name}": gradient for name, gradient in zip(given, gradients)},
    }


def _programs(context: Context, device_type: str, types: Sequence[str]) -> Iterator[Dict[str, Any]]:
    """Compile and run the step in each type; compare it with the uncompiled step in float32 on the CPU."""
    tf = context.tensorflow
    shapes = (_IMAGES, _KERNEL, (_KERNEL[-1],))
    for type_ in types:
        context.tell(
            child.DOING, statement=statement("compiling", program=f"convolution, {_PROGRAM}", type=type_)
        )
        precision = comparison.precision(tf) if type_ == FULL_PRECISION else type_
        with tf.device("/CPU:0"):
            given = [
                tf.cast(tf.random.stateless_normal(shape, seed=(5, number)), type_)
                for number, shape in enumerate(shapes)
            ]
            plain = tf.function(functools.partial(_step, tf), autograph=False)
            expected = plain(*(tf.cast(tensor, FULL_PRECISION) for tensor in given))
        with tf.device(f"/{device_type}:0"):
            compiled = tf.function(functools.partial(_step, tf), autograph=False, jit_compile=True)
            yield {
                "program": _PROGRAM,
                "type": type_,
                "precision": precision,
                "tolerance": comparison.tolerance(precision, _ROUNDINGS, _LENGTH),
                **_compared(tf, compiled, [tf.identity(tensor) for tensor in given], expected),
            }


def _compared(tf: Any, compiled: Any, given: Sequence[Any], expected: Results) -> Dict[str, Any]:
    start = time.perf_counter()
    try:
        results, first = tensorflow_devices.timed(compiled, *given)
        _, again = tensorflow_devices.timed(compiled, *given)
        module = compiled.experimental_get_compiler_ir(*given)(stage="optimized_hlo")
    except tf.errors.OpError as error:
        taken = time.perf_counter() - start
        return {"error": tensorflow_devices.refusal(error), "compile_s": taken, "hlo": None, "results": []}
    compared = comparison.compare_all(tf, results, expected)
    return {
        "error": None,
        "compile_s": first - again,
        "hlo": tensorflow_devices.summary(module),
        "results": compared,
    }


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["programs"]:
        named = {"program": entry["program"], "type": entry["type"]}
        if entry["error"] is not None:
            found.append(problem("convolution_not_compiled", **named, error=entry["error"]))
            continue
        if not entry["hlo"]["instructions"]:
            found.append(problem("no_compiled_module"))
        elif evidence["device_type"] == "GPU" and not tensorflow_devices.calls_cudnn(entry["hlo"]):
            found.append(problem("convolution_without_cudnn", **named))
        mode = f"{entry['type']}, compiled"
        found += comparison.computed_elsewhere(entry["results"], evidence["device_type"])
        found += comparison.differing(entry["results"], entry["tolerance"], "uncompiled", mode)
    return found


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    programs = evidence["programs"]
    return statement(
        "convolution_compiled",
        device_type=evidence["device_type"],
        types=evidence["types"],
        difference=max(comparison.worst(entry["results"]) for entry in programs),
        targets=sorted({target for entry in programs for target in entry["hlo"]["targets"]}),
    )


CHECK = Check(
    id="xla_convolution",
    title="Does XLA compile a convolution with bias and activation, and compute the same?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("device",),
)
