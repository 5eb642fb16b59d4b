"""TensorFlow's devices, as the checks use them."""

import importlib
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Tuple


def gpus(tf: Any) -> List[Any]:
    """Return the GPUs that TensorFlow sees, after setting them to take memory as they need it.

    By default TensorFlow takes almost all of every GPU's memory, which a probe must not do on a machine that
    others use. Growth can be set only before the first operation runs, so every check gets its GPUs here.
    """
    found: List[Any] = tf.config.list_physical_devices("GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    return found


@contextmanager
def exact_float32(tf: Any) -> Iterator[None]:
    """Turn TensorFloat-32 off: with its 10-bit mantissa only a wide tolerance, which hides errors, would
    pass."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def operations(call: Callable[[], Any]) -> Tuple[List[Dict[str, Any]], Any]:
    """Return each executed `op` with its `device` (`GPU:0`) and `count`, and what the call returned.

    call: the first call of a `tf.function`, when TensorFlow makes the graphs that it will execute. The public
    API shows only the graph before that; these show placement, fused operations and XLA's clusters.
    """
    context = importlib.import_module("tensorflow.python.eager.context")
    context.enable_graph_collection()
    try:
        returned = call()
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_graph_collection()
    counts = Counter((node.op, _device(node.device)) for graph in graphs for node in graph.node)
    found = [{"op": op, "device": device, "count": count} for (op, device), count in sorted(counts.items())]
    return found, returned


def _device(name: str) -> str:
    """Return `GPU:0` for `/job:localhost/replica:0/task:0/device:GPU:0`."""
    return name.rpartition("device:")[2]
