import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
print("Number of devices:", strategy.num_replicas_in_sync)


@tf.function
def step():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant([1.0, 2.0])), axis=None)


print(step())
