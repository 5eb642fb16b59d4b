"""Is `model.compile(jit_compile=True)` really compiled, does it train, and does it compute the same?

Keras passes the request on to `tf.function`, or drops it with a warning that nobody reads. So the check has
XLA write every module that it compiles to a directory. That must be set before XLA's first use, hence the
fresh interpreter. In addition a step that XLA can't compile must be rejected: if it trains, it was not
compiled.
"""

import warnings
from typing import Any, Dict, Iterator, List, Optional

from ...problems import problem, statement
from .. import fresh, hlo, training
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged
from ..devices import exact_float32, gpus
from ..training import classifier, compile_model, describe, major

STEPS = 5
#: Largest relative difference between the losses of a step, compiled and not, in float32 without
#: TensorFloat-32; as in `xla_train_step`.
TOLERANCE = {"CPU": 1e-3, "GPU": 2e-2}
#: Without jit_compile, with it, and with it after `tf.config.optimizer.set_jit(True)`.
OFF, ON, TWICE = "off", "on", "twice"
_LIMIT_S = 240.0


def _run(context: Context) -> Result:
    with hlo.dump() as directory:
        answer = fresh.call(
            _trial, directory, limit_s=_LIMIT_S, environment={"XLA_FLAGS": hlo.flags(directory)}
        )
    evidence: Dict[str, Any] = {"steps": STEPS}
    for value in answer.values:
        evidence.update(value)
    if answer.failure is not None:
        return fresh.broken_off("keras", answer, evidence)
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    evidence["tolerance"] = TOLERANCE[evidence["device_type"]]
    evidence["largest_difference"] = max(
        training.difference(evidence[mode]["losses"], evidence[OFF]["losses"]) for mode in (ON, TWICE)
    )
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _trial(tf: Any, directory: str) -> Iterator[Dict[str, Any]]:
    """Train in each mode; yield what Keras made of the request, and what XLA compiled."""
    yield {"device_type": "GPU" if gpus(tf) else "CPU", "keras": describe(tf)}
    yield {"resolved": _resolved(tf)}
    images, labels = training.batch(tf)
    with exact_float32(tf):
        for mode in (OFF, ON):
            yield {mode: _trained(tf, mode, images, labels, directory)}
        for mode in (OFF, ON):
            yield {f"refused_{mode}": _refused(tf, mode, images, labels)}
        # Last, because it is not certain that this can be fully undone.
        tf.config.optimizer.set_jit(True)
        yield {TWICE: _trained(tf, TWICE, images, labels, directory)}


def _trained(tf: Any, mode: str, images: Any, labels: Any, directory: str) -> Dict[str, Any]:
    before = len(hlo.modules(directory))
    model = compile_model(tf, classifier(tf), jit_compile=mode != OFF)
    history = model.fit(images, labels, batch_size=len(labels), epochs=STEPS, shuffle=False, verbose=0)
    return {
        "losses": [float(loss) for loss in history.history["loss"]],
        "jit_compile": _jit(model),
        "modules": hlo.modules(directory)[before:],
    }


def _refused(tf: Any, mode: str, images: Any, labels: Any) -> Optional[str]:
    """Return the exception raised when the loss calls back into Python, which XLA can't compile; or None."""

    def loss(expected: Any, logits: Any) -> Any:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(tf.reshape(expected, (-1,)), tf.int32), logits=logits
        )
        nothing = tf.numpy_function(lambda values: 0 * values, [tf.stop_gradient(entropy)], tf.float32)
        return entropy + tf.reshape(nothing, tf.shape(entropy))

    model = compile_model(tf, classifier(tf), loss, jit_compile=mode != OFF)
    try:
        model.train_on_batch(images, labels)
    except tf.errors.OpError as error:
        return hlo.refusal(error)
    return None


def _resolved(tf: Any) -> Dict[str, Any]:
    """Return what Keras makes of each value of `jit_compile`, for the classifier and a recurrent layer."""
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
    wanted = evidence["device_type"]
    for mode in (ON, TWICE):
        seen = evidence[mode]
        compiled = [module for module in seen["modules"] if module["device_type"] == wanted]
        if seen["jit_compile"] is False:
            found.append(problem("jit_turned_off", mode=mode))
        if not compiled:
            found.append(problem("jit_compiled_nothing", mode=mode, device_type=wanted))
    if evidence["refused_on"] is None:
        found.append(problem("uncompilable_step_trained"))
    if evidence["refused_off"] is not None:
        found.append(problem("step_fails_without_jit", error=evidence["refused_off"]))
    found += training.not_falling(evidence[ON]["losses"])
    return found + training.losses_differ("jit_off", evidence)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    keras, modules = evidence["keras"], evidence[ON]["modules"]
    resolved = evidence["resolved"]["classifier"]
    return statement(
        "keras_jit_works",
        package=keras["package"],
        version=keras["version"],
        device_type=evidence["device_type"],
        modules=len(modules),
        instructions=max(module["instructions"] for module in modules),
        default=resolved["default"],
        auto=resolved.get("auto"),
    )


CHECK = Check(
    id="keras_jit",
    title="Is model.compile(jit_compile=True) compiled, and does it compute the same?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    required=False,
    depth=FULL,
)
