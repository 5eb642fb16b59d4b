"""Does a trained model compute the same after it is saved and loaded?

Each way to save uses different code: variables are copied from the GPU, written, read and copied back;
a SavedModel also brings its own graph. What a release doesn't have is named in the evidence and is not a
fault.
"""

import os
from typing import Any, Callable, Dict, List, Tuple

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import comparison, tensorflow_devices, training
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus
from ..training import classifier, compile_model, describe

#: Steps before the model is saved, so that its weights are not those of a new model.
_STEPS = 5
#: For the tolerance: three products of two factors, computed before and after.
_ROUNDINGS = 2 * 3 * 2
CHECKPOINT, SAVED_MODEL, WEIGHTS, KERAS = "a checkpoint", "a SavedModel", "weights in HDF5", ".keras"
#: The first TensorFlow release with the format; None: every release that this project knows. The native
#: format of Keras came with 2.12, where it must be asked for by name, and is the default from 2.13 on
#: (release notes of both).
SINCE: Dict[str, Any] = {CHECKPOINT: None, SAVED_MODEL: None, WEIGHTS: None, KERAS: (2, 12)}
_NAMED_UNTIL = (2, 13)


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    release = _release(tf)
    with tf.device(f"/{device_type}:0"):
        images, labels = training.batch(tf)
        model = compile_model(tf, classifier(tf), jit_compile=False)
        new = model(images, training=False)
        model.fit(images, labels, batch_size=len(labels), epochs=_STEPS, shuffle=False, verbose=0)
        expected = model(images, training=False)
        formats = [_saved(tf, name, model, images, expected, release) for name in SINCE]
        trained = comparison.compare(tf, "training", new, expected)
    evidence = {
        "device_type": device_type,
        "tensorflow": tf.__version__,
        "keras": describe(tf),
        "formats": formats,
        "precision": comparison.precision(tf),
        "tolerance": comparison.tolerance(comparison.precision(tf), _ROUNDINGS, 9 * 16),
        # The difference of a model whose weights were not loaded.
        "untrained_difference": trained["difference"],
    }
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _release(tf: Any) -> Tuple[int, ...]:
    return leading_numbers(tf.__version__)[:2]


def _saved(
    tf: Any, name: str, model: Any, images: Any, expected: Any, release: Tuple[int, ...]
) -> Dict[str, Any]:
    """Save and load the model; return `{format, offered, error, result}`. offered: whether the release has
    it."""
    seen: Dict[str, Any] = {"format": name, "offered": True, "error": None, "result": None}
    if SINCE[name] is not None and release < SINCE[name]:
        return {**seen, "offered": False}
    with tensorflow_devices.dump() as directory:
        try:
            found = _WAYS[name](tf, model, images, os.path.join(directory, "model"), release)
        except Exception as error:  # whatever is raised, the model was not saved and loaded
            return {**seen, "error": tensorflow_devices.refusal(error)}
    return {**seen, "result": comparison.compare(tf, name, found, expected)}


def _checkpoint(tf: Any, model: Any, images: Any, path: str, release: Tuple[int, ...]) -> Any:
    written = tf.train.Checkpoint(model=model).write(path)
    other = classifier(tf)
    # The optimizer is in the file, but not in the new model.
    tf.train.Checkpoint(model=other).read(written).assert_existing_objects_matched().expect_partial()
    return other(images, training=False)


def _saved_model(tf: Any, model: Any, images: Any, path: str, release: Tuple[int, ...]) -> Any:
    serve = tf.function(
        lambda batch: {"logits": model(batch, training=False)},
        input_signature=[tf.TensorSpec(images.shape, images.dtype)],
    )
    tf.saved_model.save(model, path, signatures=serve)
    return tf.saved_model.load(path).signatures["serving_default"](images)["logits"]


def _weights(tf: Any, model: Any, images: Any, path: str, release: Tuple[int, ...]) -> Any:
    model.save_weights(f"{path}.weights.h5")
    other = classifier(tf)
    other.load_weights(f"{path}.weights.h5")
    return other(images, training=False)


def _keras(tf: Any, model: Any, images: Any, path: str, release: Tuple[int, ...]) -> Any:
    named = {"save_format": "keras_v3"} if release < _NAMED_UNTIL else {}
    model.save(f"{path}.keras", **named)
    return tf.keras.models.load_model(f"{path}.keras")(images, training=False)


_WAYS: Dict[str, Callable[..., Any]] = {
    CHECKPOINT: _checkpoint,
    SAVED_MODEL: _saved_model,
    WEIGHTS: _weights,
    KERAS: _keras,
}


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    tried = [entry for entry in evidence["formats"] if entry["offered"]]
    found = [
        problem("model_not_saved", format=entry["format"], error=entry["error"])
        for entry in tried
        if entry["error"] is not None
    ]
    results = [entry["result"] for entry in tried if entry["result"] is not None]
    found += comparison.computed_elsewhere(results, evidence["device_type"])
    return found + comparison.differing(results, evidence["tolerance"], "saved", "loaded")


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    formats = evidence["formats"]
    return statement(
        "model_saved",
        device_type=evidence["device_type"],
        formats=[entry["format"] for entry in formats if entry["offered"]],
        missing=[entry["format"] for entry in formats if not entry["offered"]],
    )


CHECK = Check(
    id="save_load",
    title="Does a trained model compute the same after it is saved and loaded?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=180,
    requires=("device",),
)
