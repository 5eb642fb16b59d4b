"""Can several machines train together, and get the same gradients as one?

`MultiWorkerMirroredStrategy` over the workers that the environment names (`workers`): NCCL between GPUs, gRPC
on machines without. Every worker runs this check at the same time. It computes the gradients of the whole
batch by itself, and compares them with those that all workers computed together, each from its part.

No certificate requires it. A certificate is about one image on one machine, and would otherwise depend on a
second machine, on the network between the two and on whoever starts them; most runs have only one. Without a
second worker the check is skipped.
"""

import json
import os
import re
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...problems import problem, statement
from .. import child, training, workers
from ..check import FAIL, FULL, TENSORFLOW, Check, Context, Result, judged, skipped
from ..child import EXCEPTION, SIGNAL, STOPPED, TIMED_OUT, Answer, Failure
from ..joint_training import END, EXAMPLES, STAGES, START, batch_of, digest_of, train
from ..tensorflow_devices import gpus
from ..workers import Group, Peer, Settings

Problems = List[Dict[str, Any]]
#: Seconds for TensorFlow's import, its connections and the steps.
_TRAIN_S = 240.0
#: Seconds in which TensorFlow may report by itself that a worker has gone (it notices after ten), and seconds
#: to learn how the others ended.
_GRACE_S, _PARTING_S = 15.0, 5.0
#: Exceptions that TensorFlow raises because of another worker. Other exceptions are a worker's own.
_CAUSED_ELSEWHERE = re.compile(r"(Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b|.*\b(NCCL|nccl)\b")


def _run(context: Context) -> Result:
    try:
        chosen = workers.settings(os.environ)
    except ValueError as error:
        return Result(FAIL, None, [problem("worker_settings_wrong", error=str(error))])
    if chosen is None:
        return skipped(statement("no_other_worker"))
    return _measured(chosen, context.tensorflow)


