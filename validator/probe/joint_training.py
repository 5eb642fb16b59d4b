"""Train a few steps on all workers together, and the same steps on one of them alone.

The workers run `train` at the same time, each in a fresh interpreter.
"""

import hashlib
import random
import struct
import time
from typing import Any, Dict, Iterator, List, Tuple

from .comparison import precision, tolerance
from .tensorflow_devices import gpus

#: How far a worker is, in this order (the vocabulary `worker_stage`).
START, CONNECT, TRAIN, END = STAGES = ("start", "connect", "train", "end")
#: The steps that are compared, and the examples for each replica in a global batch.
_STEPS, EXAMPLES = 3, 16
_FEATURES, _HIDDEN, _CLASSES = 64, 32, 10
_LEARNING_RATE = 0.1
#: For the tolerance of a gradient, as a share of the largest in the same tensor: two products, and in the
#: gradient two more, together and alone. Sums over workers are sums in another order.
_ROUNDINGS = 2 * 4 * 2


def train(tf: Any, replicas: int) -> Iterator[Dict[str, Any]]:
    """Train together, and compute the same steps alone. Runs in a fresh interpreter with `TF_CONFIG`."""
    yield {"stage": CONNECT}
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.NCCL if gpus(tf) else kinds.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    yield {"stage": TRAIN}
    step = _steps(tf, strategy, batch_of(EXAMPLES * replicas))
    yield {"step": step}
    yield {"stage": END}
    # The others may still need what this process holds. Whoever started it knows when they are done.
    while True:
        time.sleep(1)


def batch_of(examples: int) -> List[Tuple[int, List[float]]]:
    """Return labels with features. Made without TensorFlow and without functions whose last bit depends on
    the machine, so that every worker has the same; a longer batch begins with the shorter one."""
    numbers = random.Random(1)
    prototypes = [[numbers.random() - 0.5 for _ in range(_FEATURES)] for _ in range(_CLASSES)]
    return [
        (row % _CLASSES, [value + 0.1 * numbers.random() for value in prototypes[row % _CLASSES]])
        for row in range(examples)
    ]


def digest_of(batch: List[Tuple[int, List[float]]]) -> str:
    packed = b"".join(struct.pack(f"<i{_FEATURES}f", label, *features) for label, features in batch)
    return hashlib.sha256(packed).hexdigest()


def _steps(tf: Any, strategy: Any, batch: List[Tuple[int, List[float]]]) -> Dict[str, Any]:
    labels, features = tf.constant([label for label, _ in batch]), tf.constant([row for _, row in batch])
    share = len(batch) // strategy.num_replicas_in_sync

    def part(whole: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda replica: whole[replica.replica_id_in_sync_group * share :][:share]
        )

    numbers = random.Random(2)
    shapes = ((_FEATURES, _HIDDEN), (_HIDDEN, _CLASSES))
    with strategy.scope():
        weights = [
            tf.Variable(
                [[0.5 * (numbers.random() - 0.5) for _ in range(columns)] for _ in range(rows)],
                aggregation=tf.VariableAggregation.SUM,
            )
            for rows, columns in shapes
        ]

    def gradients(inputs: Any, wanted: Any, values: Any) -> Tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(values)
            logits = tf.linalg.matmul(tf.nn.relu(tf.linalg.matmul(inputs, values[0])), values[1])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
            loss = tf.reduce_sum(losses) / len(batch)
        return loss, tape.gradient(loss, values)

    def on_each(inputs: Any, wanted: Any) -> Any:
        loss, found = gradients(inputs, wanted, [tf.identity(weight) for weight in weights])
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, [loss, *found])
        for weight, gradient in zip(weights, found):
            # They are summed over the replicas, as the variable's aggregation says.
            weight.assign_sub(_LEARNING_RATE * gradient)
        return total

    step = tf.function(lambda inputs, wanted: strategy.run(on_each, args=(inputs, wanted)), autograph=False)
    alone = tf.function(gradients, autograph=False)
    inputs, wanted = part(features), part(labels)
    losses, differences, seconds = [], [], []
    for _ in range(_STEPS):
        _, expected = alone(
            features, labels, [tf.identity(_copies(strategy, weight)[0]) for weight in weights]
        )
        start = time.perf_counter()
        loss, *found = (_copies(strategy, value)[0].numpy() for value in step(inputs, wanted))
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss))
        differences += [_difference(one, other.numpy()) for one, other in zip(found, expected)]
    final = [[copy.numpy() for copy in _copies(strategy, weight)] for weight in weights]
    operations = step.get_concrete_function(inputs, wanted).graph.get_operations()
    return {
        "replicas": strategy.num_replicas_in_sync,
        "losses": losses,
        "largest_difference": max(differences),
        "tolerance": tolerance(precision(tf), _ROUNDINGS, len(batch), sums_only=True),
        "replicas_equal": all(bool((copy == each[0]).all()) for each in final for copy in each),
        "weights": hashlib.sha256(b"".join(each[0].tobytes() for each in final)).hexdigest(),
        "collectives": _hints(operations),
        "step_s": min(seconds),
    }


def _copies(strategy: Any, value: Any) -> Any:
    """Return a value's copies on this worker's replicas."""
    return strategy.experimental_local_results(value)


def _difference(found: Any, expected: Any) -> float:
    return float(abs(found - expected).max() / abs(expected).max())


def _hints(operations: Any) -> List[str]:
    """Return how the graph's reductions are to communicate, such as `ring` or `nccl`."""
    found = [operation for operation in operations if operation.type.startswith("CollectiveReduce")]
    return sorted({operation.get_attr("communication_hint").decode() for operation in found})
