import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    return tf.sin(x) + tf.math.pow(x, 2.3) + tf.math.erf(x)


print(f(tf.constant([1.0, 2.0, 3.0])))
