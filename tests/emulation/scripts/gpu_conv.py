import tensorflow as tf

images = tf.constant(1.0, shape=(8, 32, 32, 3))
kernel = tf.constant(0.1, shape=(3, 3, 3, 8))
print(tf.nn.conv2d(images, kernel, strides=1, padding="SAME").shape)
