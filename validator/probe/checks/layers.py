"""Keras's layers compute what they should: attention, embeddings, recurrent layers, and mixed precision."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import child, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Context, Result, check, judged, skipped
from ..tensorflow_devices import device_type, refusal
from ..training import FLOAT32, Results, classifier, compile_model, describe
from .speed import ratios, spread, turns

UNCOMPILED, COMPILED = "uncompiled", "compiled"
_BATCH, _LENGTH, _WIDTH, _HEADS = 4, 32, 64, 4
#: For the tolerance: four products follow one another, of which each rounds two factors and its result, and
#: the softmax rounds twice; as many again in the backward pass.
_ROUNDINGS = 2 * (4 * 3 + 2)
#: Multiplies the loss, as Keras's LossScaleOptimizer does: small gradients would become zero in float16.
_LOSS_SCALE = 2.0**12


@check(
    "Does Keras's attention in half precision agree with float32, also compiled by XLA?",
    TENSORFLOW,
    limit_s=300,
    requires=("device",),
)
def attention(context: Context) -> Result:
    """Run the layer with a causal mask under the policies of half precision, uncompiled and compiled.

    It masks positions with large negative numbers, which overflow in float16, and sums over the sequence in
    the policy's type. There is no product in float32 on the device, so TensorFloat-32 has no part in this.
    The reference is float32 on the CPU.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    types = training.half_types(tf)
    with tf.device("/CPU:0"):
        sequence = tf.random.stateless_normal((_BATCH, _LENGTH, _WIDTH), seed=(6, 0))
        reference = _attention_layer(tf, FLOAT32, sequence)
        expected = _attention_step(tf, reference, jit_compile=False)(sequence)
    runs = []
    for type_ in types:
        tolerance = training.tolerance(type_, _ROUNDINGS, _WIDTH)
        with tf.device(f"/{kind}:0"):
            given = tf.identity(sequence)
            layer = _attention_layer(tf, f"mixed_{type_}", given)
            layer.set_weights(reference.get_weights())
            for mode in (UNCOMPILED, COMPILED):
                if mode == COMPILED:
                    context.tell(
                        child.DOING, statement=statement("compiling", program="attention", type=type_)
                    )
                step = _attention_step(tf, layer, jit_compile=mode == COMPILED)
                result = training.tried(tf, step, [given], expected, mode == COMPILED)
                runs.append({"type": type_, "mode": mode, "tolerance": tolerance, **_dtypes(layer), **result})
    return judge_attention({"device_type": kind, "types": list(types), "runs": runs})


def _dtypes(layer: Any) -> dict[str, str]:
    return {name: str(getattr(layer, name)) for name in ("compute_dtype", "variable_dtype")}


def _attention_layer(tf: Any, policy: str, sequence: Any) -> Any:
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


def _attention_step(tf: Any, layer: Any, jit_compile: bool) -> Any:
    def step(sequence: Any) -> Results:
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            attended = layer(sequence, sequence, attention_mask=_mask(tf))
            loss = _LOSS_SCALE * tf.reduce_mean(tf.square(tf.cast(attended, tf.float32)))
        query = layer.trainable_variables[0]
        # Keras 3 wraps TensorFlow's variable, in which `value` is a method.
        if not callable(getattr(query, "value", None)):
            query = getattr(query, "value", query)
        by_sequence, by_query = tape.gradient(loss, (sequence, query))
        return {"attention": attended, "gradient by input": by_sequence, "gradient by query": by_query}

    return tf.function(step, autograph=False, jit_compile=jit_compile)


def judge_attention(evidence: dict[str, Any]) -> Result:
    problems, kind = [], evidence["device_type"]
    for entry in evidence["runs"]:
        type_, mode = entry["type"], entry["mode"]
        if entry["error"] is not None:
            problems.append(problem("attention_not_computed", type=type_, mode=mode, error=entry["error"]))
            continue
        problems += _policy_not_followed(entry, f"mixed_{type_}", type_)
        if mode == COMPILED and not entry["hlo"]["instructions"]:
            problems.append(problem("no_compiled_module"))
        problems += training.wrong_results(
            entry["results"], kind, entry["tolerance"], "float32", f"{type_}, {mode}"
        )
    told = {"types": evidence["types"], "difference": training.worst_of_all(evidence["runs"])}
    return judged(problems, statement("attention_agrees", device_type=kind, **told), evidence)


