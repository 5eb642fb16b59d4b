"""A case: one function, its inputs, and the step that is compiled from it."""

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Tuple, Union

#: The input of a case: floats of this shape; integers; text.
Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Ints:
    """Integers `0 <= n < below`."""

    shape: Shape
    below: int = 4


@dataclass(frozen=True)
class Texts:
    """Strings, each a number written out."""

    count: int = 4


Input = Union[Shape, Ints, Texts]


@dataclass(frozen=True)
class Case:
    """One function: `make(tf)` returns it, and it takes the inputs.

    gradient: also compile the gradient by the floats and the weights.
    core: no model compiles without it, so XLA is broken if it refuses it.
    """

    name: str
    group: str
    make: Callable[[Any], Callable[..., Any]]
    inputs: Tuple[Input, ...]
    gradient: bool = False
    core: bool = False


def inputs(tf: Any, case: Case) -> List[Any]:
    """Return the tensors of the case; they are the same each time."""
    return [_tensor(tf, entry, number) for number, entry in enumerate(case.inputs)]


def _tensor(tf: Any, entry: Input, number: int) -> Any:
    if isinstance(entry, Texts):
        return tf.constant([str(value) for value in range(entry.count)])
    if isinstance(entry, Ints):
        return tf.reshape(tf.range(math.prod(entry.shape), dtype=tf.int32) * 7 % entry.below, entry.shape)
    return tf.random.stateless_normal(entry, seed=(4, number))


def step(tf: Any, case: Case) -> Callable[..., Any]:
    """Return the case as one function of its tensors: the result, and the gradients where wanted."""
    function = case.make(tf)
    if not case.gradient:
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
    name: str,
    group: str,
    function: Callable[..., Any],
    *given: Input,
    gradient: bool = False,
    core: bool = False,
) -> Case:
    """Return a case of `function(tf, *tensors)`."""
    return Case(
        name, group, lambda tf: lambda *tensors: function(tf, *tensors), given, gradient=gradient, core=core
    )


# The operations of a network: linear algebra, convolution, normalization, losses, and Keras layers.


def _attend(tf: Any, q: Any, k: Any, v: Any) -> Any:
    weights = tf.nn.softmax(tf.linalg.matmul(q, k, transpose_b=True) * 0.35, axis=-1)
    return tf.linalg.matmul(weights, v)


def _normalize_batch(tf: Any, x: Any, scale: Any, offset: Any) -> Any:
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset)[0]


def _normalize_layer(tf: Any, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-5)


def _ctc(tf: Any, logits: Any) -> Any:
    labels = tf.ones((2, 2), tf.int32)
    return tf.nn.ctc_loss(labels, logits, [2, 2], [6, 6], logits_time_major=False, blank_index=0)


def _positive(tf: Any, x: Any) -> Any:
    return tf.linalg.matmul(x, x, transpose_b=True) + 4.0 * tf.eye(x.shape[-1])


def _cross_entropy(tf: Any, x: Any, labels: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)


