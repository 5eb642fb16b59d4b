import tensorflow as tf

with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    with tf.device("/device:XLA_GPU:0"):
        product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