def _policy_not_followed(entry: dict[str, Any], policy: str, type_: str) -> list[dict[str, Any]]:
    dtypes = {name: entry[name] for name in ("compute_dtype", "variable_dtype")}
    if dtypes == {"compute_dtype": type_, "variable_dtype": FLOAT32}:
        return []
    return [problem("policy_not_followed", policy=policy, **dtypes)]


_TABLE_ROWS, _TABLE_WIDTH, _LOOKUPS = 50, 32, (16, 24)
_RATE = 0.5
#: There are sums but no products of matrices, so TensorFloat-32 has no part in it, and the default is float32
#: everywhere. The longest sum: a row that is looked up at every position.
EMBEDDING_TOLERANCE = training.tolerance(FLOAT32, 2, 16 * 24, sums_only=True)


@check(
    "Is the gradient of an embedding right, and does a step change the right rows?",
    TENSORFLOW,
    limit_s=300,
    requires=("device",),
)
def embedding(context: Context) -> Result:
    """Take a step with an embedding, uncompiled and compiled, and compare both with the CPU.

    The gradient is sparse: rows that occur several times are summed by atomic additions or a scatter, kernels
    that no other check runs. The reference is computed without a gradient tape, from the definition.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    with tf.device("/CPU:0"):
        # Each even row many times, and of the odd rows only the first.
        numbers = tf.range(_LOOKUPS[0] * _LOOKUPS[1], dtype=tf.int32)
        chosen = tf.where(numbers % 7 == 0, 1, numbers * numbers % (_TABLE_ROWS // 2) * 2)
        ids = tf.reshape(chosen, _LOOKUPS)
        values, weights = _embedding_numbers(tf)
        flat = tf.reshape(weights, (-1, _TABLE_WIDTH))
        gradient = tf.math.unsorted_segment_sum(flat, tf.reshape(ids, (-1,)), _TABLE_ROWS)
        expected = {"lookup": tf.gather(values, ids), "gradient": gradient}
        expected["step"] = values - _RATE * gradient
    with tf.device(f"/{kind}:0"):
        runs = [_embed(tf, mode, ids, expected) for mode in (UNCOMPILED, COMPILED)]
    lookups = _LOOKUPS[0] * _LOOKUPS[1]
    return judge_embedding({"device_type": kind, "rows": _TABLE_ROWS, "lookups": lookups, "runs": runs})


def _embedding_numbers(tf: Any) -> tuple[Any, Any]:
    """Return the table, and the factors of the loss, which give every lookup another gradient."""
    return (
        tf.random.stateless_normal((_TABLE_ROWS, _TABLE_WIDTH), seed=(7, 0)),
        tf.random.stateless_normal((*_LOOKUPS, _TABLE_WIDTH), seed=(7, 1)),
    )


def _embed(tf: Any, mode: str, ids: Any, expected: Results) -> dict[str, Any]:
    values, weights = _embedding_numbers(tf)
    layer = tf.keras.layers.Embedding(_TABLE_ROWS, _TABLE_WIDTH)
    layer(ids)
    layer.set_weights([values.numpy()])
    optimizer = tf.keras.optimizers.SGD(_RATE)
    variable = layer.trainable_variables[0]
    optimizer.build([variable])

    def step(rows: Any) -> Results:
        with tf.GradientTape() as tape:
            looked_up = layer(rows)
            loss = tf.reduce_sum(looked_up * weights)
        (gradient,) = tape.gradient(loss, layer.trainable_weights)
        optimizer.apply_gradients([(gradient, variable)])
        return {"lookup": looked_up, "gradient": tf.convert_to_tensor(gradient)}

    function = tf.function(step, autograph=False, jit_compile=mode == COMPILED)
    seen: dict[str, Any] = {"mode": mode, "error": None, "hlo": None, "results": []}
    try:
        results, first = tensorflow_devices.timed(function, ids)
        # Before the next step changes it again.
        results["step"] = tf.identity(tf.convert_to_tensor(variable))
        if mode == COMPILED:
            seen["compile_s"] = first - tensorflow_devices.timed(function, ids)[1]
            module = function.experimental_get_compiler_ir(ids)(stage="optimized_hlo")
            seen["hlo"] = tensorflow_devices.summary(module)
    except tf.errors.OpError as error:
        return {**seen, "error": refusal(error)}
    return {**seen, "results": training.compare_all(tf, results, expected)}


def judge_embedding(evidence: dict[str, Any]) -> Result:
    problems, kind = [], evidence["device_type"]
    for entry in evidence["runs"]:
        mode, results = entry["mode"], entry["results"]
        if entry["error"] is not None:
            problems.append(problem("embedding_not_computed", mode=mode, error=entry["error"]))
            continue
        if mode == COMPILED and not entry["hlo"]["instructions"]:
            problems.append(problem("no_compiled_module"))
        problems += training.wrong_results(results, kind, EMBEDDING_TOLERANCE, "cpu", mode)
    counts = {"lookups": evidence["lookups"], "rows": evidence["rows"]}
    worst = training.worst_of_all(evidence["runs"])
    passed = statement("embedding_agrees", device_type=kind, **counts, difference=worst)
    return judged(problems, passed, evidence)


_RNN_LAYERS = ("LSTM", "GRU")
#: TensorFlow's operations that call cuDNN: CudnnRNN, CudnnRNNV2, CudnnRNNV3, and their gradients.
_RNN_KERNEL, _RNN_GRADIENT = "CudnnRNN", "CudnnRNNBackprop"
_RNN_SEQUENCE, _UNITS = (4, 16, 24), 32
#: For the tolerance: each step of the sequence has a product in the forward pass, and another in the backward
#: pass; the gradient by a kernel sums over all steps of all sequences.
_RNN_ROUNDINGS, _RNN_LENGTH = 16 * 2 * 2, 4 * 16


@check(
    "Do recurrent layers run on cuDNN's kernel, and compute what their cells do?",
    TENSORFLOW,
    limit_s=300,
    requires=("device",),
)
def cudnn_rnn(context: Context) -> Result:
    """Run recurrent layers on the device, and a loop over the same cells on the CPU.

    Keras chooses the kernel by itself (`use_cudnn="auto"`; Keras 2 by the layer's arguments), and silently
    falls back to a loop over the steps, which is ten times slower.
    """
    tf = context.tensorflow
    kind = device_type(tf)

    def measured() -> Result:
        within = training.allowed(tf, _RNN_ROUNDINGS, _RNN_LENGTH)
        layers = [_recur(tf, name, kind) for name in _RNN_LAYERS]
        return judge_cudnn_rnn({"device_type": kind, "keras": describe(tf), **within, "layers": layers})

    return training.also_in_float32(context, "cudnn_rnn_float32", measured(), measured)


def _recur(tf: Any, name: str, kind: str) -> dict[str, Any]:
    keras = tf.keras.layers

    def step_of(layer: Any) -> Any:
        def step(sequence: Any) -> Results:
            with tf.GradientTape() as tape:
                tape.watch(sequence)
                states = layer(sequence)
                loss = tf.reduce_mean(tf.square(states))
            found = tape.gradient(loss, [sequence, *layer.trainable_weights])
            names = ("input", "kernel", "recurrent kernel")
            return {"states": states, **{f"gradient by {name}": one for name, one in zip(names, found)}}

        return tf.function(step, autograph=False)

    with tf.device(f"/{kind}:0"):
        sequence = tf.random.stateless_normal(_RNN_SEQUENCE, seed=(8, 0))
        tf.keras.utils.set_random_seed(1)
        layer = getattr(keras, name)(_UNITS, return_sequences=True)
        layer.build(sequence.shape)
        step = step_of(layer)
        executed, results = tensorflow_devices.operations(lambda: step(sequence), nested=True)
    with tf.device("/CPU:0"):
        on_cpu = tf.identity(sequence)
        cells = keras.RNN(getattr(keras, f"{name}Cell")(_UNITS), return_sequences=True)
        cells(on_cpu)
        cells.set_weights(layer.get_weights())
        expected = step_of(cells)(on_cpu)
    kernels = [entry for entry in executed if entry["op"].startswith(_RNN_KERNEL)]
    return {"layer": name, "kernels": kernels, "results": training.compare_all(tf, results, expected)}


def judge_cudnn_rnn(evidence: dict[str, Any]) -> Result:
    problems, layers, kind = [], evidence["layers"], evidence["device_type"]
    for entry in layers:
        name = entry["layer"]
        # A CPU has no such kernel; there the layer runs its loop.
        on_gpu = [kernel["op"] for kernel in entry["kernels"] if kernel["device"].startswith("GPU:")]
        # Both the layer and its gradient.
        if kind == "GPU" and len({op.startswith(_RNN_GRADIENT) for op in on_gpu}) < 2:
            problems.append(problem("rnn_without_cudnn", layer=name))
        results = [{**result, "name": f"{name}: {result['name']}"} for result in entry["results"]]
        problems += training.wrong_results(results, kind, evidence["tolerance"], "cells", UNCOMPILED)
    names = [entry["layer"] for entry in layers]
    kernels = sorted({kernel["op"] for entry in layers for kernel in entry["kernels"]})
    worst = max(training.worst(entry["results"]) for entry in layers)
    passed = statement("rnn_agrees", layers=names, kernels=kernels, device_type=kind, difference=worst)
    return judged(problems, passed, evidence)


#: Each policy with its type; the capability from which NVIDIA's GPUs have tensor cores for it (CUDA C++
#: Programming Guide, "Arithmetic instructions" and "Compute capability 8.x"); and the largest relative
#: difference of a loss from float32's: 11 and 8 significant bits, over a few steps.
POLICIES: dict[str, tuple[str, tuple[int, int], float]] = {
    "mixed_float16": ("float16", (7, 0), 3e-2),
    "mixed_bfloat16": ("bfloat16", (8, 0), 8e-2),
}
#: Steps whose losses are compared.
COMPARED = 5
#: A round is a turn of each policy.
ROUNDS, STEPS = 9, 10
#: As TensorFlow's profiler recognizes them (kernel_stats_utils.cc, IsKernelUsingTensorCore), and CUTLASS.
TENSOR_CORES = re.compile(r"884|1688|16816|hmma|xmma|gmma|tensorop", re.IGNORECASE)


@dataclass(frozen=True)
class Size:
    """image: edge in pixels; width: channels of the first convolution, a multiple of 8 for tensor cores."""

    image: int
    width: int
    examples: int


#: The next size is used if a step in float32 takes less than `_LEAST_S`, which would measure the host.
SIZES = {"CPU": (Size(32, 8, 32),), "GPU": (Size(64, 256, 256), Size(64, 256, 1024))}
_LEAST_S = 0.02


@check(
    "Do the float16 and bfloat16 policies agree with float32, and how fast are they?",
    TENSORFLOW,
    limit_s=450,
    depth=FULL,
)
def mixed_precision(context: Context) -> Result:
    """Train the same model under each policy in turns, in an interpreter of its own: a policy is global.

    A policy does not have to be faster than float32: without tensor cores it isn't, and on a CPU float16 is
    much slower. But it must give the same losses.
    """
    answer = child.fresh(_train_policies, limit_s=400.0)
    evidence: dict[str, Any] = {}
    for value in answer.values:
        evidence.update(value)
    ended = answer.failure
    if ended is not None and ended.kind == child.EXCEPTION and ended.detail.startswith("ResourceExhausted"):
        # The GPU is too small or in use, which is not a fault.
        return skipped(statement("memory_too_small", batch=None, error=ended.detail[:200]), evidence)
    if ended is not None:
        return child.broken_off("mixed_precision", answer, evidence)
    evidence["tensor_cores"] = tensor_cores(context.facts["host"]["gpus"], evidence["device_type"])
    return judge_mixed_precision(evidence)


def tensor_cores(found: list[dict[str, Any]], kind: str) -> dict[str, bool | None]:
    capability = found[0].get("compute_capability") if found and kind == "GPU" else None
    if capability is None:
        return dict.fromkeys(name for name, _, _ in POLICIES.values())
    return {name: leading_numbers(capability) >= needed for name, needed, _ in POLICIES.values()}


def _train_policies(tf: Any) -> Iterator[dict[str, Any]]:
    """Train under each policy: first for the losses, then for the time."""
    kind = device_type(tf)
    size = _fitting(tf, SIZES[kind])
    yield {
        "device_type": kind,
        "keras": describe(tf),
        "model": {"image": size.image, "width": size.width, "batch": size.examples},
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
    }
    images, labels, data = _examples(tf, size)
    models = {policy: _model(tf, size, policy) for policy in (FLOAT32, *POLICIES)}
    seen: dict[str, dict[str, Any]] = {}
    for policy, model in models.items():
        history = model.fit(images, labels, batch_size=len(labels), epochs=COMPARED, shuffle=False, verbose=0)
        layer = next(layer for layer in model.layers if "conv" in layer.name)
        seen[policy] = {
            "policy": policy,
            **_dtypes(layer),
            "device": layer(images[:1]).device,
            "optimizer": type(model.optimizer).__name__,
            "losses": [float(loss) for loss in history.history["loss"]],
        }
    taken: dict[str, list[float]] = {policy: [] for policy in models}
    for model in models.values():
        _turn(model, data)
    for policy in turns(list(models), ROUNDS, 60.0):
        taken[policy].append(_turn(models[policy], data))
    for policy, model in models.items():
        names: list[str] = []
        if kind == "GPU":
            turn = functools.partial(_turn, model, data)
            names = [event.name for event in tensorflow_devices.kernels(tf, turn)[0]]
        on_tensor_cores = sum(bool(TENSOR_CORES.search(name)) for name in names)
        # None where the profiler can't see them.
        counts = (len(names), on_tensor_cores) if names else (None, None)
        seen[policy].update(zip(("kernels", "tensor_core_kernels"), counts))
        seen[policy].update(step_s=spread(taken[policy]), speedup=ratios(taken[FLOAT32], taken[policy]))
    yield {"policies": list(seen.values())}


def _fitting(tf: Any, sizes: tuple[Size, ...]) -> Size:
    """Try the sizes in a function of its own, so that the models of the trials are freed."""
    for size in sizes[:-1]:
        model, data = _model(tf, size, FLOAT32), _examples(tf, size)[2]
        _turn(model, data)
        if _turn(model, data) >= _LEAST_S:
            return size
    return sizes[-1]


def _examples(tf: Any, size: Size) -> tuple[Any, Any, Any]:
    """Return the images of `training` with their labels, resized and repeated, and an endless dataset."""
    images, labels = training.batch(tf)
    times = size.examples // training.BATCH
    images = tf.image.resize(images, (size.image, size.image), method="nearest")
    images, labels = tf.tile(images, (times, 1, 1, 1)), tf.tile(labels, (times,))
    return images, labels, tf.data.Dataset.from_tensors((images, labels)).repeat()


def _model(tf: Any, size: Size, policy: str) -> Any:
    precision = tf.keras.mixed_precision
    precision.set_global_policy(policy)
    try:
        return compile_model(tf, classifier(tf, size.image, size.width), jit_compile=False)
    finally:
        precision.set_global_policy(FLOAT32)


def _turn(model: Any, data: Any) -> float:
    start = time.perf_counter()
    model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0, shuffle=False)
    return (time.perf_counter() - start) / STEPS


def judge_mixed_precision(evidence: dict[str, Any]) -> Result:
    seen = {entry["policy"]: entry for entry in evidence["policies"]}
    expected = seen[FLOAT32]["losses"]
    problems = []
    for policy, entry in seen.items():
        problems += training.ran_elsewhere(entry["device"], evidence["device_type"], policy)
        problems += training.not_falling(entry["losses"], policy)
    for policy, (name, _, tolerance) in POLICIES.items():
        entry = seen[policy]
        entry["tolerance"] = tolerance
        entry["largest_difference"] = training.difference(entry["losses"], expected)
        problems += _policy_not_followed(entry, policy, name)
        problems += training.losses_differ("float32", entry, policy)
    if "LossScale" not in seen["mixed_float16"]["optimizer"]:
        problems.append(problem("no_loss_scaling"))
    gains = [
        {"type": name, "speedup": seen[policy]["speedup"], "tensor_cores": evidence["tensor_cores"][name]}
        for policy, (name, _, _) in POLICIES.items()
    ]
    return judged(
        problems, statement("policies_train", device_type=evidence["device_type"], gains=gains), evidence
    )
