"""TensorFlow's devices, as the checks use them."""

from contextlib import contextmanager
from typing import Any, Iterator, List


def gpus(tf: Any) -> List[Any]:
    """The GPUs that TensorFlow sees, set to take memory as they need it.

    By default TensorFlow takes almost all of every GPU's memory, which a probe must not do to a machine
    that others use. It can be set only before the first operation runs, so every check asks here.
    """
    found: List[Any] = tf.config.list_physical_devices("GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    return found


@contextmanager
def exact_float32(tf: Any) -> Iterator[None]:
    """Without TensorFloat-32, whose 10-bit mantissa would hide a wrong result behind a wide tolerance."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
