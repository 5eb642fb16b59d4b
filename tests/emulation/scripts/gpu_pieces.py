import tensorflow as tf

kept = [tf.Variable(tf.constant(0.0, shape=(64, 1024, 1024))) for _ in range(20)]
print(len(kept))
