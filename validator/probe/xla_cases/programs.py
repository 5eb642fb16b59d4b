"""What is hard to compile: loops, shapes from values, ragged and sparse tensors, state, the host."""

from typing import Any, Callable, Tuple

from .case import ROWS, Case, Ints, Texts, op


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


CASES: Tuple[Case, ...] = (
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
