import numpy as np
import tensorflow as tf

kept = [tf.constant(np.zeros((16, 1024, 1024), "float32")) for _ in range(40)]
print(len(kept))
