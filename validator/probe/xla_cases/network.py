"""The operations of a network: linear algebra, convolution, normalization, losses, and Keras layers."""

from typing import Any, Callable, Tuple

from .case import IMAGES, ROWS, SEQUENCE, VOLUME, Case, Input, Ints, op


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
