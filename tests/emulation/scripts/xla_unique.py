import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    values, counts = tf.unique(x)
    return values


print(f(tf.constant([1, 2, 1])))
