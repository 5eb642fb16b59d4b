"""Which common layers and operations does XLA compile in this TensorFlow?

What XLA refuses differs between releases, and between the CPU and the GPU. So the cases are what models are
made of, and what people are known to stumble over (openxla.org/xla/tf2xla, "Known issues"): shapes that
depend on values, loops without a bound, strings, tables, calls back into Python, cuDNN's recurrent kernels.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Callable, Union

from ...problems import problem, statement
from .. import child
from ..check import CRASH, FAIL, FULL, TENSORFLOW, TIMEOUT, Context, Result, check, judged
from ..child import TIMED_OUT
from ..tensorflow_devices import device_type, gpus, refusal

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Ints:
    """Integers `0 <= n < below`."""

    shape: Shape
    below: int = 4


#: Strings, each a number written out.
TEXTS = ("0", "1", "2", "3")
#: The input of a case: floats of this shape, integers, or `TEXTS`.
Input = Union[Shape, Ints, tuple[str, ...]]


@dataclass(frozen=True)
class Case:
    """One function: `make(tf)` returns it, and it takes the inputs.

    gradient: also compile the gradient by the floats and the weights.
    core: no model compiles without it, so XLA is broken if it refuses it.
    """

    name: str
    make: Callable[[Any], Callable[..., Any]]
    inputs: tuple[Input, ...]
    gradient: bool = False
    core: bool = False
    group: str = ""

    def tensors(self, tf: Any) -> list[Any]:
        """Return the inputs; they are the same each time."""
        found = []
        for number, entry in enumerate(self.inputs):
            if entry is TEXTS:
                found.append(tf.constant(TEXTS))
            elif isinstance(entry, Ints):
                numbers = tf.range(math.prod(entry.shape), dtype=tf.int32)
                found.append(tf.reshape(numbers * 7 % entry.below, entry.shape))
            else:
                found.append(tf.random.stateless_normal(entry, seed=(4, number)))
        return found

    def step(self, tf: Any) -> Callable[..., Any]:
        """Return the case as one function of its tensors: the result, and the gradients where wanted."""
        function = self.make(tf)
        if not self.gradient:
            return function

        def with_gradients(*tensors: Any) -> Any:
            floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch(floats)
                result = function(*tensors)
                loss = tf.add_n([tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(result)])
            # A case need not have every gradient.
            gradients = tape.gradient(loss, [*floats, *tape.watched_variables()])
            return result, [tf.convert_to_tensor(part) for part in gradients if part is not None]

        return with_gradients


#: Inputs that many cases take: a matrix, images, a volume, a sequence of vectors; each a batch.
ROWS, IMAGES, VOLUME, SEQUENCE = (4, 8), (2, 8, 8, 4), (1, 4, 4, 4, 2), (2, 6, 8)


def op(
    name: str, function: Callable[..., Any], *given: Input, gradient: bool = False, core: bool = False
) -> Case:
    """Return a case of `function(tf, *tensors)`."""
    return Case(name, lambda tf: lambda *tensors: function(tf, *tensors), given, gradient, core)


#: Cases of functions that training uses, and of those that every model needs; both with their gradient.
grad = functools.partial(op, gradient=True)
core = functools.partial(op, gradient=True, core=True)


def layer(name: str, *given: Input, core: bool = False, label: str = "", **settings: Any) -> Case:
    """Return a case of the Keras layer of that name, in training, with its gradients."""

    def make(tf: Any) -> Callable[..., Any]:
        layer = getattr(tf.keras.layers, name)(**settings)
        # These take a second tensor, or have no argument `training`.
        if name == "MultiHeadAttention":
            return lambda x: layer(x, x, training=True)
        if name in ("Dropout", "BatchNormalization", "LSTM", "GRU"):
            return lambda x: layer(x, training=True)
        return lambda *tensors: layer(*tensors)

    return Case(label or name, make, given, gradient=True, core=core)


def _ctc(tf: Any, logits: Any) -> Any:
    labels = tf.ones((2, 2), tf.int32)
    return tf.nn.ctc_loss(labels, logits, [2, 2], [6, 6], logits_time_major=False, blank_index=0)


def _positive(tf: Any, x: Any) -> Any:
    return tf.linalg.matmul(x, x, transpose_b=True) + 4.0 * tf.eye(x.shape[-1])


def _boxes(tf: Any, x: Any) -> Any:
    low = tf.abs(x[:, :2])
    return tf.concat([low, low + 1.0], axis=1)


def _stateful_random(tf: Any) -> Callable[..., Any]:
    generator = tf.random.Generator.from_seed(1)
    return lambda x: x + generator.normal(ROWS)


def _while_unbounded(tf: Any, x: Any) -> Any:
    return tf.while_loop(lambda y: tf.reduce_sum(y * y) < 100.0, lambda y: (y * 1.5 + 1.0,), (x,))[0]


def _array(tf: Any, x: Any) -> Any:
    array = tf.TensorArray(tf.float32, size=4, element_shape=(8,)).unstack(x)
    return array.write(0, array.read(1) * 2.0).stack()


def _array_dynamic(tf: Any, x: Any) -> Any:
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=(8,))
    return tf.while_loop(
        lambda i, _: i < tf.shape(x)[0], lambda i, done: (i + 1, done.write(i, x[i])), (0, array)
    )[1].stack()


def _assign(tf: Any) -> Callable[..., Any]:
    variable = tf.Variable(tf.zeros(ROWS))
    return lambda x: variable.assign_add(x)


def _scatter_variable(tf: Any) -> Callable[..., Any]:
    variable = tf.Variable(tf.zeros(ROWS))
    return lambda rows, x: variable.scatter_nd_add(rows, x)


def _table(tf: Any) -> Callable[..., Any]:
    keys = tf.constant(["0", "1", "2"])
    start = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([5, 6, 7]))
    table = tf.lookup.StaticHashTable(start, default_value=-1)
    return lambda words: table.lookup(words)


def _spectrum(tf: Any, x: Any) -> Any:
    return tf.abs(tf.signal.stft(x, 16, 8))


def _ragged(tf: Any, x: Any) -> Any:
    return tf.RaggedTensor.from_row_lengths(tf.reshape(x, (-1,)), [8, 4, 12, 8])


def _sparse(tf: Any, values: Any) -> Any:
    return tf.SparseTensor([[0, 1], [2, 3]], values, (4, 4))


# fmt: off
_GROUPS: dict[str, tuple[Case, ...]] = {
    "linear algebra": (
        core("matmul", lambda tf, a, b: a @ b, ROWS, (8, 3)),
        core("batch matmul", lambda tf, a, b: a @ b, (2, 4, 8), (2, 8, 3)),
        core("einsum", lambda tf, a, b: tf.einsum("bij,bjk->bik", a, b), (2, 4, 8), (2, 8, 3)),
        grad("tensordot", lambda tf, a, b: tf.tensordot(a, b, 1), (2, 4, 8), (8, 3)),
        grad("cholesky", lambda tf, x: tf.linalg.cholesky(_positive(tf, x)), (4, 4)),
        op("qr", lambda tf, x: tf.linalg.qr(x), (4, 4)),
        op("svd", lambda tf, x: tf.linalg.svd(x), (4, 4)),
        op("eigh", lambda tf, x: tf.linalg.eigh(_positive(tf, x)), (4, 4)),
        op("inverse", lambda tf, x: tf.linalg.inv(_positive(tf, x)), (4, 4)),
        op("solve", lambda tf, x, y: tf.linalg.solve(_positive(tf, x), y), (4, 4), (4, 2)),
        grad("triangular solve",
            lambda tf, x, y: tf.linalg.triangular_solve(_positive(tf, x), y), (4, 4), (4, 2)),
        op("determinant", lambda tf, x: tf.linalg.logdet(_positive(tf, x)), (4, 4)),
    ),
    "convolution": (
        grad("conv1d", lambda tf, x, k: tf.nn.conv1d(x, k, 1, "SAME"), SEQUENCE, (3, 8, 4)),
        core("conv2d", lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME"), IMAGES, (3, 3, 4, 4)),
        core("conv2d, strided", lambda tf, x, k: tf.nn.conv2d(x, k, 2, "VALID"), IMAGES, (3, 3, 4, 4)),
        grad("conv2d, dilated",
            lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2), IMAGES, (3, 3, 4, 4)),
        op("conv2d, grouped", lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME"), IMAGES, (3, 3, 2, 4)),
        grad("conv2d_transpose",
            lambda tf, x, k: tf.nn.conv2d_transpose(x, k, (2, 16, 16, 4), 2), IMAGES, (3, 3, 4, 4)),
        grad("depthwise_conv2d",
            lambda tf, x, k: tf.nn.depthwise_conv2d(x, k, (1, 1, 1, 1), "SAME"), IMAGES, (3, 3, 4, 2)),
        grad("separable_conv2d",
            lambda tf, x, d, p: tf.nn.separable_conv2d(x, d, p, (1, 1, 1, 1), "SAME"),
            IMAGES, (3, 3, 4, 2), (1, 1, 8, 4)),
        grad("conv3d", lambda tf, x, k: tf.nn.conv3d(x, k, (1, 1, 1, 1, 1), "SAME"), VOLUME, (2, 2, 2, 2, 2)),
    ),
    "pooling": (
        core("max_pool2d", lambda tf, x: tf.nn.max_pool2d(x, 2, 2, "SAME"), IMAGES),
        core("avg_pool2d", lambda tf, x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), IMAGES),
        grad("max_pool3d", lambda tf, x: tf.nn.max_pool3d(x, 2, 2, "SAME"), VOLUME),
        op("max_pool_with_argmax", lambda tf, x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME")[0], IMAGES),
        op("fractional_max_pool", lambda tf, x: tf.nn.fractional_max_pool(x, 1.5, seed=1)[0], IMAGES),
    ),
    "normalization": (
        core("batch normalization",
            lambda tf, x, s, o: tf.compat.v1.nn.fused_batch_norm(x, s, o)[0], IMAGES, (4,), (4,)),
        core("layer normalization", lambda tf, x: tf.nn.batch_normalization(
            x, *tf.nn.moments(x, axes=[-1], keepdims=True), None, None, 1e-5), ROWS),
        grad("local response normalization", lambda tf, x: tf.nn.local_response_normalization(x), IMAGES),
    ),
    "attention": (
        core("scaled dot-product attention",
            lambda tf, q, k, v: tf.nn.softmax(tf.linalg.matmul(q, k, transpose_b=True) * 0.35, axis=-1) @ v,
            SEQUENCE, SEQUENCE, SEQUENCE),
    ),
    "elementwise": (
        core("relu, gelu, silu", lambda tf, x: tf.nn.relu(x) + tf.nn.gelu(x) + tf.nn.silu(x), ROWS),
        core("softmax", lambda tf, x: tf.nn.softmax(x), ROWS),
        op("erf, lgamma, digamma",
            lambda tf, x: tf.math.erf(x) + tf.math.lgamma(x * x + 1.0) + tf.math.digamma(x * x + 1.0), ROWS),
        core("reduce_mean, reduce_max", lambda tf, x: tf.reduce_mean(x, 0) + tf.reduce_max(x, 0), ROWS),
        grad("cumsum, cumprod", lambda tf, x: tf.cumsum(x, 1) + tf.math.cumprod(x, 1), ROWS),
        core("reshape, transpose, concat",
            lambda tf, x: tf.concat([tf.transpose(x), tf.reshape(x, (8, 4))], 0), ROWS),
        op("float16", lambda tf, x: tf.cast(tf.cast(x, tf.float16) * 2, tf.float32), ROWS),
        op("bfloat16", lambda tf, x: tf.cast(tf.cast(x, tf.bfloat16) * 2, tf.float32), ROWS),
        op("complex numbers", lambda tf, x: tf.abs(tf.complex(x, x)), ROWS),
    ),
    "loss": (
        core("sparse softmax cross entropy",
            lambda tf, x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
            ROWS, Ints((4,), 8)),
        grad("sigmoid cross entropy",
            lambda tf, x, y: tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x), ROWS, ROWS),
        grad("ctc_loss", _ctc, (2, 6, 5)),
    ),
    "layers": (
        layer("Dense", ROWS, units=4, core=True),
        layer("Conv2D", IMAGES, filters=4, kernel_size=3, core=True),
        layer("Conv1D", SEQUENCE, filters=4, kernel_size=3),
        layer("Conv2DTranspose", IMAGES, filters=4, kernel_size=3),
        layer("SeparableConv2D", IMAGES, filters=4, kernel_size=3),
        layer("DepthwiseConv2D", IMAGES, kernel_size=3),
        layer("BatchNormalization", IMAGES),
        layer("LayerNormalization", ROWS),
        layer("MaxPooling2D", IMAGES),
        layer("GlobalAveragePooling2D", IMAGES),
        layer("UpSampling2D", IMAGES, interpolation="bilinear"),
        layer("Embedding", Ints((4, 6)), input_dim=8, output_dim=4),
        layer("MultiHeadAttention", SEQUENCE, num_heads=2, key_dim=4),
        layer("Dropout", ROWS, rate=0.5),
    ),
    "recurrent layers": (
        layer("LSTM", SEQUENCE, units=4),
        layer("LSTM", SEQUENCE, units=4, recurrent_dropout=0.2, label="LSTM, recurrent dropout"),
        layer("GRU", SEQUENCE, units=4),
        layer("SimpleRNN", SEQUENCE, units=4),
        Case("Bidirectional",
            lambda tf: tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(4)), (SEQUENCE,), gradient=True),
    ),
    "indexing": (
        core("gather (embedding)", lambda tf, x, i: tf.gather(x, i), ROWS, Ints((6,))),
        grad("gather_nd", lambda tf, x, i: tf.gather_nd(x, i), ROWS, Ints((3, 2))),
        op("scatter_nd", lambda tf, i, x: tf.scatter_nd(i, x, (8, 8)), Ints((4, 1)), ROWS),
        op("tensor_scatter_nd_update",
            lambda tf, x, i: tf.tensor_scatter_nd_update(x, i, tf.ones((3, 8))), ROWS, Ints((3, 1))),
        op("one_hot", lambda tf, i: tf.one_hot(i, 4), Ints((6,))),
        grad("segment_sum", lambda tf, x, i: tf.math.unsorted_segment_sum(x, i, 4), ROWS, Ints((4,))),
        op("sorted segment_sum", lambda tf, x: tf.math.segment_sum(x, tf.constant([0, 0, 1, 2])), ROWS),
        op("bincount", lambda tf, i: tf.math.bincount(i, minlength=4, maxlength=4), Ints((6,))),
        core("where, three arguments", lambda tf, x: tf.where(x > 0, x, -x), ROWS),
        core("strided slice", lambda tf, x: x[1:3, ::2], ROWS),
        op("slice at a computed place", lambda tf, x, i: tf.slice(x, i, (2, 4)), ROWS, Ints((2,), 2)),
    ),
    "sorting and searching": (
        op("sort", lambda tf, x: tf.sort(x), ROWS),
        op("argsort", lambda tf, x: tf.argsort(x), ROWS),
        op("argmax", lambda tf, x: tf.argmax(x, 1), ROWS),
        op("top_k", lambda tf, x: tf.math.top_k(x, 3), ROWS),
        op("searchsorted", lambda tf, x: tf.searchsorted(tf.sort(x), x), ROWS),
    ),
    "spectral": (
        op("fft", lambda tf, x: tf.abs(tf.signal.fft(tf.complex(x, x))), ROWS),
        grad("rfft, irfft", lambda tf, x: tf.signal.irfft(tf.signal.rfft(x)), ROWS),
        op("stft", _spectrum, (2, 64)),
        op("mel spectrogram",
            lambda tf, x: _spectrum(tf, x) @ tf.signal.linear_to_mel_weight_matrix(4, 9, 8000), (2, 64)),
    ),
    "images": (
        grad("resize, bilinear", lambda tf, x: tf.image.resize(x, (12, 12)), IMAGES),
        op("resize, nearest", lambda tf, x: tf.image.resize(x, (12, 12), "nearest"), IMAGES),
        op("resize, bicubic", lambda tf, x: tf.image.resize(x, (12, 12), "bicubic"), IMAGES),
        op("crop_and_resize",
            lambda tf, x, b: tf.image.crop_and_resize(x, _boxes(tf, b), [0, 1], (4, 4)), IMAGES, (2, 4)),
        op("flip, adjust contrast",
            lambda tf, x: tf.image.adjust_contrast(tf.image.flip_left_right(x), 2.0), IMAGES),
        op("adjust hue", lambda tf, x: tf.image.adjust_hue(x[..., :3], 0.1), IMAGES),
        op("extract_patches",
            lambda tf, x: tf.image.extract_patches(x, (1, 2, 2, 1), (1, 2, 2, 1), (1, 1, 1, 1), "SAME"),
            IMAGES),
        op("non_max_suppression",
            lambda tf, b, s: tf.image.non_max_suppression(_boxes(tf, b), s, 3), (6, 4), (6,)),
        op("non_max_suppression, padded",
            lambda tf, b, s: tf.image.non_max_suppression_padded(
                _boxes(tf, b), s, 3, pad_to_max_output_size=True)[0],
            (6, 4), (6,)),
        op("decode_jpeg",
            lambda tf, x: tf.io.decode_jpeg(tf.io.encode_jpeg(tf.cast(tf.abs(x[0, ..., :3]), tf.uint8))),
            IMAGES),
    ),
    "random numbers": (
        op("stateless_normal", lambda tf, x: x + tf.random.stateless_normal(ROWS, (1, 2)), ROWS, core=True),
        op("random.normal", lambda tf, x: x + tf.random.normal(ROWS), ROWS),
        op("random.shuffle", lambda tf, x: tf.random.shuffle(x), ROWS),
        op("random.categorical", lambda tf, x: tf.random.categorical(x, 3), ROWS),
        op("random.gamma", lambda tf, x: tf.random.gamma((3,), tf.abs(x) + 1.0), ROWS),
        Case("random.Generator", _stateful_random, (ROWS,)),
        grad("dropout", lambda tf, x: tf.nn.dropout(x, 0.5), ROWS),
    ),
    "control flow": (
        grad("cond", lambda tf, x: tf.cond(x[0, 0] > 0, lambda: x * 2.0, lambda: x), ROWS),
        grad("while_loop, bounded",
            lambda tf, x: tf.while_loop(
                lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (0, x), maximum_iterations=3)[1], ROWS),
        op("while_loop, unbounded", _while_unbounded, ROWS),
        grad("while_loop, unbounded, with gradient", _while_unbounded, ROWS),
        grad("TensorArray", _array, ROWS),
        op("TensorArray, growing", _array_dynamic, ROWS),
        grad("scan", lambda tf, x: tf.scan(lambda a, b: a + b, x), ROWS),
        grad("map_fn", lambda tf, x: tf.map_fn(lambda row: row * 2.0, x), ROWS),
        op("vectorized_map", lambda tf, x: tf.vectorized_map(lambda row: row * 2.0, x), ROWS),
    ),
    "shapes from values": (
        op("where, one argument", lambda tf, x: tf.where(x > 0), ROWS),
        op("boolean_mask", lambda tf, x: tf.boolean_mask(x, x > 0), ROWS),
        op("unique", lambda tf, i: tf.unique(i)[0], Ints((6,))),
        op("dynamic_partition", lambda tf, x, i: tf.dynamic_partition(x, i, 4), ROWS, Ints((4,))),
        op("dynamic_stitch", lambda tf, x: tf.dynamic_stitch([[0, 2], [1, 3]], [x[:2], x[2:]]), ROWS),
        op("reshape to a computed shape",
            lambda tf, x, i: tf.reshape(x, tf.stack([i[1] * 0 + 4, -1])), ROWS, Ints((2,))),
        op("repeat by computed counts", lambda tf, x, i: tf.repeat(x, i, axis=0), ROWS, Ints((4,))),
        op("range to a computed limit", lambda tf, i: tf.range(i[1]), Ints((2,))),
    ),
    "ragged and sparse": (
        op("ragged tensor", lambda tf, x: tf.reduce_sum(_ragged(tf, x), axis=1), ROWS),
        op("ragged to dense", lambda tf, x: _ragged(tf, x).to_tensor(), ROWS),
        op("sparse times dense",
            lambda tf, x: tf.sparse.sparse_dense_matmul(_sparse(tf, [1.0, 2.0]), x), ROWS),
        op("sparse to dense", lambda tf, x: tf.sparse.to_dense(_sparse(tf, x[0, :2])), ROWS),
        op("sparse from dense", lambda tf, x: tf.sparse.from_dense(tf.nn.relu(x)).values, ROWS),
        op("embedding_lookup_sparse",
            lambda tf, x: tf.nn.embedding_lookup_sparse(
                x, tf.SparseTensor([[0, 0], [1, 0]], [1, 3], (2, 2)), None, combiner="sum"), ROWS),
    ),
    "state": (
        Case("variable, assign_add", _assign, (ROWS,), core=True),
        Case("variable, scatter_nd_add", _scatter_variable, (Ints((4, 1)), ROWS)),
    ),
    "host": (
        op("string join", lambda tf, t: tf.strings.join([t, t]), TEXTS),
        op("string to number", lambda tf, t: tf.strings.to_number(t), TEXTS),
        op("as_string", lambda tf, x: tf.strings.as_string(x), ROWS),
        Case("hash table lookup", _table, (TEXTS,)),
        op("py_function", lambda tf, x: tf.py_function(lambda y: y * 2, [x], tf.float32), ROWS),
        op("numpy_function", lambda tf, x: tf.numpy_function(lambda y: y * 2, [x], tf.float32), ROWS),
        op("print", lambda tf, x: (tf.print("probe"), x * 2.0)[1], ROWS),
        op("assert", lambda tf, x: (tf.debugging.assert_less(x, 1e9), x * 2.0)[1], ROWS),
        op("check_numerics", lambda tf, x: tf.debugging.check_numerics(x, "not finite"), ROWS),
    ),
}
# fmt: on

CASES: tuple[Case, ...] = tuple(
    replace(case, group=group) for group, cases in _GROUPS.items() for case in cases
)
BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
#: Outcomes of a case. `unavailable`: it doesn't run without XLA either, for example because the release has
#: no such operation; that says nothing about XLA.
COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG = "compiled", "refused", "unavailable", "crashed", "hung"
_OUTCOMES = (COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG)
_LIMIT_S = 500.0
#: How many interpreters may crash before the check gives up on the other cases.
_DEATHS = 5


@check("Which common layers and operations does XLA compile?", TENSORFLOW, limit_s=600, depth=FULL)
def xla_coverage(context: Context) -> Result:
    """Compile each case by itself, with its gradient where training uses it.

    If XLA rejects one, that is a fact about the release and not a fault, unless every model needs the
    operation. The cases run in a separate interpreter, so a case that crashes it does not lose the results of
    earlier ones.
    """
    kind = device_type(context.tensorflow)
    found: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + _LIMIT_S
    left = [case.name for case in CASES]
    for _ in range(_DEATHS):
        answer = child.fresh(_compile_all, kind, left, limit_s=max(1.0, deadline - time.monotonic()))
        begun: str | None = None
        for value in answer.values:
            begun = value["name"]
            if "outcome" in value:
                found[begun] = value
        if answer.failure is None:
            break
        if begun is None or begun in found:
            return child.broken_off("xla_coverage", answer, {"device_type": kind})
        outcome = HUNG if answer.failure.kind == TIMED_OUT else CRASHED
        found[begun] = {"name": begun, "outcome": outcome, "error": str(answer.failure), "seconds": None}
        left = left[left.index(begun) + 1 :]
        if not left or time.monotonic() >= deadline:
            break
    return judge_xla_coverage(kind, found)


def _compile_all(tf: Any, kind: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the name of each case before it is tried, and again with its result."""
    gpus(tf)
    with tf.device(f"/{kind}:0"):
        for name in names:
            yield {"name": name}
            yield {"name": name, **compile_case(tf, BY_NAME[name])}