_OPERATIONS: Tuple[Case, ...] = (
    op("matmul", "linear algebra", lambda tf, a, b: a @ b, ROWS, (8, 3), gradient=True, core=True),
    op(
        "batch matmul",
        "linear algebra",
        lambda tf, a, b: a @ b,
        (2, 4, 8),
        (2, 8, 3),
        gradient=True,
        core=True,
    ),
    op(
        "einsum",
        "linear algebra",
        lambda tf, a, b: tf.einsum("bij,bjk->bik", a, b),
        (2, 4, 8),
        (2, 8, 3),
        gradient=True,
        core=True,
    ),
    op(
        "tensordot",
        "linear algebra",
        lambda tf, a, b: tf.tensordot(a, b, 1),
        (2, 4, 8),
        (8, 3),
        gradient=True,
    ),
    op(
        "cholesky",
        "linear algebra",
        lambda tf, x: tf.linalg.cholesky(_positive(tf, x)),
        (4, 4),
        gradient=True,
    ),
    op("qr", "linear algebra", lambda tf, x: tf.linalg.qr(x), (4, 4)),
    op("svd", "linear algebra", lambda tf, x: tf.linalg.svd(x), (4, 4)),
    op("eigh", "linear algebra", lambda tf, x: tf.linalg.eigh(_positive(tf, x)), (4, 4)),
    op("inverse", "linear algebra", lambda tf, x: tf.linalg.inv(_positive(tf, x)), (4, 4)),
    op("solve", "linear algebra", lambda tf, x, y: tf.linalg.solve(_positive(tf, x), y), (4, 4), (4, 2)),
    op(
        "triangular solve",
        "linear algebra",
        lambda tf, x, y: tf.linalg.triangular_solve(_positive(tf, x), y),
        (4, 4),
        (4, 2),
        gradient=True,
    ),
    op("determinant", "linear algebra", lambda tf, x: tf.linalg.logdet(_positive(tf, x)), (4, 4)),
    op(
        "conv1d",
        "convolution",
        lambda tf, x, k: tf.nn.conv1d(x, k, 1, "SAME"),
        SEQUENCE,
        (3, 8, 4),
        gradient=True,
    ),
    op(
        "conv2d",
        "convolution",
        lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME"),
        IMAGES,
        (3, 3, 4, 4),
        gradient=True,
        core=True,
    ),
    op(
        "conv2d, strided",
        "convolution",
        lambda tf, x, k: tf.nn.conv2d(x, k, 2, "VALID"),
        IMAGES,
        (3, 3, 4, 4),
        gradient=True,
        core=True,
    ),
    op(
        "conv2d, dilated",
        "convolution",
        lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2),
        IMAGES,
        (3, 3, 4, 4),
        gradient=True,
    ),
    op(
        "conv2d, grouped", "convolution", lambda tf, x, k: tf.nn.conv2d(x, k, 1, "SAME"), IMAGES, (3, 3, 2, 4)
    ),
    op(
        "conv2d_transpose",
        "convolution",
        lambda tf, x, k: tf.nn.conv2d_transpose(x, k, (2, 16, 16, 4), 2),
        IMAGES,
        (3, 3, 4, 4),
        gradient=True,
    ),
    op(
        "depthwise_conv2d",
        "convolution",
        lambda tf, x, k: tf.nn.depthwise_conv2d(x, k, (1, 1, 1, 1), "SAME"),
        IMAGES,
        (3, 3, 4, 2),
        gradient=True,
    ),
    op(
        "separable_conv2d",
        "convolution",
        lambda tf, x, d, p: tf.nn.separable_conv2d(x, d, p, (1, 1, 1, 1), "SAME"),
        IMAGES,
        (3, 3, 4, 2),
        (1, 1, 8, 4),
        gradient=True,
    ),
    op(
        "conv3d",
        "convolution",
        lambda tf, x, k: tf.nn.conv3d(x, k, (1, 1, 1, 1, 1), "SAME"),
        VOLUME,
        (2, 2, 2, 2, 2),
        gradient=True,
    ),
    op(
        "max_pool2d",
        "pooling",
        lambda tf, x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
        IMAGES,
        gradient=True,
        core=True,
    ),
    op(
        "avg_pool2d",
        "pooling",
        lambda tf, x: tf.nn.avg_pool2d(x, 2, 2, "SAME"),
        IMAGES,
        gradient=True,
        core=True,
    ),
    op("max_pool3d", "pooling", lambda tf, x: tf.nn.max_pool3d(x, 2, 2, "SAME"), VOLUME, gradient=True),
    op(
        "max_pool_with_argmax",
        "pooling",
        lambda tf, x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME")[0],
        IMAGES,
    ),
    op("fractional_max_pool", "pooling", lambda tf, x: tf.nn.fractional_max_pool(x, 1.5, seed=1)[0], IMAGES),
    op(
        "batch normalization", "normalization", _normalize_batch, IMAGES, (4,), (4,), gradient=True, core=True
    ),
    op("layer normalization", "normalization", _normalize_layer, ROWS, gradient=True, core=True),
    op(
        "local response normalization",
        "normalization",
        lambda tf, x: tf.nn.local_response_normalization(x),
        IMAGES,
        gradient=True,
    ),
    op(
        "scaled dot-product attention",
        "attention",
        _attend,
        SEQUENCE,
        SEQUENCE,
        SEQUENCE,
        gradient=True,
        core=True,
    ),
    op(
        "relu, gelu, silu",
        "elementwise",
        lambda tf, x: tf.nn.relu(x) + tf.nn.gelu(x) + tf.nn.silu(x),
        ROWS,
        gradient=True,
        core=True,
    ),
    op("softmax", "elementwise", lambda tf, x: tf.nn.softmax(x), ROWS, gradient=True, core=True),
    op(
        "erf, lgamma, digamma",
        "elementwise",
        lambda tf, x: tf.math.erf(x) + tf.math.lgamma(x * x + 1.0) + tf.math.digamma(x * x + 1.0),
        ROWS,
    ),
    op(
        "reduce_mean, reduce_max",
        "elementwise",
        lambda tf, x: tf.reduce_mean(x, 0) + tf.reduce_max(x, 0),
        ROWS,
        gradient=True,
        core=True,
    ),
    op(
        "cumsum, cumprod",
        "elementwise",
        lambda tf, x: tf.cumsum(x, 1) + tf.math.cumprod(x, 1),
        ROWS,
        gradient=True,
    ),
    op(
        "reshape, transpose, concat",
        "elementwise",
        lambda tf, x: tf.concat([tf.transpose(x), tf.reshape(x, (8, 4))], 0),
        ROWS,
        gradient=True,
        core=True,
    ),
    op("float16", "elementwise", lambda tf, x: tf.cast(tf.cast(x, tf.float16) * 2, tf.float32), ROWS),
    op("bfloat16", "elementwise", lambda tf, x: tf.cast(tf.cast(x, tf.bfloat16) * 2, tf.float32), ROWS),
    op("complex numbers", "elementwise", lambda tf, x: tf.abs(tf.complex(x, x)), ROWS),
    op("sparse softmax cross entropy", "loss", _cross_entropy, ROWS, Ints((4,), 8), gradient=True, core=True),
    op(
        "sigmoid cross entropy",
        "loss",
        lambda tf, x, y: tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x),
        ROWS,
        ROWS,
        gradient=True,
    ),
    op("ctc_loss", "loss", _ctc, (2, 6, 5), gradient=True),
)


