"""The state of a unit, from its Job and its pods as the API describes them.

A Job replaces a pod whose node was lost, or that somebody deleted, also with a `backoffLimit` of 0, and the
lost one may still run. So a pod that is on its way out counts only if its node does not answer.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from .protocol import Fault, Phase, State

Json = Mapping[str, Any]

#: Seconds in which an image has to be found and pulled after the first error, and a container has to be
#: created.
START_LIMIT_S = 300.0
#: Seconds after which a Job without a pod is asked why.
NO_POD_LIMIT_S = 30.0
#: A pod that is deleted ends by its deletion time. One that is there so much later has no kubelet.
_DELETION_S = 5.0

_PULLING = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RegistryUnavailable",
)
_CREATING = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff")
#: Why a pod failed, in its status or in its condition DisruptionTarget.
_REASONS = {
    "DeadlineExceeded": Fault.DEADLINE,
    "NodeLost": Fault.NODE_LOST,
    "NodeShutdown": Fault.NODE_LOST,
    "Shutdown": Fault.NODE_LOST,
    "Terminated": Fault.NODE_LOST,
    "DeletionByTaintManager": Fault.NODE_LOST,
    "DeletionByPodGC": Fault.NODE_LOST,
    "TerminationByKubelet": Fault.NODE_LOST,
    "Preempting": Fault.PREEMPTED,
    "PreemptionByScheduler": Fault.PREEMPTED,
    "PreemptionByKubeScheduler": Fault.PREEMPTED,
    "EvictionByEvictionAPI": Fault.PREEMPTED,
    "UnexpectedAdmissionError": Fault.NOT_STARTED,
    "NodeAffinity": Fault.NOT_STARTED,
}
#: Why a container ended, other than by its own exit.
_ENDS = {
    "OOMKilled": Fault.OUT_OF_MEMORY,
    "StartError": Fault.NOT_STARTED,
    "ContainerCannotRun": Fault.NOT_STARTED,
    "ContainerStatusUnknown": Fault.NODE_LOST,
    "Unknown": Fault.NODE_LOST,
}
_DISK = ("ephemeral", "disk", "no space left")


def state_of(job: Json, pods: Sequence[Json], now: datetime.datetime) -> State:
    """Return the state of a unit.

    pods: those of the Job, also those that are on their way out. now: the API server's clock; UTC.
    """
    failed = conditions_of(job).get("Failed")
    if failed and failed[0] == "DeadlineExceeded":
        return State(Phase.LOST, failed[1], fault=Fault.DEADLINE)
    done = [pod for pod in pods if pod["status"].get("phase") in ("Succeeded", "Failed")]
    finished = [pod for pod in done if not _is_deleted(pod)]
    if finished:
        return min((_of_finished(pod) for pod in finished), key=lambda state: state.phase is Phase.LOST)
    if failed or "Complete" in conditions_of(job):
        # The job has ended, and its pod was removed since.
        return State(Phase.ENDED, failed[1] if failed else "")
    living = [pod for pod in pods if not _is_deleted(pod)]
    for pod in pods:
        if _is_abandoned(pod, now):
            return State(
                Phase.LOST, _detail(pod) or "its node does not answer", node_of(pod), Fault.NODE_LOST
            )
    if living:
        return _of_living(living[-1], now)
    if "Suspended" in conditions_of(job):
        return State(Phase.WAITING, "the queue has not admitted it")
    return State(Phase.WAITING, "its pod is being removed" if pods else "it has no pod yet")


def conditions_of(item: Json) -> dict[str, tuple[str, str]]:
    """Return reason and message of the conditions that are true, by type."""
    return {
        condition["type"]: (condition.get("reason") or "", condition.get("message") or "")
        for condition in item.get("status", {}).get("conditions") or ()
        if condition.get("status") == "True"
    }


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def container_of(pod: Json) -> Json:
    """Return the status of the pod's only container; empty if there is none yet."""
    statuses: Sequence[Json] = pod["status"].get("containerStatuses") or ({},)
    return statuses[0]


def terminated(pod: Json) -> Json:
    """Return how the pod's container ended; empty if it did not."""
    found: Json = container_of(pod).get("state", {}).get("terminated") or {}
    return found


def time_of(text: str | None) -> datetime.datetime | None:
    """Read a time of the API, `2026-11-22T23:00:00Z`."""
    if not text:
        return None
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)


def age_s(item: Json, now: datetime.datetime) -> float:
    created = time_of(item["metadata"].get("creationTimestamp"))
    return (now - created).total_seconds() if created else 0.0


def _is_deleted(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_abandoned(pod: Json, now: datetime.datetime) -> bool:
    """Return True if a pod is being deleted, but its node does not finish it."""
    if pod["status"].get("phase") == "Unknown" or pod["status"].get("reason") == "NodeLost":
        return True
    gone_by = time_of(pod["metadata"].get("deletionTimestamp"))
    if gone_by is None or not node_of(pod):
        return False
    return (now - gone_by).total_seconds() > _DELETION_S


def _of_finished(pod: Json) -> State:
    status, node = pod["status"], node_of(pod)
    if status["phase"] == "Succeeded":
        return State(Phase.ENDED, "", node)
    disruption = conditions_of(pod).get("DisruptionTarget", ("", ""))[0]
    ended = terminated(pod)
    detail = _detail(pod)
    fault = _REASONS.get(disruption) or _REASONS.get(status.get("reason") or "")
    if fault is None and status.get("reason") == "Evicted":
        fault = _evicted(detail)
    # The report may have been written all the same, and then the message has its digest.
    if fault is None and not ended.get("message", "").startswith("{"):
        fault = _ENDS.get(ended.get("reason") or "")
    if fault is None:
        return State(Phase.ENDED, detail, node)
    return State(Phase.LOST, detail, node, fault)


def _evicted(message: str) -> Fault:
    text = message.lower()
    if any(word in text for word in _DISK):
        return Fault.DISK_FULL
    return Fault.OUT_OF_MEMORY if "memory" in text else Fault.PREEMPTED


def _of_living(pod: Json, now: datetime.datetime) -> State:
    node, container = node_of(pod), container_of(pod)
    if container.get("state", {}).get("running"):
        return State(Phase.RUNNING, "", node)
    waiting = container.get("state", {}).get("waiting") or {}
    reason, message = waiting.get("reason") or "", waiting.get("message") or ""
    if reason in (*_PULLING, *_CREATING):
        detail = f"{reason}: {message}".strip(": ")
        began = time_of(pod["status"].get("startTime")) or now
        if (now - began).total_seconds() > START_LIMIT_S:
            return State(Phase.LOST, detail, node, _of_start(reason, message))
        return State(Phase.WAITING, detail, node)
    unscheduled = [
        condition.get("message") or condition.get("reason") or ""
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    return State(Phase.WAITING, unscheduled[0] if unscheduled else reason, node)


def _of_start(reason: str, message: str) -> Fault:
    if any(word in message.lower() for word in _DISK):
        return Fault.DISK_FULL
    if reason in _CREATING:
        return Fault.NOT_STARTED
    absent = "not found" in message.lower() or "manifest unknown" in message.lower()
    return Fault.IMAGE_MISSING if absent or reason == "InvalidImageName" else Fault.PULL_FAILED


def _detail(pod: Json) -> str:
    status, ended = pod["status"], terminated(pod)
    message = ended.get("message") or ""
    parts = [status.get("reason"), status.get("message"), ended.get("reason")]
    # A message that begins so is that of `inside.py`.
    if message and not message.startswith("{"):
        parts.append(message)
    return ": ".join(part for part in parts if part)[:500]
