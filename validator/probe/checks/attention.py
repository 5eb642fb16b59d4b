"""Does Keras's attention give the same results in half precision as in float32, also when compiled by
XLA?

Keras's layer masks positions with large negative numbers, which overflow in float16, and sums over the
sequence in the policy's type. The check runs the layer with a causal mask under the policies `mixed_float16`
and, where the GPU has it, `mixed_bfloat16`, forward and backward, uncompiled and compiled.
"""

from typing import Any, Dict, Iterator, List, Sequence

from ...problems import problem, statement
from .. import child, comparison, tensorflow_devices
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..comparison import Results
from ..tensorflow_devices import gpus

FULL_PRECISION = "float32"
UNCOMPILED, COMPILED = "uncompiled", "compiled"
_BATCH, _LENGTH, _WIDTH, _HEADS = 4, 32, 64, 4
#: For the tolerance: four products follow one another, of which each rounds two factors and its result, and
#: the softmax rounds twice; as many again in the backward pass.
_ROUNDINGS = 2 * (4 * 3 + 2)
#: Multiplies the loss, as Keras's LossScaleOptimizer does: small gradients would become zero in float16.
_LOSS_SCALE = 2.0**12


def _run(context: Context) -> Result:
    tf = context.tensorflow
    found = gpus(tf)
    device_type = "GPU" if found else "CPU"
    types = comparison.half_types(tf, found)
    runs = list(_runs(context, device_type, types))
    return _judged({"device_type": device_type, "types": list(types), "runs": runs})


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _runs(context: Context, device_type: str, types: Sequence[str]) -> Iterator[Dict[str, Any]]:
    """Run the layer in each type, uncompiled and compiled; compare it with float32 on the CPU.

    There is no product in float32 on the device, so TensorFloat-32 has no part in this.
    """
    tf = context.tensorflow
    with tf.device("/CPU:0"):
        sequence = tf.random.stateless_normal((_BATCH, _LENGTH, _WIDTH), seed=(6, 0))
        reference = _layer(tf, FULL_PRECISION, sequence)
        expected = _step(tf, reference, jit_compile=False)(sequence)
    for type_ in types:
        with tf.device(f"/{device_type}:0"):
            yield from _modes(context, type_, tf.identity(sequence), reference.get_weights(), expected)


def _modes(
    context: Context, type_: str, sequence: Any, weights: Any, expected: Results
) -> Iterator[Dict[str, Any]]:
    tf = context.tensorflow
    layer = _layer(tf, f"mixed_{type_}", sequence)
    layer.set_weights(weights)
    for mode in (UNCOMPILED, COMPILED):
        step = _step(tf, layer, jit_compile=mode == COMPILED)
        seen: Dict[str, Any] = {"type": type_, "mode": mode, "error": None, "hlo": None, "results": []}
        seen["tolerance"] = comparison.tolerance(type_, _ROUNDINGS, _WIDTH)
        seen["compute_dtype"] = str(layer.compute_dtype)
        seen["variable_dtype"] = str(layer.variable_dtype)
        try:
            if mode == COMPILED:
                context.tell(child.DOING, statement=statement("compiling", program="attention", type=type_))
            results, first = tensorflow_devices.timed(step, sequence)
            if mode == COMPILED:
                seen["compile_s"] = first - tensorflow_devices.timed(step, sequence)[1]
                module = step.experimental_get_compiler_ir(sequence)(stage="optimized_hlo")
                seen["hlo"] = tensorflow_devices.summary(module)
        except tf.errors.OpError as error:
            yield {**seen, "error": tensorflow_devices.refusal(error)}
            continue
        yield {**seen, "results": comparison.compare_all(tf, results, expected)}


def _layer(tf: Any, policy: str, sequence: Any) -> Any:
    """Return the layer with its weights created. The policy is set globally, as users do it."""
    precision = tf.keras.mixed_precision
    before = precision.global_policy()
    precision.set_global_policy(policy)
    try:
        tf.keras.utils.set_random_seed(1)
        layer = tf.keras.layers.MultiHeadAttention(num_heads=_HEADS, key_dim=_WIDTH // _HEADS)
        layer(sequence, sequence, attention_mask=_mask(tf))
    finally:
        precision.set_global_policy(before)
    return layer


def _mask(tf: Any) -> Any:
    """Return the causal mask: each position may see those up to itself."""
    return tf.linalg.band_part(tf.ones((1, _LENGTH, _LENGTH), tf.bool), -1, 0)


def _step(tf: Any, layer: Any, jit_compile: bool) -> Any:
    def step(sequence: Any) -> Results:
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            attended = layer(sequence, sequence, attention_mask=_mask(tf))
            loss = _LOSS_SCALE * tf.reduce_mean(tf.square(tf.cast(attended, tf.float32)))
        query = layer.trainable_variables[0]
        by_sequence, by_query = tape.gradient(loss, (sequence, _tensor(query)))
        return {"attention": attended, "gradient by input": by_sequence, "gradient by query": by_query}

    return tf.function(step, autograph=False, jit_compile=jit_compile)


def _tensor(variable: Any) -> Any:
    """Return TensorFlow's own variable, which Keras 3 wraps."""
    return (
        getattr(variable, "value", variable) if not callable(getattr(variable, "value", None)) else variable
    )


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["runs"]:
        if entry["error"] is not None:
            named = {"type": entry["type"], "mode": entry["mode"]}
            found.append(problem("attention_not_computed", **named, error=entry["error"]))
            continue
        if (entry["compute_dtype"], entry["variable_dtype"]) != (entry["type"], FULL_PRECISION):
            dtypes = {name: entry[name] for name in ("compute_dtype", "variable_dtype")}
            found.append(problem("policy_not_followed", policy=f"mixed_{entry['type']}", **dtypes))
        if entry["mode"] == COMPILED and not entry["hlo"]["instructions"]:
            found.append(problem("no_compiled_module"))
        mode = f"{entry['type']}, {entry['mode']}"
        found += comparison.computed_elsewhere(entry["results"], evidence["device_type"])
        found += comparison.differing(entry["results"], entry["tolerance"], "float32", mode)
    return found


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    return statement(
        "attention_agrees",
        device_type=evidence["device_type"],
        types=evidence["types"],
        difference=max(comparison.worst(entry["results"]) for entry in evidence["runs"]),
    )


CHECK = Check(
    id="attention",
    title="Does Keras's attention in half precision agree with float32, also compiled by XLA?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("device",),
)