def _layer(name: str, *given: Input, core: bool = False, label: str = "", **settings: Any) -> Case:
    """Return a case of the Keras layer of that name, in training, with its gradients."""

    def make(tf: Any) -> Callable[..., Any]:
        layer = getattr(tf.keras.layers, name)(**settings)
        # These take a second tensor, or have no argument `training`.
        if name == "MultiHeadAttention":
            return lambda x: layer(x, x, training=True)
        if name in ("Dropout", "BatchNormalization", "LSTM", "GRU"):
            return lambda x: layer(x, training=True)
        return lambda *tensors: layer(*tensors)

    group = "recurrent layers" if name in ("LSTM", "GRU", "SimpleRNN", "Bidirectional") else "layers"
    return Case(label or name, group, make, given, gradient=True, core=core)


def _bidirectional(tf: Any) -> Callable[..., Any]:
    layers = tf.keras.layers
    layer = layers.Bidirectional(layers.LSTM(4))
    return lambda x: layer(x)


_LAYERS: Tuple[Case, ...] = (
    _layer("Dense", ROWS, units=4, core=True),
    _layer("Conv2D", IMAGES, filters=4, kernel_size=3, core=True),
    _layer("Conv1D", SEQUENCE, filters=4, kernel_size=3),
    _layer("Conv2DTranspose", IMAGES, filters=4, kernel_size=3),
    _layer("SeparableConv2D", IMAGES, filters=4, kernel_size=3),
    _layer("DepthwiseConv2D", IMAGES, kernel_size=3),
    _layer("BatchNormalization", IMAGES),
    _layer("LayerNormalization", ROWS),
    _layer("MaxPooling2D", IMAGES),
    _layer("GlobalAveragePooling2D", IMAGES),
    _layer("UpSampling2D", IMAGES, interpolation="bilinear"),
    _layer("Embedding", Ints((4, 6)), input_dim=8, output_dim=4),
    _layer("MultiHeadAttention", SEQUENCE, num_heads=2, key_dim=4),
    _layer("Dropout", ROWS, rate=0.5),
    _layer("LSTM", SEQUENCE, units=4),
    _layer("LSTM", SEQUENCE, units=4, recurrent_dropout=0.2, label="LSTM, recurrent dropout"),
    _layer("GRU", SEQUENCE, units=4),
    _layer("SimpleRNN", SEQUENCE, units=4),
    Case("Bidirectional", "recurrent layers", _bidirectional, (SEQUENCE,), gradient=True),
)

