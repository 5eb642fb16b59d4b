"""The program around a network: data handling, and what is hard to compile.

Data handling is indexing, sorting, spectra, images and random numbers. Hard to compile are loops, shapes from
values, ragged and sparse tensors, state, and calls to the host.
"""

from typing import Any, Callable, Tuple

from .case import IMAGES, ROWS, Case, Ints, Texts, op


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
