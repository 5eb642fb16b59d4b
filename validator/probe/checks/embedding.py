"""Is the gradient of an embedding right, and does a step with it change the right rows?

The gradient is sparse: rows that occur several times are summed by atomic additions or a scatter, kernels
that no other check runs. XLA compiles it to a different program. Both are compared with the CPU.
"""

from typing import Any, Dict, List

from ...problems import problem, statement
from .. import comparison, tensorflow_devices
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..comparison import FLOAT32, Results
from ..tensorflow_devices import gpus

UNCOMPILED, COMPILED = "uncompiled", "compiled"
_ROWS, _WIDTH, _BATCH, _LENGTH = 50, 32, 16, 24
_RATE = 0.5
#: There are sums but no products of matrices, so TensorFloat-32 has no part in it, and the default is float32
#: everywhere. The longest sum: a row that is looked up at every position.
TOLERANCE = comparison.tolerance(FLOAT32, 2, _BATCH * _LENGTH, sums_only=True)


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    with tf.device("/CPU:0"):
        ids = _ids(tf)
        expected = _expected(tf, ids)
    with tf.device(f"/{device_type}:0"):
        runs = [_seen(tf, mode, ids, expected) for mode in (UNCOMPILED, COMPILED)]
    return _judged({"device_type": device_type, "rows": _ROWS, "lookups": _BATCH * _LENGTH, "runs": runs})


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _ids(tf: Any) -> Any:
    """Return the rows to look up: each even row many times, and of the odd rows only the first."""
    numbers = tf.range(_BATCH * _LENGTH, dtype=tf.int32)
    return tf.reshape(tf.where(numbers % 7 == 0, 1, numbers * numbers % (_ROWS // 2) * 2), (_BATCH, _LENGTH))


def _values(tf: Any) -> Any:
    return tf.random.stateless_normal((_ROWS, _WIDTH), seed=(7, 0))


def _weights(tf: Any) -> Any:
    """Return the factors of the loss, which give every lookup another gradient."""
    return tf.random.stateless_normal((_BATCH, _LENGTH, _WIDTH), seed=(7, 1))


def _expected(tf: Any, ids: Any) -> Results:
    """Compute the results without a gradient tape, from their definition."""
    values, weights = _values(tf), _weights(tf)
    flat = tf.reshape(weights, (-1, _WIDTH))
    gradient = tf.math.unsorted_segment_sum(flat, tf.reshape(ids, (-1,)), _ROWS)
    return {"lookup": tf.gather(values, ids), "gradient": gradient, "step": values - _RATE * gradient}


def _seen(tf: Any, mode: str, ids: Any, expected: Results) -> Dict[str, Any]:
    layer = tf.keras.layers.Embedding(_ROWS, _WIDTH)
    layer(ids)
    layer.set_weights([_values(tf).numpy()])
    optimizer = tf.keras.optimizers.SGD(_RATE)
    variable = layer.trainable_variables[0]
    optimizer.build([variable])
    weights = _weights(tf)

    def step(rows: Any) -> Results:
        with tf.GradientTape() as tape:
            looked_up = layer(rows)
            loss = tf.reduce_sum(looked_up * weights)
        (gradient,) = tape.gradient(loss, layer.trainable_weights)
        optimizer.apply_gradients([(gradient, variable)])
        return {"lookup": looked_up, "gradient": tf.convert_to_tensor(gradient)}

    function = tf.function(step, autograph=False, jit_compile=mode == COMPILED)
    seen: Dict[str, Any] = {"mode": mode, "error": None, "hlo": None, "results": []}
    try:
        results, first = tensorflow_devices.timed(function, ids)
        results["step"] = tf.identity(tf.convert_to_tensor(variable))
        if mode == COMPILED:
            seen["compile_s"] = first - tensorflow_devices.timed(function, ids)[1]
        if mode == COMPILED:
            seen["hlo"] = tensorflow_devices.summary(
                function.experimental_get_compiler_ir(ids)(stage="optimized_hlo")
            )
    except tf.errors.OpError as error:
        return {**seen, "error": tensorflow_devices.refusal(error)}
    return {**seen, "results": comparison.compare_all(tf, results, expected)}


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["runs"]:
        if entry["error"] is not None:
            found.append(problem("embedding_not_computed", mode=entry["mode"], error=entry["error"]))
            continue
        if entry["mode"] == COMPILED and not entry["hlo"]["instructions"]:
            found.append(problem("no_compiled_module"))
        found += comparison.computed_elsewhere(entry["results"], evidence["device_type"])
        found += comparison.differing(entry["results"], TOLERANCE, "cpu", entry["mode"])
    return found


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    return statement(
        "embedding_agrees",
        device_type=evidence["device_type"],
        lookups=evidence["lookups"],
        rows=evidence["rows"],
        difference=max(comparison.worst(entry["results"]) for entry in evidence["runs"]),
    )


CHECK = Check(
    id="embedding",
    title="Is the gradient of an embedding right, and does a step change the right rows?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("device",),
)
