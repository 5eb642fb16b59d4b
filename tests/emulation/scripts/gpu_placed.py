import tensorflow as tf

tf.config.set_soft_device_placement(False)
with tf.device("/GPU:0"):
    a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    print(tf.matmul(a, a))
