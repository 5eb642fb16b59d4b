import tensorflow as tf


@tf.function(jit_compile=True)
def f(text):
    return tf.strings.length(text)


print(f(tf.constant(["a", "bc"])))
