import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
x, y = np.random.rand(512, 8).astype("float32"), np.random.rand(512, 1).astype("float32")
model.fit(x, y, epochs=60, batch_size=64, validation_split=0.2, verbose=2)
model.fit(x, y, epochs=3, batch_size=8)
print("saved", model.count_params())