OF_NETWORKS: Tuple[Case, ...] = _OPERATIONS + _LAYERS


# The program around a network: data handling, and what is hard to compile.
#
# Data handling is indexing, sorting, spectra, images and random numbers. Hard to compile are loops, shapes
# from values, ragged and sparse tensors, state, and calls to the host.


def _boxes(tf: Any, x: Any) -> Any:
    low = tf.abs(x[:, :2])
    return tf.concat([low, low + 1.0], axis=1)


def _stateful_random(tf: Any) -> Callable[..., Any]:
    generator = tf.random.Generator.from_seed(1)
    return lambda x: x + generator.normal(ROWS)


_DATA: Tuple[Case, ...] = (
    op(
        "gather (embedding)",
        "indexing",
        lambda tf, x, i: tf.gather(x, i),
        ROWS,
        Ints((6,)),
        gradient=True,
        core=True,
    ),
    op("gather_nd", "indexing", lambda tf, x, i: tf.gather_nd(x, i), ROWS, Ints((3, 2)), gradient=True),
    op("scatter_nd", "indexing", lambda tf, i, x: tf.scatter_nd(i, x, (8, 8)), Ints((4, 1)), ROWS),
    op(
        "tensor_scatter_nd_update",
        "indexing",
        lambda tf, x, i: tf.tensor_scatter_nd_update(x, i, tf.ones((3, 8))),
        ROWS,
        Ints((3, 1)),
    ),
    op("one_hot", "indexing", lambda tf, i: tf.one_hot(i, 4), Ints((6,))),
    op(
        "segment_sum",
        "indexing",
        lambda tf, x, i: tf.math.unsorted_segment_sum(x, i, 4),
        ROWS,
        Ints((4,)),
        gradient=True,
    ),
    op(
        "sorted segment_sum",
        "indexing",
        lambda tf, x: tf.math.segment_sum(x, tf.constant([0, 0, 1, 2])),
        ROWS,
    ),
    op("bincount", "indexing", lambda tf, i: tf.math.bincount(i, minlength=4, maxlength=4), Ints((6,))),
    op(
        "where, three arguments",
        "indexing",
        lambda tf, x: tf.where(x > 0, x, -x),
        ROWS,
        gradient=True,
        core=True,
    ),
    op("strided slice", "indexing", lambda tf, x: x[1:3, ::2], ROWS, gradient=True, core=True),
    op("slice at a computed place", "indexing", lambda tf, x, i: tf.slice(x, i, (2, 4)), ROWS, Ints((2,), 2)),
    op("sort", "sorting and searching", lambda tf, x: tf.sort(x), ROWS),
    op("argsort", "sorting and searching", lambda tf, x: tf.argsort(x), ROWS),
    op("argmax", "sorting and searching", lambda tf, x: tf.argmax(x, 1), ROWS),
    op("top_k", "sorting and searching", lambda tf, x: tf.math.top_k(x, 3), ROWS),
    op("searchsorted", "sorting and searching", lambda tf, x: tf.searchsorted(tf.sort(x), x), ROWS),
    op("fft", "spectral", lambda tf, x: tf.abs(tf.signal.fft(tf.complex(x, x))), ROWS),
    op("rfft, irfft", "spectral", lambda tf, x: tf.signal.irfft(tf.signal.rfft(x)), ROWS, gradient=True),
    op("stft", "spectral", lambda tf, x: tf.abs(tf.signal.stft(x, 16, 8)), (2, 64)),
    op(
        "mel spectrogram",
        "spectral",
        lambda tf, x: tf.abs(tf.signal.stft(x, 16, 8)) @ tf.signal.linear_to_mel_weight_matrix(4, 9, 8000),
        (2, 64),
    ),
    op("resize, bilinear", "images", lambda tf, x: tf.image.resize(x, (12, 12)), IMAGES, gradient=True),
    op("resize, nearest", "images", lambda tf, x: tf.image.resize(x, (12, 12), "nearest"), IMAGES),
    op("resize, bicubic", "images", lambda tf, x: tf.image.resize(x, (12, 12), "bicubic"), IMAGES),
    op(
        "crop_and_resize",
        "images",
        lambda tf, x, b: tf.image.crop_and_resize(x, _boxes(tf, b), [0, 1], (4, 4)),
        IMAGES,
        (2, 4),
    ),
    op(
        "flip, adjust contrast",
        "images",
        lambda tf, x: tf.image.adjust_contrast(tf.image.flip_left_right(x), 2.0),
        IMAGES,
    ),
    op("adjust hue", "images", lambda tf, x: tf.image.adjust_hue(x[..., :3], 0.1), IMAGES),
    op(
        "extract_patches",
        "images",
        lambda tf, x: tf.image.extract_patches(x, (1, 2, 2, 1), (1, 2, 2, 1), (1, 1, 1, 1), "SAME"),
        IMAGES,
    ),
    op(
        "non_max_suppression",
        "images",
        lambda tf, b, s: tf.image.non_max_suppression(_boxes(tf, b), s, 3),
        (6, 4),
        (6,),
    ),
    op(
        "non_max_suppression, padded",
        "images",
        lambda tf, b, s: tf.image.non_max_suppression_padded(
            _boxes(tf, b), s, 3, pad_to_max_output_size=True
        )[0],
        (6, 4),
        (6,),
    ),
    op(
        "decode_jpeg",
        "images",
        lambda tf, x: tf.io.decode_jpeg(tf.io.encode_jpeg(tf.cast(tf.abs(x[0, ..., :3]), tf.uint8))),
        IMAGES,
    ),
    op(
        "stateless_normal",
        "random numbers",
        lambda tf, x: x + tf.random.stateless_normal(ROWS, (1, 2)),
        ROWS,
        core=True,
    ),
    op("random.normal", "random numbers", lambda tf, x: x + tf.random.normal(ROWS), ROWS),
    op("random.shuffle", "random numbers", lambda tf, x: tf.random.shuffle(x), ROWS),
    op("random.categorical", "random numbers", lambda tf, x: tf.random.categorical(x, 3), ROWS),
    op("random.gamma", "random numbers", lambda tf, x: tf.random.gamma((3,), tf.abs(x) + 1.0), ROWS),
    Case("random.Generator", "random numbers", _stateful_random, (ROWS,)),
    op("dropout", "random numbers", lambda tf, x: tf.nn.dropout(x, 0.5), ROWS, gradient=True),
)


