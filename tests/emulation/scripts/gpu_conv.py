import numpy as np
import tensorflow as tf

images = tf.constant(np.ones((8, 32, 32, 3), "float32"))
kernel = tf.constant(np.ones((3, 3, 3, 8), "float32"))
print(tf.nn.conv2d(images, kernel, strides=1, padding="SAME").shape)