def _measured(chosen: Settings, tf: Any) -> Result:
    found = len(gpus(tf))
    hello = {
        "workers": list(chosen.addresses),
        "tensorflow": tf.__version__,
        "devices": f"{found} GPU" if found else "CPU",
        "data": digest_of(batch_of(EXAMPLES)),
    }
    evidence: Dict[str, Any] = {
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
        result = _together(group, hello, evidence) if joined else None
        evidence["ranks"] = [_told(peer) for peer in group.peers]
        return result or Result(FAIL, None, group.absent(), evidence)


def _told(peer: Peer) -> Dict[str, Any]:
    hello = peer.hello or {}
    told = {name: hello.get(name) for name in ("tensorflow", "devices")}
    # Whoever has finished closes its connections.
    lost = None if peer.stage == END else peer.lost
    return {"rank": peer.rank, "address": peer.address, **told, "stage": peer.stage, "lost": lost}


def _together(group: Group, hello: Dict[str, Any], evidence: Dict[str, Any]) -> Result:
    different = _different(group, hello)
    if different:
        return Result(FAIL, None, different, evidence)
    each = int(hello["devices"].split()[0]) if evidence["device_type"] == "GPU" else 1
    began = time.monotonic()
    answer, ended = _train_with(group, each * evidence["workers"], evidence["device_type"])
    evidence["seconds"]["train"] = time.monotonic() - began
    evidence["step"] = _last(answer.values, "step")
    if evidence["device_type"] == "GPU":
        evidence["nccl_interface"] = workers.nccl(answer.stderr)
    if ended is not None:
        group.tell(left=ended.kind, error=ended.detail)
    _part(group)
    faults = _faults(group, ended, evidence)
    if faults:
        seen = {**evidence, "failure": ended and str(ended), "last_lines": answer.last_lines}
        return Result(FAIL, None, faults, seen)
    if ended is not None:
        return child.broken_off("multi_worker", answer, evidence)
    step = evidence["step"]
    return judged(
        _problems(group, evidence),
        lambda: statement(
            "workers_agree",
            workers=evidence["workers"],
            replicas=step["replicas"],
            communication=evidence["communication"],
            difference=step["largest_difference"],
        ),
        evidence,
    )


def _different(group: Group, hello: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return at most one problem: the first difference between workers in what must be equal."""
    for name, code in (
        ("workers", "workers_with_different_lists"),
        ("tensorflow", "workers_with_different_tensorflow"),
        ("devices", "workers_with_different_devices"),
        ("data", "workers_with_different_data"),
    ):
        found = {group.settings.rank: hello[name]}
        found.update({peer.rank: (peer.hello or {}).get(name) for peer in group.peers})
        if any(value != hello[name] for value in found.values()):
            each = [{"rank": rank, "value": _short(found[rank])} for rank in sorted(found)]
            return [problem(code, found=each)]
    return []


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _last(values: List[Dict[str, Any]], name: str) -> Any:
    return next((value[name] for value in reversed(values) if name in value), None)


def _train_with(group: Group, replicas: int, device_type: str) -> Tuple[Answer, Optional[Failure]]:
    """Train in a fresh interpreter while attending to the others. Return its answer, and its failure."""
    chosen = group.settings
    cluster = {
        "cluster": {"worker": list(chosen.addresses)},
        "task": {"type": "worker", "index": chosen.rank},
    }
    environment: Dict[str, Optional[str]] = {"TF_CONFIG": json.dumps(cluster)}
    if device_type == "GPU":
        # Its log says which network interface it chose.
        environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=None)
    group.tell(stage=START)
    said: List[str] = [START]
    missed: List[float] = []

    def attend(values: List[Dict[str, Any]]) -> bool:
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


def _part(group: Group) -> None:
    """Wait a little for the others to say how they ended."""
    end = time.monotonic() + _PARTING_S
    while time.monotonic() < end:
        group.attend()
        if all(peer.lost or peer.left or peer.stage == END for peer in group.peers):
            return
        time.sleep(0.05)


class _Outcome:
    """The end of the joint training. ended: how this worker failed, if it did."""

    def __init__(self, group: Group, ended: Optional[Failure], evidence: Dict[str, Any]) -> None:
        self.group, self.ended, self.evidence = group, ended, evidence
        #: The other workers that did not finish, and why, as far as they said.
        self.absent = [peer for peer in group.peers if peer.stage != END]
        self.left = {
            peer.rank: Failure(peer.left, str(peer.said.get("error", "")))
            for peer in self.absent
            if peer.left
        }
        self.failures = [failure for failure in (ended, *self.left.values()) if failure is not None]

    @property
    def hung(self) -> bool:
        """Return whether workers waited for each other until the time was up."""
        waited = any(failure.kind in (TIMED_OUT, STOPPED) for failure in self.failures)
        return waited or not self.failures


def _all_finished(outcome: _Outcome) -> Optional[Problems]:
    return [] if outcome.ended is None and not outcome.absent else None


def _lost(outcome: _Outcome) -> Optional[Problems]:
    ended = outcome.ended
    said = ended.detail if ended is not None and ended.kind == EXCEPTION else ""
    lost = [peer for peer in outcome.absent if peer.lost and not peer.left]
    return [problem("worker_lost", **_named(peer), how=peer.lost, error=said) for peer in lost] or None


def _others_failed(outcome: _Outcome) -> Optional[Problems]:
    left = outcome.left
    own = [peer for peer in outcome.absent if peer.rank in left and not _caused_elsewhere(left[peer.rank])]
    return [problem("worker_failed", **_named(peer), error=str(left[peer.rank])) for peer in own] or None


def _failed_itself(outcome: _Outcome) -> Optional[Problems]:
    return [] if outcome.ended is not None and not _caused_elsewhere(outcome.ended) else None


def _some_are_behind(outcome: _Outcome) -> Optional[Problems]:
    if not outcome.hung:
        return None
    return _behind(outcome.group, END if outcome.ended is None else outcome.group.stage or START) or None


def _other_interface(outcome: _Outcome) -> Optional[Problems]:
    return _wrong_interface(outcome.group, outcome.evidence) or None


def _collective(outcome: _Outcome) -> Optional[Problems]:
    shared = {name: outcome.evidence[name] for name in ("workers", "communication")}
    if outcome.hung:
        return [problem("collective_hangs", **shared, seconds=_TRAIN_S)]
    return [problem("collective_failed", **shared, error=str(outcome.failures[0]))]


#: What may have kept the workers from training together, in the order in which it is looked for. The first
#: rule that does not return None decides; an empty list means that nothing did, or only this worker itself.
_RULES: Tuple[Callable[[_Outcome], Optional[Problems]], ...] = (
    _all_finished,
    _lost,
    _others_failed,
    _failed_itself,
    _some_are_behind,
    _other_interface,
    _collective,
)


def _faults(group: Group, ended: Optional[Failure], evidence: Dict[str, Any]) -> Problems:
    """Return what kept the workers from training together; empty if nothing did, or only this worker itself.

    ended: how this worker's training failed, if it did.
    """
    outcome = _Outcome(group, ended, evidence)
    found = (rule(outcome) for rule in _RULES)
    return next(problems for problems in found if problems is not None)


def _named(peer: Peer) -> Dict[str, Any]:
    return {"rank": peer.rank, "address": peer.address, "stage": peer.stage or START}


def _caused_elsewhere(failure: Failure) -> bool:
    """Return whether another worker, or the network, may have made this worker fail like this."""
    if failure.kind == SIGNAL:
        # TensorFlow's coordination service aborts the process when another worker has gone.
        return failure.detail == "SIGABRT"
    if failure.kind == EXCEPTION:
        return _CAUSED_ELSEWHERE.match(failure.detail) is not None
    return failure.kind in (TIMED_OUT, STOPPED)


def _behind(group: Group, stage: str) -> List[Dict[str, Any]]:
    """Return a problem for each worker for which the others wait; empty if all are equally far."""
    rank = group.settings.rank
    stages = {peer.rank: peer.stage or START for peer in group.peers}
    stages[rank] = stage
    least = min(stages.values(), key=STAGES.index)
    if set(stages.values()) == {least}:
        return []
    return [
        problem(
            "worker_hangs",
            rank=number,
            address=group.settings.addresses[number],
            stage=least,
            seconds=_TRAIN_S,
        )
        for number in sorted(stages)
        if stages[number] == least
    ]


def _wrong_interface(group: Group, evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return a problem if NCCL used another interface than the one over which the workers have met."""
    chosen = evidence["nccl_interface"]
    used = {group.own_address(peer) for peer in group.peers} - {None}
    if chosen is None or not used or chosen["address"] in used:
        return []
    address = sorted(map(str, used))[0]
    return [
        problem(
            "nccl_wrong_interface",
            rank=group.settings.rank,
            interface=chosen["interface"],
            address=chosen["address"],
            wanted=workers.with_address(address),
            wanted_address=address,
        )
    ]


def _problems(group: Group, evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    step = evidence["step"]
    devices = f"{evidence['workers']} workers"
    found = []
    difference = step["largest_difference"]
    if not difference <= step["tolerance"]:
        compared = {"difference": difference, "tolerance": step["tolerance"]}
        found.append(problem("gradients_differ", workers=evidence["workers"], **compared))
    if any(peer.said.get("weights") != step["weights"] for peer in group.peers) or not step["replicas_equal"]:
        found.append(problem("replicas_differ", devices=devices))
    if evidence["communication"] == "NCCL" and not (
        step["collectives"] == ["nccl"] and evidence["nccl_interface"]
    ):
        found.append(problem("nccl_not_used", devices=devices))
    return found + training.not_falling(step["losses"], f"MultiWorkerMirroredStrategy on {devices}")


CHECK = Check(
    id="multi_worker",
    title="Can several machines train together, and get the same gradients as one?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=900,
    required=False,
    depth=FULL,
)
