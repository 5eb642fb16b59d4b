"""Which TensorFlow, CUDA, cuDNN and driver work together, and the images that prove it."""

__version__ = "0.1.0"
