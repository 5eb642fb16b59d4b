"""Does `model.compile(jit_compile=True)` train, is it compiled in truth, and does it compute the same?

Keras passes the wish on to `tf.function`, or drops it with a warning that nobody reads. So XLA is asked
itself: it writes down every module it compiles, which it can be told to only before its first use, hence in
a fresh interpreter. And a step that XLA can't compile must be refused: one that trains was not compiled.
"""

import warnings
from typing import Any, Dict, Iterator, List, Optional

from .. import fresh, hlo, training
from ..check import FAIL, FULL, PASS, TENSORFLOW, Check, Context, Result
from ..devices import exact_float32, gpus
from ..training import classifier, compile_model, describe, major

STEPS = 5
#: Largest relative difference between the losses of a step, compiled and not, in float32 without
#: TensorFloat-32; as in `xla_train_step`.
TOLERANCE = {"CPU": 1e-3, "GPU": 2e-2}
#: Without it, with it, and with it on top of `tf.config.optimizer.set_jit(True)`.
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
        broken = fresh.fault(answer, "training with Keras")
        return Result(broken.outcome, broken.summary, {**evidence, **broken.evidence})
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    evidence["tolerance"] = TOLERANCE[evidence["device_type"]]
    evidence["largest_difference"] = max(
        training.difference(evidence[mode]["losses"], evidence[OFF]["losses"]) for mode in (ON, TWICE)
    )
    faults = _faults(evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    return Result(PASS, _summary(evidence), evidence)


def _trial(tf: Any, directory: str) -> Iterator[Dict[str, Any]]:
    """Train in each way; say what Keras made of the wish, and what XLA compiled."""
    yield {"device_type": "GPU" if gpus(tf) else "CPU", "keras": describe(tf)}
    yield {"resolved": _resolved(tf)}
    images, labels = training.batch(tf)
    with exact_float32(tf):
        for mode in (OFF, ON):
            yield {mode: _trained(tf, mode, images, labels, directory)}
        for mode in (OFF, ON):
            yield {f"refused_{mode}": _refused(tf, mode, images, labels)}
        # Last, since it can't be said whether this is ever wholly taken back.
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
    """What is raised when the loss calls back into Python, which XLA has no instruction for; or None."""

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
    """What Keras makes of each value of `jit_compile`: for the classifier, and for a recurrent layer."""
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
    """Whether Keras will compile this model; None where this Keras does not say."""
    for name in ("jit_compile", "_jit_compile"):
        if hasattr(model, name):
            return bool(getattr(model, name))
    return None


def _faults(evidence: Dict[str, Any]) -> List[str]:
    faults = []
    wanted = evidence["device_type"]
    for mode, what in ((ON, "jit_compile=True"), (TWICE, "jit_compile=True after set_jit(True)")):
        seen = evidence[mode]
        compiled = [module for module in seen["modules"] if module["device_type"] == wanted]
        if seen["jit_compile"] is False:
            faults.append(f"Keras turned {what} into False")
        if not compiled:
            faults.append(f"{what} trained, but XLA compiled nothing for the {wanted}: a silent fallback")
    if evidence["refused_on"] is None:
        faults.append("a step that XLA can't compile trains under jit_compile=True: it is not compiled")
    if evidence["refused_off"] is not None:
        faults.append(f"the same step fails without jit_compile too: {evidence['refused_off']}")
    if not evidence[ON]["losses"][-1] < evidence[ON]["losses"][0]:
        faults.append(f"the loss does not fall: {evidence[ON]['losses']}")
    if not evidence["largest_difference"] <= evidence["tolerance"]:
        faults.append(
            f"losses differ from those of jit_compile=False by {evidence['largest_difference']:.1e}"
        )
    return faults


def _summary(evidence: Dict[str, Any]) -> str:
    keras, modules = evidence["keras"], evidence[ON]["modules"]
    resolved = evidence["resolved"]["classifier"]
    automatic = "" if "auto" not in resolved else f", 'auto' is {resolved['auto']}"
    largest = max(module["instructions"] for module in modules)
    return (
        f"{keras['package']} {keras['version']}: jit_compile=True is compiled for the"
        f" {evidence['device_type']} ({len(modules)} module(s), {largest} instructions), and computes"
        f" the same; unset it is {resolved['default']} here{automatic}"
    )


CHECK = Check(
    id="keras_jit",
    title="model.compile(jit_compile=True) is compiled, trains, and computes the same",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    required=False,
    depth=FULL,
)
