import tensorflow as tf

print(tf.config.list_physical_devices("GPU"))
x = tf.zeros((50000, 500000))
print(x.shape)