def compile_case(tf: Any, case: Case) -> dict[str, Any]:
    try:
        tensors = case.tensors(tf)
        function = case.step(tf)
        # The layers create their weights in the first call, which has nothing to do with XLA.
        tf.function(function, autograph=False)(*tensors)
    except Exception as error:  # if anything is raised here, there is nothing to compile
        return {"outcome": UNAVAILABLE, "error": refusal(error), "seconds": None}
    start = time.perf_counter()
    try:
        tf.function(function, jit_compile=True, autograph=False)(*tensors)
    except Exception as error:  # as above: XLA may reject it with any exception
        return {"outcome": REFUSED, "error": refusal(error), "seconds": None}
    return {"outcome": COMPILED, "error": None, "seconds": time.perf_counter() - start}


def judge_xla_coverage(kind: str, found: dict[str, dict[str, Any]]) -> Result:
    """Judge the outcomes of the cases that were tried, by name."""
    cases = [
        {"name": case.name, "group": case.group, "core": case.core, **found[case.name]}
        for case in CASES
        if case.name in found
    ]
    counts = {outcome: sum(entry["outcome"] == outcome for entry in cases) for outcome in _OUTCOMES}
    refused: dict[str, list[str]] = {}
    for entry in cases:
        if entry["outcome"] in (REFUSED, CRASHED, HUNG):
            refused.setdefault(entry["group"], []).append(entry["name"])
    untried = [case.name for case in CASES if case.name not in found]
    evidence = {"device_type": kind, "total": len(CASES), "counts": counts, "untried": untried}
    evidence.update(refused=refused, cases=cases)
    failed = [entry for entry in cases if entry["core"] and entry["outcome"] not in (COMPILED, HUNG)]
    # It is not known whether the case that was running at the time limit would have ended.
    ended = {entry["name"] for entry in cases if entry["outcome"] != HUNG}
    unknown = [case.name for case in CASES if case.core and case.name not in ended]
    if not counts[COMPILED]:
        error = next((entry["error"] for entry in cases if entry["error"]), None)
        nothing = problem("xla_compiles_nothing", device_type=kind, error=error)
        return Result(FAIL, None, [nothing], evidence)
    if unknown and not failed:
        lost = [entry["name"] for entry in cases if entry["outcome"] in (CRASHED, HUNG)]
        untold = statement("xla_coverage_unknown", cases=unknown[:5], lost=lost)
        return Result(TIMEOUT if counts[HUNG] else CRASH, untold, [], evidence)
    problems = []
    for entry in failed:
        told = {name: entry[name] for name in ("outcome", "error")}
        problems.append(problem("core_not_compiled", case=entry["name"], **told))
    return judged(problems, statement("xla_coverage", device_type=kind, total=len(CASES), **counts), evidence)
