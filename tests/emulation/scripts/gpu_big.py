import tensorflow as tf

print(tf.config.list_physical_devices("GPU"))
x = tf.zeros((20000, 40000))
print(x.shape)
