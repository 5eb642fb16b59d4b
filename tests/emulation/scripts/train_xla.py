import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse", jit_compile=True)
model.fit(np.random.rand(256, 8).astype("float32"), np.random.rand(256, 1).astype("float32"), epochs=2)
