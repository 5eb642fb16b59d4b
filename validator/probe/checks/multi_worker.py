"""Can several machines train together, and get the same gradients as one?

`MultiWorkerMirroredStrategy` over the workers that the environment names (`workers`): NCCL between GPUs, gRPC
on machines without. Every worker runs this check at the same time. It computes the gradients of the whole
batch by itself, and compares them with those that all workers computed together, each from its part.

No certificate requires it. A certificate is about one image on one machine, and would otherwise depend on a
second machine, on the network between the two and on whoever starts them; most runs have only one. Without a
second worker the check is skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

from ...problems import problem, statement
from .. import child, training, workers
from ..check import FAIL, FULL, TENSORFLOW, Context, Result, check, judged, skipped
from ..child import EXCEPTION, SIGNAL, STOPPED, TIMED_OUT, Answer, Failure
from ..tensorflow_devices import gpus
from ..training import precision, tolerance
from ..workers import Group, Peer, Settings

Problems = list[dict[str, Any]]
#: How far a worker is, in this order (the vocabulary `worker_stage`).
START, CONNECT, TRAIN, END = STAGES = ("start", "connect", "train", "end")
#: Seconds for TensorFlow's import, its connections and the steps.
_TRAIN_S = 240.0
#: Seconds in which TensorFlow may report by itself that a worker has gone (it notices after ten), and seconds
#: to learn how the others ended.
_GRACE_S, _PARTING_S = 15.0, 5.0
#: Exceptions that TensorFlow raises because of another worker. Other exceptions are a worker's own.
_CAUSED_ELSEWHERE = re.compile(r"(Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b|.*\b(NCCL|nccl)\b")
#: The steps that are compared, and the examples for each replica in a global batch.
_STEPS, EXAMPLES = 3, 16
_FEATURES, _HIDDEN, _CLASSES = 64, 32, 10
_LEARNING_RATE = 0.1
#: For the tolerance of a gradient, as a share of the largest in the same tensor: two products, and in the
#: gradient two more, together and alone. Sums over workers are sums in another order.
_ROUNDINGS = 2 * 4 * 2


@check(
    "Can several machines train together, and get the same gradients as one?",
    TENSORFLOW,
    limit_s=900,
    depth=FULL,
)
def multi_worker(context: Context) -> Result:
    try:
        chosen = workers.settings(os.environ)
    except ValueError as error:
        return Result(FAIL, None, [problem("worker_settings_wrong", error=str(error))])
    if chosen is None:
        return skipped(statement("no_other_worker"))
    return train_with(chosen, context.tensorflow)


def train_with(chosen: Settings, tf: Any) -> Result:
    """Meet the other workers, train with them, and judge that."""
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
        evidence["ranks"] = [
            {
                "rank": peer.rank,
                "address": peer.address,
                **{name: (peer.hello or {}).get(name) for name in ("tensorflow", "devices")},
                "stage": peer.stage,
                # Whoever has finished closes its connections.
                "lost": None if peer.stage == END else peer.lost,
            }
            for peer in group.peers
        ]
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

    for name, code in (
        ("workers", "workers_with_different_lists"),
        ("tensorflow", "workers_with_different_tensorflow"),
        ("devices", "workers_with_different_devices"),
        ("data", "workers_with_different_data"),
    ):
        found = {group.settings.rank: hello[name]}
        found.update({peer.rank: (peer.hello or {}).get(name) for peer in group.peers})
        if any(value != hello[name] for value in found.values()):
            return [
                problem(code, found=[{"rank": rank, "value": short(found[rank])} for rank in sorted(found)])
            ]
    return []


def _last(values: list[dict[str, Any]], name: str) -> Any:
    """Return the newest value of a name, or None."""
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
    found = _behind(group, END if ended is None else group.stage or START) if hung else []
    if found:
        return found
    chosen, used = evidence["nccl_interface"], {group.own_address(peer) for peer in group.peers} - {None}
    if chosen is not None and used and chosen["address"] not in used:
        # NCCL used another interface than the one over which the workers have met.
        address = sorted(map(str, used))[0]
        told = {"interface": chosen["interface"], "address": chosen["address"]}
        wanted = {"wanted": workers.with_address(address), "wanted_address": address}
        return [problem("nccl_wrong_interface", rank=group.settings.rank, **told, **wanted)]
    shared = {name: evidence[name] for name in ("workers", "communication")}
    if hung:
        return [problem("collective_hangs", **shared, seconds=_TRAIN_S)]
    return [problem("collective_failed", **shared, error=str(failures[0]))]


def _named(peer: Peer) -> dict[str, Any]:
    return {"rank": peer.rank, "address": peer.address, "stage": peer.stage or START}


def _caused_elsewhere(failure: Failure) -> bool:
    """Return whether another worker, or the network, may have made this worker fail like this."""
    if failure.kind == SIGNAL:
        # TensorFlow's coordination service aborts the process when another worker has gone.
        return failure.detail == "SIGABRT"
    if failure.kind == EXCEPTION:
        return _CAUSED_ELSEWHERE.match(failure.detail) is not None
    return failure.kind in (TIMED_OUT, STOPPED)


def _behind(group: Group, stage: str) -> Problems:
    """Return a problem for each worker for which the others wait; empty if all are equally far."""
    stages = {peer.rank: peer.stage or START for peer in group.peers}
    stages[group.settings.rank] = stage
    least = min(stages.values(), key=STAGES.index)
    if set(stages.values()) == {least}:
        return []
    addresses = group.settings.addresses
    behind = [rank for rank in sorted(stages) if stages[rank] == least]
    return [
        problem("worker_hangs", rank=rank, address=addresses[rank], stage=least, seconds=_TRAIN_S)
        for rank in behind
    ]


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
    passed = statement(
        "workers_agree",
        workers=count,
        replicas=step["replicas"],
        communication=communication,
        difference=difference,
    )
    return judged(problems, passed, evidence)


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
    step = _steps(tf, strategy, batch_of(EXAMPLES * replicas))
    yield {"step": step}
    yield {"stage": END}
    # The others may still need what this process holds. Whoever started it knows when they are done.
    while True:
        time.sleep(1)


def batch_of(examples: int) -> list[tuple[int, list[float]]]:
    """Return labels with features. Made without TensorFlow and without functions whose last bit depends on
    the machine, so that every worker has the same; a longer batch begins with the shorter one."""
    numbers = random.Random(1)
    prototypes = [[numbers.random() - 0.5 for _ in range(_FEATURES)] for _ in range(_CLASSES)]
    return [
        (row % _CLASSES, [value + 0.1 * numbers.random() for value in prototypes[row % _CLASSES]])
        for row in range(examples)
    ]


def digest_of(batch: list[tuple[int, list[float]]]) -> str:
    packed = b"".join(struct.pack(f"<i{_FEATURES}f", label, *features) for label, features in batch)
    return hashlib.sha256(packed).hexdigest()


def _steps(tf: Any, strategy: Any, batch: list[tuple[int, list[float]]]) -> dict[str, Any]:
    labels, features = tf.constant([label for label, _ in batch]), tf.constant([row for _, row in batch])
    numbers = random.Random(2)
    starts = [
        [[0.5 * (numbers.random() - 0.5) for _ in range(columns)] for _ in range(rows)]
        for rows, columns in ((_FEATURES, _HIDDEN), (_HIDDEN, _CLASSES))
    ]
    weights = training.shared_weights(tf, strategy, starts)
    copies: Any = strategy.experimental_local_results

    def on_each(inputs: Any, wanted: Any) -> Any:
        values = [tf.identity(weight) for weight in weights]
        loss, found = training.two_layers(tf, inputs, wanted, values, len(batch))
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, [loss, *found])
        for weight, gradient in zip(weights, found):
            # They are summed over the replicas, as the variable's aggregation says.
            weight.assign_sub(_LEARNING_RATE * gradient)
        return total

    def gradients(values: Any) -> Any:
        return training.two_layers(tf, features, labels, values, len(batch))[1]

    step = tf.function(lambda inputs, wanted: strategy.run(on_each, args=(inputs, wanted)), autograph=False)
    alone = tf.function(gradients, autograph=False)
    inputs, wanted = (training.shares(strategy, whole, len(batch)) for whole in (features, labels))
    losses, differences, seconds = [], [], []
    for _ in range(_STEPS):
        expected = alone([tf.identity(copies(weight)[0]) for weight in weights])
        start = time.perf_counter()
        loss, *found = (copies(value)[0].numpy() for value in step(inputs, wanted))
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss))
        differences += [training.largest_share(left, right.numpy()) for left, right in zip(found, expected)]
    final = [[copy.numpy() for copy in copies(weight)] for weight in weights]
    operations = step.get_concrete_function(inputs, wanted).graph.get_operations()
    # How the graph's reductions are to communicate, such as `ring` or `nccl`.
    hints = {
        operation.get_attr("communication_hint").decode()
        for operation in operations
        if operation.type.startswith("CollectiveReduce")
    }
    return {
        "replicas": strategy.num_replicas_in_sync,
        "losses": losses,
        "largest_difference": max(differences),
        "tolerance": tolerance(precision(tf), _ROUNDINGS, len(batch), sums_only=True),
        "replicas_equal": all(bool((copy == each[0]).all()) for each in final for copy in each),
        "weights": hashlib.sha256(b"".join(each[0].tobytes() for each in final)).hexdigest(),
        "collectives": sorted(hints),
        "step_s": min(seconds),
    }
