"""TensorFlow's devices, as the checks use them."""

import importlib
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple


def gpus(tf: Any) -> List[Any]:
    """Return the GPUs that TensorFlow sees, after setting them to take memory as they need it.

    By default TensorFlow takes almost all of every GPU's memory, which a probe must not do on a machine that
    others use. Growth can be set only before the first operation runs, so every check gets its GPUs here.
    """
    found: List[Any] = tf.config.list_physical_devices("GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    return found


#: What graph optimization appends to the name of a function that it adapts to its call. The optimized graph
#: has lost the bodies of its functions, so they are those before optimization.
_SPECIALIZED = "_specialized_for_"


@contextmanager
def full_float32(tf: Any) -> Iterator[None]:
    """Turn TensorFloat-32 off, which nothing that a verdict requires may do: users compute with it."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def operations(call: Callable[[], Any], nested: bool = False) -> Tuple[List[Dict[str, Any]], Any]:
    """Return each executed `op` with its `device` (`GPU:0`) and `count`, and what the call returned.

    call: the first call of a `tf.function`, when TensorFlow makes the graphs that it will execute. The public
    API shows only the graph before that; these show placement, fused operations and XLA's clusters.
    nested: also the operations of functions that these graphs call, such as the layers of Keras 2 are.
    """
    context = importlib.import_module("tensorflow.python.eager.context")
    context.enable_graph_collection()
    try:
        returned = call()
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    bodies = {
        function.signature.name: function.node_def
        for graphs in (metadata.function_graphs if nested else ())
        for function in graphs.pre_optimization_graph.library.function
    }
    counts: "Counter[Tuple[str, str]]" = Counter()
    for graph in metadata.partition_graphs:
        counts.update(_nodes(graph.node, bodies, ""))
    found = [{"op": op, "device": device, "count": count} for (op, device), count in sorted(counts.items())]
    return found, returned


def _nodes(nodes: Iterable[Any], bodies: Dict[str, Any], device: str) -> Iterator[Tuple[str, str]]:
    """Yield operation and device of each node and of the functions it calls; these run where their caller
    does."""
    for node in nodes:
        own = _device(node.device) or device
        yield node.op, own
        for value in node.attr.values():
            for called in (value.func, *value.list.func):
                name = called.name.partition(_SPECIALIZED)[0]
                if name in bodies:
                    # Visit each function once, because it may call itself.
                    rest = {other: body for other, body in bodies.items() if other != name}
                    yield from _nodes(bodies[name], rest, own)


def _device(name: str) -> str:
    """Return `GPU:0` for `/job:localhost/replica:0/task:0/device:GPU:0`."""
    return name.rpartition("device:")[2]