def _while(tf: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (0, x), maximum_iterations=3)[1]


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


_HARD: Tuple[Case, ...] = (
    op(
        "cond",
        "control flow",
        lambda tf, x: tf.cond(x[0, 0] > 0, lambda: x * 2.0, lambda: x),
        ROWS,
        gradient=True,
    ),
    op("while_loop, bounded", "control flow", _while, ROWS, gradient=True),
    op("while_loop, unbounded", "control flow", _while_unbounded, ROWS),
    op("while_loop, unbounded, with gradient", "control flow", _while_unbounded, ROWS, gradient=True),
    op("TensorArray", "control flow", _array, ROWS, gradient=True),
    op("TensorArray, growing", "control flow", _array_dynamic, ROWS),
    op("scan", "control flow", lambda tf, x: tf.scan(lambda a, b: a + b, x), ROWS, gradient=True),
    op("map_fn", "control flow", lambda tf, x: tf.map_fn(lambda row: row * 2.0, x), ROWS, gradient=True),
    op("vectorized_map", "control flow", lambda tf, x: tf.vectorized_map(lambda row: row * 2.0, x), ROWS),
    op("where, one argument", "shapes from values", lambda tf, x: tf.where(x > 0), ROWS),
    op("boolean_mask", "shapes from values", lambda tf, x: tf.boolean_mask(x, x > 0), ROWS),
    op("unique", "shapes from values", lambda tf, i: tf.unique(i)[0], Ints((6,))),
    op(
        "dynamic_partition",
        "shapes from values",
        lambda tf, x, i: tf.dynamic_partition(x, i, 4),
        ROWS,
        Ints((4,)),
    ),
    op(
        "dynamic_stitch",
        "shapes from values",
        lambda tf, x: tf.dynamic_stitch([[0, 2], [1, 3]], [x[:2], x[2:]]),
        ROWS,
    ),
    op(
        "reshape to a computed shape",
        "shapes from values",
        lambda tf, x, i: tf.reshape(x, tf.stack([i[1] * 0 + 4, -1])),
        ROWS,
        Ints((2,)),
    ),
    op(
        "repeat by computed counts",
        "shapes from values",
        lambda tf, x, i: tf.repeat(x, i, axis=0),
        ROWS,
        Ints((4,)),
    ),
    op("range to a computed limit", "shapes from values", lambda tf, i: tf.range(i[1]), Ints((2,))),
    op(
        "ragged tensor",
        "ragged and sparse",
        lambda tf, x: tf.reduce_sum(
            tf.RaggedTensor.from_row_lengths(tf.reshape(x, (-1,)), [8, 4, 12, 8]), axis=1
        ),
        ROWS,
    ),
    op(
        "ragged to dense",
        "ragged and sparse",
        lambda tf, x: tf.RaggedTensor.from_row_lengths(tf.reshape(x, (-1,)), [8, 4, 12, 8]).to_tensor(),
        ROWS,
    ),
    op(
        "sparse times dense",
        "ragged and sparse",
        lambda tf, x: tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 1], [2, 3]], [1.0, 2.0], (4, 4)), x),
        ROWS,
    ),
    op(
        "sparse to dense",
        "ragged and sparse",
        lambda tf, x: tf.sparse.to_dense(tf.SparseTensor([[0, 1], [2, 3]], x[0, :2], (4, 4))),
        ROWS,
    ),
    op(
        "sparse from dense",
        "ragged and sparse",
        lambda tf, x: tf.sparse.from_dense(tf.nn.relu(x)).values,
        ROWS,
    ),
    op(
        "embedding_lookup_sparse",
        "ragged and sparse",
        lambda tf, x: tf.nn.embedding_lookup_sparse(
            x, tf.SparseTensor([[0, 0], [1, 0]], [1, 3], (2, 2)), None, combiner="sum"
        ),
        ROWS,
    ),
    Case("variable, assign_add", "state", _assign, (ROWS,), core=True),
    Case("variable, scatter_nd_add", "state", _scatter_variable, (Ints((4, 1)), ROWS)),
    op("string join", "host", lambda tf, t: tf.strings.join([t, t]), Texts()),
    op("string to number", "host", lambda tf, t: tf.strings.to_number(t), Texts()),
    op("as_string", "host", lambda tf, x: tf.strings.as_string(x), ROWS),
    Case("hash table lookup", "host", _table, (Texts(),)),
    op("py_function", "host", lambda tf, x: tf.py_function(lambda y: y * 2, [x], tf.float32), ROWS),
    op("numpy_function", "host", lambda tf, x: tf.numpy_function(lambda y: y * 2, [x], tf.float32), ROWS),
    op("print", "host", lambda tf, x: (tf.print("probe"), x * 2.0)[1], ROWS),
    op("assert", "host", lambda tf, x: (tf.debugging.assert_less(x, 1e9), x * 2.0)[1], ROWS),
    op("check_numerics", "host", lambda tf, x: tf.debugging.check_numerics(x, "not finite"), ROWS),
)

OF_PROGRAMS: Tuple[Case, ...] = _DATA + _HARD


# Common layers and operations, each as a function that XLA can be asked to compile by itself.
#
# What XLA refuses differs between releases, and between the CPU and the GPU. So the set holds what models
# are made of, and what people are known to stumble over (openxla.org/xla/tf2xla, "Known issues"): shapes
# that depend on values, loops without a bound, strings, tables, calls back into Python, cuDNN's recurrent
# kernels.


CASES: Tuple[Case, ...] = OF_NETWORKS + OF_PROGRAMS
BY_NAME: Dict[str, Case] = {case.name: case for case in CASES}
