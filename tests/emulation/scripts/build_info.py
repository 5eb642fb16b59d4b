import tensorflow as tf

print(tf.__version__)
print("built with CUDA:", tf.test.is_built_with_cuda())
print(tf.sysconfig.get_build_info())
print(tf.config.list_physical_devices("GPU"))
