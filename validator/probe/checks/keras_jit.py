"""Is `model.compile(jit_compile=True)` really compiled, does it train, and does it compute the same?

Keras passes the request on to `tf.function`, or drops it with a warning that nobody reads. So the check
looks at the operations that TensorFlow executed: if a convolution is among them, it was not compiled. A
step that XLA can't compile must be rejected: if it trains, jit_compile was ignored. The compiled program is
that of the model's own training step. What Keras chooses by itself (`jit_compile="auto"`, the default of
Keras 3) is trained and compared as well.
"""

import time
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...problems import problem, statement
from .. import child, comparison, tensorflow_devices, training
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus
from ..training import classifier, compile_model, describe, major

STEPS = 5
#: jit_compile=False, jit_compile=True, and what Keras chooses.
OFF, ON, AUTO = "off", "on", "auto"
#: The operations that every model needs, as parts of their names. Operations inside XLA programs are not
#: among those executed.
_COMPUTING = ("Conv2D", "MatMul")


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    evidence: Dict[str, Any] = {"device_type": device_type, "keras": describe(tf), "steps": STEPS}
    settings: Dict[str, Dict[str, Any]] = {
        OFF: {"jit_compile": False},
        ON: {"jit_compile": True},
        # Keras 2 has no such value; it chooses if no value is given.
        AUTO: {} if major(evidence["keras"]) == 2 else {"jit_compile": "auto"},
    }
    evidence["resolved"] = _resolved(tf)
    images, labels = training.batch(tf)

    def trained(modes: Sequence[str]) -> Dict[str, Any]:
        seen: Dict[str, Any] = {"precision": comparison.precision(tf)}
        updates: Dict[str, List[Any]] = {}
        with tf.device(f"/{device_type}:0"):
            for mode in modes:
                context.tell(
                    child.DOING,
                    statement=statement("compiling", program=f"Keras, jit_compile {mode}", type="float32"),
                )
                seen[mode], updates[mode] = _trained(tf, settings[mode], images, labels)
                seen[mode]["largest_difference"] = training.apart(updates[mode], updates[OFF])
            seen["hlo"] = _program(tf, images, labels)
        return seen

    evidence.update(trained(list(settings)))
    with tf.device(f"/{device_type}:0"), child.section(f"provoked by {CHECK.id}"):
        for mode in (OFF, ON):
            evidence[f"refused_{mode}"] = _refused(tf, settings[mode], images, labels)

    def again() -> Result:
        """Train as users who turn TensorFloat-32 off; what Keras chooses by itself is one of the two."""
        seen = trained((OFF, ON))
        return _judged({**evidence, **seen, AUTO: seen[ON if evidence[AUTO]["jit_compile"] else OFF]})

    return comparison.also_in_float32(context, "keras_jit_float32", _judged(evidence), again)


def _judged(evidence: Dict[str, Any]) -> Result:
    evidence["tolerance"] = comparison.tolerance(
        evidence["precision"], 2 * training.ROUNDINGS, training.LENGTH
    )
    evidence["largest_difference"] = max(evidence[mode]["largest_difference"] for mode in (ON, AUTO))
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _trained(tf: Any, settings: Dict[str, Any], images: Any, labels: Any) -> Tuple[Dict[str, Any], List[Any]]:
    """Train a new model; return its losses, how many of the computing operations ran uncompiled, and what
    each step added to the last layer."""
    model = compile_model(tf, classifier(tf), **settings)
    start = time.perf_counter()
    executed, (losses, updates) = tensorflow_devices.operations(
        lambda: training.fit(model, images, labels, 1)
    )
    first_s = time.perf_counter() - start
    uncompiled = [entry for entry in executed if any(name in entry["op"] for name in _COMPUTING)]
    start = time.perf_counter()
    more, later = training.fit(model, images, labels, STEPS - 1)
    seen = {
        "losses": losses + more,
        "compile_s": first_s - (time.perf_counter() - start) / (STEPS - 1) if _jit(model) else None,
        "jit_compile": _jit(model),
        "uncompiled": sum(entry["count"] for entry in uncompiled),
        "device": model(images).device,
    }
    return seen, updates + later


