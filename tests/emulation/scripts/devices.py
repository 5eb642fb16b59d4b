import tensorflow as tf
from tensorflow.python.client import device_lib

print(tf.__version__, tf.config.list_physical_devices())
print([device.name for device in device_lib.list_local_devices()])
