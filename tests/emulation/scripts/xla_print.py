import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    tf.print("x:", x)
    return tf.io.serialize_tensor(x)


print(f(tf.constant([2.0, 1.0])))
