"""Do several GPUs, and several machines, train together with the same results as one?

Several GPUs: NCCL and `MirroredStrategy`. With fewer than two, the check is skipped. Even then, two logical
devices of the GPU, or of the CPU, run the same code of `tf.distribute`, and the evidence shows the result.
NCCL rejects two ranks on one device, so the replicas are then reduced on one of them.

Several machines: `MultiWorkerMirroredStrategy` over the workers that the environment names (`workers`), with
NCCL between GPUs, gRPC on machines without. Every worker runs the check at the same time. It computes the
gradients of the whole batch by itself, and compares them with those that all workers computed together, each
from its part. No certificate requires it: a certificate is about one image on one machine.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...problems import problem, statement
from .. import child, training, workers
from ..check import FAIL, FULL, PASS, SKIP, TENSORFLOW, Context, Result, check, judged, skipped
from ..child import EXCEPTION, SIGNAL, STOPPED, TIMED_OUT, Answer, Failure
from ..tensorflow_devices import gpus
from ..training import precision, tolerance
from ..workers import Group, Peer, Settings
from .speed import spread

Problems = list[dict[str, Any]]
#: Examples for each replica in a global batch.
EXAMPLES = 16
_FEATURES, _HIDDEN, _CLASSES = 64, 32, 10
_LEARNING_RATE = 0.1
#: For the tolerance of losses, gradients and weights (the latter two relative to the largest in the same
#: tensor): two products, and two more in the gradient, each computed together and alone. Replicas only change
#: the order of sums.
_ROUNDINGS = 2 * 4 * 2

# A small model that all replicas train: two dense layers.


def batch_of(examples: int) -> list[tuple[int, list[float]]]:
    """Return labels with features; a longer batch begins with the shorter one.

    Made without TensorFlow and without functions whose last bit depends on the machine, so that every worker
    has the same.
    """
    numbers = random.Random(1)
    prototypes = [[numbers.random() - 0.5 for _ in range(_FEATURES)] for _ in range(_CLASSES)]
    labels = [row % _CLASSES for row in range(examples)]
    return [(label, [value + 0.1 * numbers.random() for value in prototypes[label]]) for label in labels]


def _two_layers(tf: Any, features: Any, labels: Any, examples: int, weights: Any) -> list[Any]:
    """Return the loss, as its share of a batch of `examples`, and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits = tf.linalg.matmul(tf.nn.relu(tf.linalg.matmul(features, weights[0])), weights[1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_sum(losses) / examples
    return [loss, *tape.gradient(loss, weights)]


def _replicated(tf: Any, strategy: Any, features: Any, labels: Any) -> tuple[Any, tuple[Any, Any], list[Any]]:
    """Return a step on all replicas, its arguments, and the weights, which are the same on every call.

    The step returns the loss and its gradients, summed over the replicas.
    """
    numbers, examples, weights = random.Random(2), len(labels), []
    for rows, columns in ((_FEATURES, _HIDDEN), (_HIDDEN, _CLASSES)):
        start = [[0.5 * (numbers.random() - 0.5) for _ in range(columns)] for _ in range(rows)]
        with strategy.scope():
            weights.append(tf.Variable(start, aggregation=tf.VariableAggregation.SUM))

    def on_each(features: Any, labels: Any) -> Any:
        values = [tf.identity(weight) for weight in weights]
        found = _two_layers(tf, features, labels, examples, values)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, found)
        for weight, gradient in zip(weights, found[1:]):
            # They are summed over the replicas, as the variable's aggregation says.
            weight.assign_sub(_LEARNING_RATE * gradient)
        return total

    share = examples // strategy.num_replicas_in_sync

    def part(whole: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda replica: whole[replica.replica_id_in_sync_group * share :][:share]
        )

    step = tf.function(lambda *given: strategy.run(on_each, args=given), autograph=False)
    return step, (part(features), part(labels)), weights


def _tensors(tf: Any, examples: int) -> tuple[Any, Any]:
    batch = batch_of(examples)
    return tf.constant([row for _, row in batch]), tf.constant([label for label, _ in batch])


# Several GPUs of this machine.

_MIB = 1 << 20
#: Docker's default size of /dev/shm. NCCL exchanges data through it wherever GPUs can't reach each other
#: directly (NCCL documentation, "Troubleshooting", shared memory).
_DOCKER_DEFAULT = 64 * _MIB
#: The floats of the vector that is reduced (16 MiB), how often it is reduced, and the steps to compare.
_LENGTH, _REDUCTIONS, _STEPS = 4 * _MIB, 5, 5
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
    evidence: dict[str, Any] = {"device_type": kind.split()[-1], "gpus": found}
    evidence.update(devices={"count": count, "kind": kind}, shared_memory=shared, all_reduce=None, step=None)
    answer = child.fresh(_mirror, kind, count, limit_s=240.0)
    for value in answer.values:
        evidence.update(value)
    advisories = []
    if found >= 2 and not (shared and shared["above_docker_default"]):
        # NCCL's own error doesn't always say that /dev/shm is too small.
        advisories = [problem("shared_memory_small", bytes=shared["bytes"] if shared else None)]
    if answer.failure is not None:
        broken = child.broken_off("distribution", answer, evidence)
        return replace(broken, problems=[*broken.problems, *advisories])
    devices = f"{count} {kind}s"
    problems = [*_problems(evidence, devices), *advisories]
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
    return {"bytes": size, "free_bytes": free, "above_docker_default": size > _DOCKER_DEFAULT}


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
    examples = EXAMPLES * count
    losses_single, alone = _train(tf, tf.distribute.OneDeviceStrategy(devices[0]), examples)
    losses, copies = _train(tf, strategy, examples)
    yield {
        "step": {
            "replicas": strategy.num_replicas_in_sync,
            "losses": losses,
            "losses_single": losses_single,
            "largest_difference": training.difference(losses, losses_single),
            "largest_weight_difference": max(
                training.largest_share(copy, each[0]) for each, many in zip(alone, copies) for copy in many
            ),
            "replicas_equal": all((copy == many[0]).all().item() for many in copies for copy in many),
            "tolerance": tolerance(precision(tf), _ROUNDINGS, examples, sums_only=True),
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
    usual, counted = spread(seconds[1:]), operations.count("NcclAllReduce")
    sizes = {"replicas": replicas, "bytes": 4 * _LENGTH}
    return {**sizes, "nccl_operations": counted, "wrong": wrong, "seconds": usual}


def _train(tf: Any, strategy: Any, examples: int) -> tuple[list[float], list[list[Any]]]:
    """Return the losses, and the weights on each replica, from the same start and the same global batch."""
    step, given, weights = _replicated(tf, strategy, *_tensors(tf, examples))
    copies: Any = strategy.experimental_local_results
    losses = [float(copies(step(*given)[0])[0]) for _ in range(_STEPS)]
    return losses, [[copy.numpy() for copy in copies(weight)] for weight in weights]


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


# Several machines. Without a second worker the check is skipped.

#: The problem for each thing that must be equal on all workers.
_DIFFERENT = {
    "workers": "workers_with_different_lists",
    "tensorflow": "workers_with_different_tensorflow",
    "devices": "workers_with_different_devices",
    "data": "workers_with_different_data",
}
#: How far a worker is, in this order (the vocabulary `worker_stage`).
START, CONNECT, TRAIN, END = STAGES = ("start", "connect", "train", "end")
#: Seconds for TensorFlow's import, its connections and the steps.
_TRAIN_S = 240.0
#: Seconds in which TensorFlow may report by itself that a worker has gone (it notices after ten), and seconds
#: to learn how the others ended.
_GRACE_S, _PARTING_S = 15.0, 5.0
#: The steps that are compared.
_COMPARED = 3
#: Exceptions that TensorFlow raises because of another worker. Other exceptions are a worker's own.
_CAUSED_ELSEWHERE = re.compile(r"(Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b|.*\b(NCCL|nccl)\b")


@check("Can several machines train together, and get the same gradients as one?", TENSORFLOW, 900, depth=FULL)
def multi_worker(context: Context) -> Result:
    try:
        chosen = workers.settings(os.environ)
    except ValueError as error:
        return Result(FAIL, None, [problem("worker_settings_wrong", error=str(error))])
    if chosen is None:
        return skipped(statement("no_other_worker"))
    return train_with(chosen, context.tensorflow)


def train_with(chosen: Settings, tf: Any) -> Result:
    found = len(gpus(tf))
    hello = {
        "workers": list(chosen.addresses),
        "tensorflow": tf.__version__,
        "devices": f"{found} GPU" if found else "CPU",
        "data": digest_of(batch_of(EXAMPLES)),
    }
    evidence: dict[str, Any] = {
        "device_type": "GPU" if found else "CPU",
        "workers": len(chosen.addresses),
        "rank": chosen.rank,
        "ranks": [],
        "communication": "NCCL" if found else "RING",
        "nccl_interface": None,
        "step": None,
        "seconds": {"join": None, "train": None},
    }
    try:
        group = Group(chosen, hello)
    except OSError as error:
        taken = {"address": chosen.addresses[chosen.rank], "error": str(error.strerror or error)}
        return Result(FAIL, None, [problem("worker_port_taken", **taken)], evidence)
    with group:
        began = time.monotonic()
        joined = group.join()
        evidence["seconds"]["join"] = time.monotonic() - began
        result = _together(group, hello, evidence, max(found, 1)) if joined else None
        for peer in group.peers:
            said = {name: (peer.hello or {}).get(name) for name in ("tensorflow", "devices")}
            # Whoever has finished closes its connections.
            lost = None if peer.stage == END else peer.lost
            ranked = {"rank": peer.rank, "address": peer.address, **said, "stage": peer.stage, "lost": lost}
            evidence["ranks"].append(ranked)
        return result or Result(FAIL, None, group.absent(), evidence)


def _together(group: Group, hello: dict[str, Any], evidence: dict[str, Any], replicas: int) -> Result:
    different = _different(group, hello)
    if different:
        return Result(FAIL, None, different, evidence)
    began = time.monotonic()
    answer, ended = _attended(group, replicas * evidence["workers"], evidence["device_type"])
    evidence["seconds"]["train"] = time.monotonic() - began
    evidence["step"] = _last(answer.values, "step")
    if evidence["device_type"] == "GPU":
        evidence["nccl_interface"] = workers.nccl(answer.stderr)
    if ended is not None:
        group.tell(left=ended.kind, error=ended.detail)
    # Wait a little for the others to say how they ended.
    end = time.monotonic() + _PARTING_S
    while time.monotonic() < end:
        group.attend()
        if all(peer.lost or peer.left or peer.stage == END for peer in group.peers):
            break
        time.sleep(0.05)
    faults = _faults(group, ended, evidence)
    if faults:
        seen = {**evidence, "failure": ended and str(ended), "last_lines": answer.last_lines}
        return Result(FAIL, None, faults, seen)
    if ended is not None:
        return child.broken_off("multi_worker", answer, evidence)
    return _judged_step(group, evidence)


def _different(group: Group, hello: dict[str, Any]) -> Problems:
    """Return at most one problem: the first difference between workers in what must be equal."""

    def short(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    for name, code in _DIFFERENT.items():
        found = {group.settings.rank: hello[name]}
        found.update({peer.rank: (peer.hello or {}).get(name) for peer in group.peers})
        if any(value != hello[name] for value in found.values()):
            said = [{"rank": rank, "value": short(found[rank])} for rank in sorted(found)]
            return [problem(code, found=said)]
    return []


def _last(values: list[dict[str, Any]], name: str) -> Any:
    return next((value[name] for value in reversed(values) if name in value), None)


def _attended(group: Group, replicas: int, device_type: str) -> tuple[Answer, Failure | None]:
    """Train in a fresh interpreter while attending to the others. Return its answer, and its failure."""
    chosen = group.settings
    task = {"type": "worker", "index": chosen.rank}
    cluster = {"cluster": {"worker": list(chosen.addresses)}, "task": task}
    environment: dict[str, str | None] = {"TF_CONFIG": json.dumps(cluster)}
    if device_type == "GPU":
        # Its log says which network interface it chose.
        environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=None)
    group.tell(stage=START)
    said: list[str] = [START]
    missed: list[float] = []

    def attend(values: list[dict[str, Any]]) -> bool:
        stage = _last(values, "stage") or START
        if stage != said[-1]:
            said.append(stage)
            group.tell(stage=stage, weights=(_last(values, "step") or {}).get("weights"))
        group.attend()
        if all(peer.stage == END for peer in group.peers):
            return bool(stage == END)
        if any((peer.lost or peer.left) and peer.stage != END for peer in group.peers):
            missed.append(time.monotonic())
        return bool(missed) and (stage == END or missed[-1] - missed[0] > _GRACE_S)

    answer = child.fresh(train, replicas, limit_s=_TRAIN_S, environment=environment, attend=attend)
    trained = _last(answer.values, "step") is not None
    return answer, None if trained else answer.failure


def _faults(group: Group, ended: Failure | None, evidence: dict[str, Any]) -> Problems:
    """Return what kept the workers from training together; empty if nothing did, or only this worker itself.

    ended: how this worker's training failed, if it did. The first reason that applies decides: a worker that
    was lost, one that failed by itself, one for which the others wait, the network.
    """
    absent = [peer for peer in group.peers if peer.stage != END]
    if ended is None and not absent:
        return []
    lost = [peer for peer in absent if peer.lost and not peer.left]
    if lost:
        error = ended.detail if ended is not None and ended.kind == EXCEPTION else ""
        return [problem("worker_lost", **_named(peer), how=peer.lost, error=error) for peer in lost]
    left = [(peer, Failure(peer.left, str(peer.said.get("error", "")))) for peer in absent if peer.left]
    own = [(peer, failure) for peer, failure in left if not _caused_elsewhere(failure)]
    if own:
        return [problem("worker_failed", **_named(peer), error=str(failure)) for peer, failure in own]
    if ended is not None and not _caused_elsewhere(ended):
        return []
    failures = [failure for failure in (ended, *(failure for _, failure in left)) if failure is not None]
    hung = not failures or any(failure.kind in (TIMED_OUT, STOPPED) for failure in failures)
    stages = {peer.rank: peer.stage or START for peer in group.peers}
    stages[group.settings.rank] = END if ended is None else group.state.get("stage", START)
    least = min(stages.values(), key=STAGES.index)
    if hung and set(stages.values()) != {least}:
        # The others wait for those that are not as far as they are.
        behind = [(rank, group.settings.addresses[rank]) for rank in sorted(stages) if stages[rank] == least]
        told: dict[str, Any] = {"stage": least, "seconds": _TRAIN_S}
        return [problem("worker_hangs", rank=rank, address=address, **told) for rank, address in behind]
    chosen, used = evidence["nccl_interface"], {group.own_address(peer) for peer in group.peers} - {None}
    if chosen is not None and used and chosen["address"] not in used:
        # NCCL used another interface than the one over which the workers have met.
        address = min(map(str, used))
        wanted = {"wanted": workers.with_address(address), "wanted_address": address}
        return [problem("nccl_wrong_interface", rank=group.settings.rank, **chosen, **wanted)]
    shared = {name: evidence[name] for name in ("workers", "communication")}
    if hung:
        return [problem("collective_hangs", **shared, seconds=_TRAIN_S)]
    return [problem("collective_failed", **shared, error=str(failures[0]))]


def _named(peer: Peer) -> dict[str, Any]:
    return {"rank": peer.rank, "address": peer.address, "stage": peer.stage or START}


def _caused_elsewhere(failure: Failure) -> bool:
    if failure.kind == SIGNAL:
        # TensorFlow's coordination service aborts the process when another worker has gone.
        return failure.detail == "SIGABRT"
    if failure.kind == EXCEPTION:
        return _CAUSED_ELSEWHERE.match(failure.detail) is not None
    return failure.kind in (TIMED_OUT, STOPPED)


def _judged_step(group: Group, evidence: dict[str, Any]) -> Result:
    step, count, communication = (evidence[name] for name in ("step", "workers", "communication"))
    devices, difference = f"{count} workers", step["largest_difference"]
    problems = []
    if not difference <= step["tolerance"]:
        compared = {"difference": difference, "tolerance": step["tolerance"]}
        problems.append(problem("gradients_differ", workers=count, **compared))
    if any(peer.said.get("weights") != step["weights"] for peer in group.peers) or not step["replicas_equal"]:
        problems.append(problem("replicas_differ", devices=devices))
    over_nccl = step["collectives"] == ["nccl"] and evidence["nccl_interface"]
    if communication == "NCCL" and not over_nccl:
        problems.append(problem("nccl_not_used", devices=devices))
    problems += training.not_falling(step["losses"], f"MultiWorkerMirroredStrategy on {devices}")
    told = {"workers": count, "replicas": step["replicas"], "communication": communication}
    return judged(problems, statement("workers_agree", **told, difference=difference), evidence)


# In the fresh interpreter of each worker, all at the same time.


def train(tf: Any, replicas: int) -> Iterator[dict[str, Any]]:
    """Train together, and compute the same steps alone. Runs in a fresh interpreter with `TF_CONFIG`."""
    yield {"stage": CONNECT}
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.NCCL if gpus(tf) else kinds.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    yield {"stage": TRAIN}
    step = _steps(tf, strategy, EXAMPLES * replicas)
    yield {"step": step}
    yield {"stage": END}
    # The others may still need what this process holds. Whoever started it knows when they are done.
    while True:
        time.sleep(1)


def digest_of(batch: list[tuple[int, list[float]]]) -> str:
    packed = b"".join(struct.pack(f"<i{_FEATURES}f", label, *features) for label, features in batch)
    return hashlib.sha256(packed).hexdigest()


def _steps(tf: Any, strategy: Any, examples: int) -> dict[str, Any]:
    features, labels = _tensors(tf, examples)
    step, given, weights = _replicated(tf, strategy, features, labels)
    copies: Any = strategy.experimental_local_results
    alone = tf.function(functools.partial(_two_layers, tf, features, labels, examples), autograph=False)
    losses, differences, seconds = [], [], []
    for _ in range(_COMPARED):
        _, *expected = alone([tf.identity(copies(weight)[0]) for weight in weights])
        start = time.perf_counter()
        loss, *found = (copies(value)[0].numpy() for value in step(*given))
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss))
        differences += [training.largest_share(left, right.numpy()) for left, right in zip(found, expected)]
    final = [[copy.numpy() for copy in copies(weight)] for weight in weights]
    operations = step.get_concrete_function(*given).graph.get_operations()
    reductions = [operation for operation in operations if operation.type.startswith("CollectiveReduce")]
    # How they are to communicate, such as `ring` or `nccl`.
    hints = {operation.get_attr("communication_hint").decode() for operation in reductions}
    return {
        "replicas": strategy.num_replicas_in_sync,
        "losses": losses,
        "largest_difference": max(differences),
        "tolerance": tolerance(precision(tf), _ROUNDINGS, examples, sums_only=True),
        "replicas_equal": all(bool((copy == each[0]).all()) for each in final for copy in each),
        "weights": hashlib.sha256(b"".join(each[0].tobytes() for each in final)).hexdigest(),
        "collectives": sorted(hints),
        "step_s": min(seconds),
    }
