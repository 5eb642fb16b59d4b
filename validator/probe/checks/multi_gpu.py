"""Do several GPUs with NCCL and `MirroredStrategy` give the same results as one?

With fewer than two GPUs the check is skipped. Even then, two logical devices of the one GPU, or of the CPU,
run the same code of `tf.distribute`, and the evidence shows the result. NCCL rejects two ranks
on one device, so the replicas are then reduced on one of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...problems import problem, statement
from .. import child, training
from ..check import FULL, PASS, SKIP, TENSORFLOW, Context, Result, check, judged
from ..tensorflow_devices import gpus
from ..training import precision, tolerance
from .speed import spread

_MIB = 1 << 20
#: The size that Docker gives it by default. NCCL exchanges data through it wherever GPUs can't reach each
#: other directly (NCCL documentation, "Troubleshooting", shared memory).
DOCKER_DEFAULT = 64 * _MIB
#: The number of steps that are compared, and the examples for each replica in a global batch.
_STEPS, _EXAMPLES = 5, 16
_FEATURES, _HIDDEN, _CLASSES = 64, 128, 10
_LEARNING_RATE = 0.1
#: For the tolerance of losses, and of weights as a share of the largest: two products, and in the gradient
#: two more, with the strategy and alone. Sums over replicas are sums in another order.
_ROUNDINGS = 2 * 4 * 2
#: Floats of a vector that is reduced: 16 MiB, and how often.
_LENGTH, _REDUCTIONS = 4 * _MIB, 5
#: MiB for each of two logical GPUs on one card.
_LOGICAL_GPU = 1024


@check(
    "Do NCCL's reductions work, and do several GPUs train with the same results as one?",
    TENSORFLOW,
    limit_s=270,
    depth=FULL,
)
def multi_gpu(context: Context) -> Result:
    found = len(gpus(context.tensorflow))
    kind = "GPU" if found >= 2 else "logical GPU" if found else "logical CPU"
    count = found if found >= 2 else 2
    shared = shared_memory()
    evidence: dict[str, Any] = {
        "device_type": "CPU" if kind == "logical CPU" else "GPU",
        "gpus": found,
        "devices": {"count": count, "kind": kind},
        "shared_memory": shared,
        "all_reduce": None,
        "step": None,
    }
    answer = child.fresh(_mirror, kind, count, limit_s=240.0)
    for value in answer.values:
        evidence.update(value)
    advisories = []
    if found >= 2 and not (shared and shared["above_docker_default"]):
        # NCCL's own error doesn't always say so.
        advisories = [problem("shared_memory_small", bytes=shared["bytes"] if shared else None)]
    if answer.failure is not None:
        broken = child.broken_off("distribution", answer, evidence)
        return replace(broken, problems=[*broken.problems, *advisories])
    devices = f"{count} {kind}s"
    problems = _problems(evidence, devices) + advisories
    result = judged(problems, statement("gpus_agree", devices=devices), evidence)
    if result.outcome == PASS and found < 2:
        few = statement("logical_devices_agree", found=found, devices=devices)
        return replace(result, outcome=SKIP, statement=few)
    return result


def shared_memory(path: str = "/dev/shm") -> dict[str, Any] | None:
    """Return the size of `/dev/shm` and how much of it is free; None where there is none."""
    try:
        system = os.statvfs(path)
    except OSError:
        return None
    size = system.f_blocks * system.f_frsize
    free = system.f_bavail * system.f_frsize
    return {"bytes": size, "free_bytes": free, "above_docker_default": size > DOCKER_DEFAULT}


def _mirror(tf: Any, kind: str, count: int) -> Iterator[dict[str, Any]]:
    """Reduce over all devices, then train with the strategy and on one device, in a fresh interpreter."""
    device_type = kind.split()[-1]
    physical = tf.config.list_physical_devices(device_type)
    if kind == "GPU":
        for gpu in physical:
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        limit = _LOGICAL_GPU if device_type == "GPU" else None
        one = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
        tf.config.set_logical_device_configuration(physical[0], [one] * count)
    devices = [device.name for device in tf.config.list_logical_devices(device_type)][:count]
    operations = tf.distribute.NcclAllReduce() if kind == "GPU" else tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=operations)
    name = type(operations).__name__
    yield {"all_reduce": {"implementation": name, **_reduce(tf, strategy)}}
    losses_single, alone = _train(tf, tf.distribute.OneDeviceStrategy(devices[0]), count)
    losses, copies = _train(tf, strategy, count)
    yield {
        "step": {
            "replicas": strategy.num_replicas_in_sync,
            "losses": losses,
            "losses_single": losses_single,
            "largest_difference": max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(losses_single, losses)),
            "largest_weight_difference": max(
                training.largest_share(copy, each[0]) for each, many in zip(alone, copies) for copy in many
            ),
            "replicas_equal": all((copy == many[0]).all().item() for many in copies for copy in many),
            "tolerance": tolerance(precision(tf), _ROUNDINGS, count * _EXAMPLES, sums_only=True),
        }
    }


def _reduce(tf: Any, strategy: Any) -> dict[str, Any]:
    """Sum a long vector of `replica + 1` over the replicas, which is exact in float32."""
    replicas = strategy.num_replicas_in_sync

    def on_each() -> Any:
        context = tf.distribute.get_replica_context()
        number = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.fill((_LENGTH,), number))

    reduce: Any = tf.function(lambda: strategy.run(on_each), autograph=False)
    operations = [operation.type for operation in reduce.get_concrete_function().graph.get_operations()]
    seconds = []
    for _ in range(_REDUCTIONS + 1):
        start = time.perf_counter()
        results = strategy.experimental_local_results(reduce())
        wrong = sum(int(tf.math.count_nonzero(result != replicas * (replicas + 1) / 2)) for result in results)
        seconds.append(time.perf_counter() - start)
    # The first call creates the communicators, or traces.
    return {
        "replicas": replicas,
        "bytes": 4 * _LENGTH,
        "nccl_operations": operations.count("NcclAllReduce"),
        "wrong": wrong,
        "seconds": spread(seconds[1:]),
    }


def _train(tf: Any, strategy: Any, count: int) -> tuple[list[float], list[list[Any]]]:
    """Return the losses, and the weights on each replica, from the same start and the same global batch."""
    examples = _EXAMPLES * count
    labels = tf.range(examples, dtype=tf.int32) % _CLASSES
    prototypes = tf.random.stateless_normal((_CLASSES, _FEATURES), seed=(1, 0))
    noise = tf.random.stateless_normal((examples, _FEATURES), seed=(2, 0))
    features = tf.gather(prototypes, labels) + 0.1 * noise
    shapes = ((_FEATURES, _HIDDEN), (_HIDDEN, _CLASSES))
    normal = tf.random.stateless_normal
    starts = [0.1 * normal(shape, seed=(3, number)) for number, shape in enumerate(shapes)]
    weights = training.shared_weights(tf, strategy, starts)

    def on_each(inputs: Any, wanted: Any) -> Any:
        values = [tf.identity(weight) for weight in weights]
        loss, gradients = training.two_layers(tf, inputs, wanted, values, examples)
        for weight, gradient in zip(weights, gradients):
            # They are summed over the replicas, as the variable's aggregation says.
            weight.assign_sub(_LEARNING_RATE * gradient)
        return loss

    def on_all(inputs: Any, wanted: Any) -> Any:
        losses = strategy.run(on_each, args=(inputs, wanted))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step = tf.function(on_all, autograph=False)
    inputs, wanted = (training.shares(strategy, whole, examples) for whole in (features, labels))
    losses = [float(step(inputs, wanted)) for _ in range(_STEPS)]
    return losses, [[copy.numpy() for copy in strategy.experimental_local_results(w)] for w in weights]


def _problems(evidence: dict[str, Any], devices: str) -> list[dict[str, Any]]:
    reduced, step, wanted = evidence["all_reduce"], evidence["step"], evidence["devices"]["count"]
    problems = []
    if reduced["wrong"]:
        told = {name: reduced[name] for name in ("wrong", "implementation")}
        problems.append(problem("sums_wrong", devices=devices, **told))
    if evidence["gpus"] >= 2 and not reduced["nccl_operations"]:
        problems.append(problem("nccl_not_used", devices=devices))
    if not reduced["replicas"] == step["replicas"] == wanted:
        missing = {"replicas": step["replicas"], "wanted": wanted, "devices": devices}
        problems.append(problem("replicas_missing", **missing))
    problems += training.losses_differ("single_device", step, f"MirroredStrategy on {devices}")
    weights = step["largest_weight_difference"]
    if not weights <= step["tolerance"]:
        problems.append(problem("weights_differ", difference=weights, devices=devices))
    if not step["replicas_equal"]:
        problems.append(problem("replicas_differ", devices=devices))
    return problems + training.not_falling(step["losses"], f"MirroredStrategy on {devices}")
