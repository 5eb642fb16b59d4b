"""Does XLA compile a convolution with bias and activation, and its gradient, and do they compute the same?

XLA fuses convolution, bias and activation into one call of cuDNN (`__cudnn$convBiasActivationForward`) that
uncompiled programs don't make. With TensorFlow 2.21 and cuDNN 9.3 or 9.5 its autotuner finds no
configuration for that call on common GPUs (aws/deep-learning-containers#6417 and #6418), and Keras compiles
with XLA by default. The check therefore compiles the convolution by itself, in each floating-point type that
the GPU has, and looks into the compiled program.
"""

import functools
from typing import Any, Callable, Dict, Iterator, List, Sequence

from ...problems import problem, statement
from .. import comparison, hlo
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..comparison import TOLERANCES, Results
from ..tensorflow_devices import exact_float32, gpus

FULL_PRECISION = "float32"
_IMAGES, _KERNEL = (8, 24, 24, 16), (3, 3, 16, 32)


def _run(context: Context) -> Result:
    tf = context.tensorflow
    found = gpus(tf)
    device_type = "GPU" if found else "CPU"
    types = (FULL_PRECISION, *comparison.half_types(tf, found))
    with tf.device(f"/{device_type}:0"), exact_float32(tf):
        programs = list(_programs(tf, types))
    return _judged({"device_type": device_type, "types": list(types), "programs": programs})


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _forward(tf: Any, images: Any, kernel: Any, bias: Any) -> Results:
    """Return the convolution with bias, and another with bias and activation: XLA fuses both."""
    linear = tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias)
    activated = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, -kernel, 2, "VALID"), bias))
    return {"convolution with bias": linear, "convolution with bias and activation": activated}


def _gradient(tf: Any, images: Any, kernel: Any, bias: Any) -> Results:
    given = {"input": images, "filter": kernel, "bias": bias}
    with tf.GradientTape() as tape:
        tape.watch(tuple(given.values()))
        activated = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias))
        loss = tf.reduce_mean(tf.square(tf.cast(activated, tf.float32)))
    gradients = tape.gradient(loss, tuple(given.values()))
    return {f"gradient by {name}": gradient for name, gradient in zip(given, gradients)}


_FUNCTIONS: Dict[str, Callable[..., Results]] = {"forward": _forward, "gradient": _gradient}


def _programs(tf: Any, types: Sequence[str]) -> Iterator[Dict[str, Any]]:
    """Compile and run both functions in each type; compare with the uncompiled functions in float32."""
    shapes = (_IMAGES, _KERNEL, (_KERNEL[-1],))
    tensors = [tf.random.stateless_normal(shape, seed=(5, number)) for number, shape in enumerate(shapes)]
    for name, function in _FUNCTIONS.items():
        plain = tf.function(functools.partial(function, tf), autograph=False)
        compiled = tf.function(functools.partial(function, tf), autograph=False, jit_compile=True)
        for type_ in types:
            given = [tf.cast(tensor, type_) for tensor in tensors]
            expected = plain(*(tf.cast(tensor, FULL_PRECISION) for tensor in given))
            yield {"program": name, "type": type_, **_compared(tf, compiled, given, expected)}


def _compared(tf: Any, compiled: Any, given: Sequence[Any], expected: Results) -> Dict[str, Any]:
    try:
        results = compiled(*given)
        module = compiled.experimental_get_compiler_ir(*given)(stage="optimized_hlo")
    except tf.errors.OpError as error:
        return {"error": hlo.refusal(error), "hlo": None, "results": []}
    compared = comparison.compare_all(tf, results, expected)
    return {"error": None, "hlo": hlo.summary(module), "results": compared}


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["programs"]:
        named = {"program": entry["program"], "type": entry["type"]}
        if entry["error"] is not None:
            found.append(problem("convolution_not_compiled", **named, error=entry["error"]))
            continue
        if not entry["hlo"]["instructions"]:
            found.append(problem("no_compiled_module"))
        elif evidence["device_type"] == "GPU" and not hlo.calls_cudnn(entry["hlo"]):
            found.append(problem("convolution_without_cudnn", **named))
        mode = f"{entry['type']}, compiled"
        found += comparison.computed_elsewhere(entry["results"], evidence["device_type"])
        found += comparison.differing(entry["results"], TOLERANCES[entry["type"]], "uncompiled", mode)
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
