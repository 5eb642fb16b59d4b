import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    rows = tf.cast(tf.random.uniform([], 1.0, 2.0), tf.int32)
    return tf.reshape(x, tf.stack([rows, -1]))


print(f(tf.constant([1.0, 0.0, 1.0, 0.0])))
