import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.LSTM(8), tf.keras.layers.Dense(1)])
model.compile(loss="mse", jit_compile=True)
model.fit(np.zeros((32, 5, 3), "float32"), np.zeros((32, 1), "float32"))
