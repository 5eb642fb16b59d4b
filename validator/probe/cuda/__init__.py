"""Opens CUDA libraries in a child process as TensorFlow does, and asks each for its version."""
