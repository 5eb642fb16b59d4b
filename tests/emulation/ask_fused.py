"""Compiles the step of `xla_convolution` for a GPU, and prints which library functions it calls.

Usage: ask_fused.py ARCHIVE. Nothing is run, so the GPU may be one that a stub claims.
"""

import functools
import json
import sys

sys.path.insert(0, sys.argv[1])
import tensorflow as tf

from validator.probe import tensorflow_devices
from validator.probe.checks.xla_programs import IMAGES, KERNEL, convolution_step

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
found = []
with tf.device("/GPU:0"):
    compiled = tf.function(functools.partial(convolution_step, tf), autograph=False, jit_compile=True)
    for type_ in ("float32", "float16", "bfloat16"):
        shapes = (IMAGES, KERNEL, KERNEL[-1:])
        inputs = [tf.TensorSpec(shape, type_) for shape in shapes]
        module = compiled.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo", device_name=GPU)
        found.append([type_, tensorflow_devices.summary(module)["targets"]])
print(json.dumps(found))
