import tensorflow as tf

print(tf.config.list_physical_devices("GPU"))
a = tf.constant([1.0, 2.0, 3.0])
print(a + 1.0)
