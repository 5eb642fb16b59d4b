"""Find out which TensorFlow, CUDA, cuDNN and driver work together, and ship images that prove it."""

__version__ = "0.1.0"
