"""Does a recurrent layer run on cuDNN's kernel, and does it agree with a loop over its cells?

Keras chooses the kernel by itself (`use_cudnn="auto"`; Keras 2 by the layer's arguments), and silently falls
back to a loop over the steps, which is ten times slower. The reference is such a loop over the same cells.
"""

from typing import Any, Dict, List, Sequence

from ...problems import problem, statement
from .. import comparison, tensorflow_devices
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..comparison import Results
from ..tensorflow_devices import gpus
from ..training import describe

LAYERS = ("LSTM", "GRU")
#: TensorFlow's operations that call cuDNN: CudnnRNN, CudnnRNNV2, CudnnRNNV3, and their gradients.
KERNEL, GRADIENT = "CudnnRNN", "CudnnRNNBackprop"
_BATCH, _LENGTH, _WIDTH, _UNITS = 4, 16, 24, 32
#: For the tolerance: each step of the sequence has a product in the forward pass, and another in the backward
#: pass; the gradient by a kernel sums over all steps of all sequences.
_ROUNDINGS = _LENGTH * 2 * 2


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    return comparison.also_in_float32(
        context, "cudnn_rnn_float32", _measured(tf, device_type), lambda: _measured(tf, device_type)
    )


def _measured(tf: Any, device_type: str) -> Result:
    precision = comparison.precision(tf)
    layers = [_compared(tf, name, device_type) for name in LAYERS]
    return _judged(
        {
            "device_type": device_type,
            "keras": describe(tf),
            "precision": precision,
            "tolerance": comparison.tolerance(precision, _ROUNDINGS, _BATCH * _LENGTH),
            "layers": layers,
        }
    )


def _judged(evidence: Dict[str, Any]) -> Result:
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _compared(tf: Any, name: str, device_type: str) -> Dict[str, Any]:
    """Run a layer on the device, and the loop over its cells on the CPU."""
    keras = tf.keras.layers
    with tf.device(f"/{device_type}:0"):
        sequence = tf.random.stateless_normal((_BATCH, _LENGTH, _WIDTH), seed=(8, 0))
        tf.keras.utils.set_random_seed(1)
        layer = getattr(keras, name)(_UNITS, return_sequences=True)
        layer.build(sequence.shape)
        step = _step(tf, layer)
        executed, results = tensorflow_devices.operations(lambda: step(sequence), nested=True)
    with tf.device("/CPU:0"):
        sequence = tf.identity(sequence)
        cells = keras.RNN(getattr(keras, f"{name}Cell")(_UNITS), return_sequences=True)
        cells(sequence)
        cells.set_weights(layer.get_weights())
        expected = _step(tf, cells)(sequence)
    kernels = [entry for entry in executed if entry["op"].startswith(KERNEL)]
    return {"layer": name, "kernels": kernels, "results": comparison.compare_all(tf, results, expected)}


def _step(tf: Any, layer: Any) -> Any:
    def step(sequence: Any) -> Results:
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            states = layer(sequence)
            loss = tf.reduce_mean(tf.square(states))
        by_input, *by_weights = tape.gradient(loss, [sequence, *layer.trainable_weights])
        kernel, recurrent = by_weights[:2]
        return {
            "states": states,
            "gradient by input": by_input,
            "gradient by kernel": kernel,
            "gradient by recurrent kernel": recurrent,
        }

    return tf.function(step, autograph=False)


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["layers"]:
        name = entry["layer"]
        # A CPU has no such kernel; there the layer runs its loop.
        if evidence["device_type"] == "GPU" and not _on_cudnn(entry["kernels"]):
            found.append(problem("rnn_without_cudnn", layer=name))
        results = [{**result, "name": f"{name}: {result['name']}"} for result in entry["results"]]
        found += comparison.computed_elsewhere(results, evidence["device_type"])
        found += comparison.differing(results, evidence["tolerance"], "cells", "uncompiled")
    return found


def _on_cudnn(kernels: Sequence[Dict[str, Any]]) -> bool:
    """Return whether cuDNN ran the layer and its gradient, on the GPU."""
    on_gpu = [entry["op"] for entry in kernels if entry["device"].startswith("GPU:")]
    return any(op.startswith(GRADIENT) for op in on_gpu) and any(not op.startswith(GRADIENT) for op in on_gpu)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    return statement(
        "rnn_agrees",
        layers=[entry["layer"] for entry in evidence["layers"]],
        kernels=sorted({kernel["op"] for entry in evidence["layers"] for kernel in entry["kernels"]}),
        device_type=evidence["device_type"],
        difference=max(comparison.worst(entry["results"]) for entry in evidence["layers"]),
    )


CHECK = Check(
    id="cudnn_rnn",
    title="Do recurrent layers run on cuDNN's kernel, and compute what their cells do?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    requires=("device",),
)
