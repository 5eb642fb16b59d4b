"""The state of a unit, read from its Job and its pods.

The pods here are as the API of Kubernetes 1.20 to 1.33 writes them.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from validator.fleet.kubernetes_objects import START_LIMIT_S, state_of
from validator.fleet.protocol import Fault, Phase, State

Json = dict[str, Any]
NOW = datetime.datetime(2026, 11, 22, 23, 0, tzinfo=datetime.timezone.utc)
DISK = "The node was low on resource: ephemeral-storage. Container probe was using 9Gi."


def at(seconds: float) -> str:
    return (NOW + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(*conditions: tuple[str, str, str]) -> Json:
    return {
        "metadata": {"name": "tfm-0123456789abcdef"},
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": message}
                for kind, reason, message in conditions
            ]
        },
    }


def pod(
    phase: str,
    state: Json | None = None,
    *,
    started: float = -10,
    deleted: float | None = None,
    node: str = "n",
    **status: Any,
) -> Json:
    containers = [{"state": state}] if state is not None else []
    metadata: Json = {"name": "p"} if deleted is None else {"name": "p", "deletionTimestamp": at(deleted)}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {"phase": phase, "startTime": at(started), "containerStatuses": containers, **status},
    }


def ended(reason: str, message: str = "", code: int = 1) -> Json:
    return {"terminated": {"reason": reason, "message": message, "exitCode": code}}


def waiting(reason: str, message: str = "") -> Json:
    return {"waiting": {"reason": reason, "message": message}}


RUNNING: Json = {"running": {"startedAt": at(-5)}}
FAILED = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
LATE = -START_LIMIT_S - 1


def disruption(reason: str) -> Json:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(
    ("phase", "job_", "pods"),
    [
        (Phase.WAITING, job(), []),
        (Phase.WAITING, job(("Suspended", "JobSuspended", "")), []),
        (Phase.WAITING, job(), [pod("Pending", node="")]),
        (Phase.WAITING, job(), [pod("Pending", waiting("ContainerCreating"), started=LATE)]),
        (Phase.WAITING, job(), [pod("Pending", waiting("ImagePullBackOff"))]),
        (Phase.RUNNING, job(), [pod("Running", RUNNING)]),
        (Phase.ENDED, job(("Complete", "", "")), [pod("Succeeded", ended("Completed", code=0))]),
        # The pod says it before the controller does.
        (Phase.ENDED, job(), [pod("Succeeded", ended("Completed", code=0))]),
        # `inside.py` exits with 1 if there is no report, and says why in its output.
        (Phase.ENDED, job(FAILED), [pod("Failed", ended("Error", '{"report": null}'))]),
        # It was ended for its memory after the report was written.
        (Phase.ENDED, job(FAILED), [pod("Failed", ended("OOMKilled", '{"report": "00"}', 137))]),
        # The pod was removed after it ended.
        (Phase.ENDED, job(("Complete", "", "")), []),
        # Deleted by an operator: on its way out, with another in its place.
        (Phase.WAITING, job(), [pod("Running", RUNNING, deleted=3)]),
        (Phase.RUNNING, job(), [pod("Running", RUNNING, deleted=3), pod("Running", RUNNING)]),
        # Two ran: one was lost, and the other one came to its end.
        (Phase.ENDED, job(), [pod("Running", RUNNING, deleted=-60), pod("Succeeded", ended("Completed"))]),
        (Phase.ENDED, job(), [pod("Failed", reason="NodeLost"), pod("Succeeded", ended("Completed"))]),
    ],
)
def test_states(phase: Phase, job_: Json, pods: list[Json]) -> None:
    assert state_of(job_, pods, NOW).phase is phase


@pytest.mark.parametrize(
    ("fault", "job_", "pods"),
    [
        (Fault.DEADLINE, job(("Failed", "DeadlineExceeded", "Job was active longer than")), []),
        (Fault.DEADLINE, job(FAILED), [pod("Failed", reason="DeadlineExceeded")]),
        (Fault.NODE_LOST, job(), [pod("Running", RUNNING, deleted=-6)]),
        (Fault.NODE_LOST, job(), [pod("Running", RUNNING, deleted=-6), pod("Pending", node="")]),
        (Fault.NODE_LOST, job(), [pod("Unknown", RUNNING)]),
        (Fault.NODE_LOST, job(FAILED), [pod("Failed", ended("Unknown", code=255))]),
        (Fault.NODE_LOST, job(FAILED), [pod("Failed", ended("ContainerStatusUnknown", code=137))]),
        (Fault.NODE_LOST, job(FAILED), [pod("Failed", reason="NodeShutdown")]),
        (Fault.NODE_LOST, job(FAILED), [pod("Failed", **disruption("DeletionByTaintManager"))]),
        (Fault.PREEMPTED, job(FAILED), [pod("Failed", **disruption("PreemptionByScheduler"))]),
        (Fault.PREEMPTED, job(FAILED), [pod("Failed", reason="Preempting")]),
        (Fault.DISK_FULL, job(FAILED), [pod("Failed", reason="Evicted", message=DISK)]),
        (
            Fault.OUT_OF_MEMORY,
            job(FAILED),
            [pod("Failed", reason="Evicted", message="The node was low on resource: memory.")],
        ),
        (Fault.OUT_OF_MEMORY, job(FAILED), [pod("Failed", ended("OOMKilled", code=137))]),
        (Fault.NOT_STARTED, job(FAILED), [pod("Failed", ended("StartError", "no such file", 128))]),
        (Fault.NOT_STARTED, job(), [pod("Pending", waiting("CreateContainerConfigError"), started=LATE)]),
        (
            Fault.IMAGE_MISSING,
            job(),
            [pod("Pending", waiting("ErrImagePull", "failed to resolve: x: not found"), started=LATE)],
        ),
        (
            Fault.PULL_FAILED,
            job(),
            [pod("Pending", waiting("ImagePullBackOff", "Back-off pulling image"), started=LATE)],
        ),
        (
            Fault.DISK_FULL,
            job(),
            [pod("Pending", waiting("ErrImagePull", "write: no space left on device"), started=LATE)],
        ),
    ],
)
def test_faults(fault: Fault, job_: Json, pods: list[Json]) -> None:
    found = state_of(job_, pods, NOW)
    assert (found.phase, found.fault) == (Phase.LOST, fault)


def test_the_scheduler_says_why_a_pod_waits() -> None:
    message = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    found = state_of(job(), [pod("Pending", node="", conditions=conditions)], NOW)
    assert found == State(Phase.WAITING, message)
