import tensorflow as tf

print(tf.config.list_physical_devices())
with tf.device("/device:XLA_GPU:0"):
    print(tf.matmul([[1.0, 2.0]], [[3.0], [4.0]]))
