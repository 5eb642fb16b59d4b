import tensorflow as tf
from tensorflow.python.ops import nccl_ops


@tf.function
def reduce():
    return nccl_ops.all_sum([tf.constant([1.0]), tf.constant([2.0])])


print(reduce())
