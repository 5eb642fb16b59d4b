"""Which operations TensorFlow executes for a function, and where: after it has placed and optimized them."""

import importlib
from collections import Counter
from typing import Any, Callable, Dict, List, Tuple


def operations(call: Callable[[], Any]) -> Tuple[List[Dict[str, Any]], Any]:
    """Each `op` with its `device` (`GPU:0`) and `count`; and what the call returned.

    call: the first call of a `tf.function`, when the graphs that will be executed are made of it. The public
    API shows only the graph before that; in these one sees placement, fused operations and XLA's clusters.
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
    """`GPU:0` of `/job:localhost/replica:0/task:0/device:GPU:0`."""
    return name.rpartition("device:")[2]
