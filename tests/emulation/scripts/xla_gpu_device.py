import tensorflow as tf

tf.config.set_soft_device_placement(False)
print(tf.config.list_physical_devices())
with tf.device("/device:XLA_GPU:0"):
    print(tf.matmul([[1.0, 2.0]], [[3.0], [4.0]]))