def _program(tf: Any, images: Any, labels: Any) -> Dict[str, Any]:
    """Return the compiled program of a model's training step."""
    model = compile_model(tf, classifier(tf), jit_compile=True)
    # This creates the variables of the optimizer and the metrics.
    model.train_on_batch(images, labels)
    step = tf.function(
        lambda *batch: model.train_step(batch), jit_compile=True, autograph=False
    ).experimental_get_compiler_ir(images, labels)
    return tensorflow_devices.summary(step(stage="optimized_hlo"))


def _refused(tf: Any, settings: Dict[str, Any], images: Any, labels: Any) -> Optional[str]:
    """Return the exception raised when the loss calls back into Python, which XLA can't compile; or None."""

    def loss(expected: Any, logits: Any) -> Any:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(tf.reshape(expected, (-1,)), tf.int32), logits=logits
        )
        nothing = tf.numpy_function(lambda values: 0 * values, [tf.stop_gradient(entropy)], tf.float32)
        return entropy + tf.reshape(nothing, tf.shape(entropy))

    model = compile_model(tf, classifier(tf), loss, **settings)
    try:
        model.train_on_batch(images, labels)
    except tf.errors.OpError as error:
        return tensorflow_devices.refusal(error)
    return None


def _resolved(tf: Any) -> Dict[str, Any]:
    """Return how Keras interprets each value of `jit_compile`, for the classifier and a recurrent layer."""
    keras = tf.keras
    asked: Dict[str, Dict[str, Any]] = {
        "default": {},
        "true": {"jit_compile": True},
        "false": {"jit_compile": False},
    }
    # Keras 2 takes any text for True.
    if major(describe(tf)) != 2:
        asked["auto"] = {"jit_compile": "auto"}
    inputs = keras.Input((8, 4))
    recurrent = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.LSTM(4)(inputs)))
    found: Dict[str, Any] = {}
    for name, model in (("classifier", classifier(tf)), ("recurrent", recurrent)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found[name] = {
                value: _jit(compile_model(tf, model, **settings)) for value, settings in asked.items()
            }
        said = [str(entry.message) for entry in caught if "jit_compile" in str(entry.message)]
        found[name]["warning"] = said[0][:300] if said else None
    return found


def _jit(model: Any) -> Optional[bool]:
    """Return whether Keras will compile this model; None where this Keras doesn't say."""
    for name in ("jit_compile", "_jit_compile"):
        if hasattr(model, name):
            return bool(getattr(model, name))
    return None


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    wanted, program = evidence["device_type"], evidence["hlo"]
    if evidence[ON]["jit_compile"] is False:
        found.append(problem("jit_turned_off", mode=ON))
    for mode in (ON, AUTO):
        asked = mode == ON or evidence[AUTO]["jit_compile"]
        if asked and evidence[mode]["uncompiled"]:
            found.append(problem("jit_compiled_nothing", mode=mode, device_type=wanted))
        found += training.ran_elsewhere(evidence[mode]["device"], wanted, mode)
        found += training.not_falling(evidence[mode]["losses"], mode)
    # Otherwise, a convolution would not be among the operations even if it was not compiled.
    if not evidence[OFF]["uncompiled"]:
        found.append(problem("operation_not_executed", operation=" or ".join(_COMPUTING)))
    if not program["instructions"]:
        found.append(problem("no_compiled_module"))
    elif wanted == "GPU" and not tensorflow_devices.calls_cudnn(program):
        found.append(problem("convolution_without_cudnn", program="training step", type="float32"))
    if evidence["refused_on"] is None:
        found.append(problem("uncompilable_step_trained"))
    if evidence["refused_off"] is not None:
        found.append(problem("step_fails_without_jit", error=evidence["refused_off"]))
    return found + training.gradients_differ("jit_off", evidence)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    keras, resolved = evidence["keras"], evidence["resolved"]["classifier"]
    return statement(
        "keras_jit_works",
        package=keras["package"],
        version=keras["version"],
        device_type=evidence["device_type"],
        instructions=evidence["hlo"]["instructions"],
        default=resolved["default"],
        auto=resolved.get("auto"),
    )


CHECK = Check(
    id="keras_jit",
    title="Is model.compile(jit_compile=True) compiled, and does it compute the same?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("device",),
)
