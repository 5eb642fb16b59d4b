import tensorflow as tf


@tf.function(jit_compile=True)
def f(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.cast(x[0], tf.int32)):
        array = array.write(i, tf.cast(i, tf.float32))
    return array.stack()


print(f(tf.constant([3.0])))
