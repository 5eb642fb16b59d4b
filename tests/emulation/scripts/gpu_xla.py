import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    return tf.exp(x) * 2.0 + 1.0


print(f(tf.constant([1.0, 2.0, 3.0])))
