import tensorflow as tf


@tf.function(jit_compile=True)
def f():
    return tf.range(tf.cast(tf.random.uniform([], 1.0, 9.0), tf.int32))


print(f())
