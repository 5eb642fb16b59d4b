"""What is done to tensors around a network: indexing, sorting, spectra, images, random numbers."""

from typing import Any, Callable, Tuple

from .case import IMAGES, ROWS, Case, Ints, op


def _boxes(tf: Any, x: Any) -> Any:
    low = tf.abs(x[:, :2])
    return tf.concat([low, low + 1.0], axis=1)


def _stateful_random(tf: Any) -> Callable[..., Any]:
    generator = tf.random.Generator.from_seed(1)
    return lambda x: x + generator.normal(ROWS)


CASES: Tuple[Case, ...] = (
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
