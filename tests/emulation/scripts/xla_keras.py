import tensorflow as tf

rotate = tf.keras.layers.RandomRotation(0.2)


@tf.function(jit_compile=True)
def step(images):
    return tf.reduce_mean(rotate(images, training=True))


print(step(tf.zeros((2, 8, 8, 3))))
