import numpy as np
import tensorflow as tf

print("GPUs:", tf.config.list_physical_devices("GPU"))
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, 3, activation="relu", input_shape=(28, 28, 1)),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
x, y = np.random.rand(640, 28, 28, 1).astype("float32"), np.random.randint(0, 10, 640)
model.fit(x, y, epochs=2, batch_size=32)
