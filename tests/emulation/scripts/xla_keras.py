import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.TextVectorization(output_mode="int", output_sequence_length=4)])
model.layers[0].adapt(["a b c", "d e"])
dense = tf.keras.layers.Dense(1)


@tf.function(jit_compile=True)
def step(text):
    return dense(tf.cast(model.layers[0](text), tf.float32))


print(step(tf.constant([["a b"], ["c d"]])))
