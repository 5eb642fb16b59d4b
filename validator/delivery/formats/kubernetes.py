"""Write the objects for Kubernetes: a Job for a command, or a Pod for a terminal or JupyterLab."""

from __future__ import annotations

from typing import Any

from ...assemble.configuration import USER
from ..start import (
    CACHE_WHY,
    SHARED_MEMORY_GIB,
    SHARED_MEMORY_WHY,
    WORKSPACE,
    Start,
    cache_variables,
)
from .text import Noted, comments, header, sentence, to_yaml

#: A GPU as Kubernetes counts it, and the taint that the GPU operator sets.
GPU_RESOURCE = "nvidia.com/gpu"
#: Labels of GPU Feature Discovery: the driver's branch, and the two numbers of the compute capability.
DRIVER_LABEL = "nvidia.com/cuda.driver-version.major"
CAPABILITY_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
_NAME = "tensorflow"
_CLAIM = f"{_NAME}-workspace"
_SIZE = "20Gi"


def write(start: Start) -> str:
    """Return the objects."""
    kind = "job" if start.command else "pod"
    how = [f"Start it with: kubectl apply -f FILE. To start it again: kubectl delete {kind} {_NAME}."]
    if start.command:
        how.append(f"Its output: kubectl logs --follow job/{_NAME}")
    elif start.port is not None:
        how.append(
            f"JupyterLab: kubectl port-forward pod/{_NAME} {start.port}; its token: kubectl logs {_NAME}"
        )
    else:
        how.append(f"Its terminal: kubectl attach -it {_NAME}")
    documents = [_claim()] if start.directory is not None else []
    documents.append(_job(start) if start.command else _pod(start))
    top = "".join(f"{line}\n" for line in comments(header(start.image, *how)))
    return top + "---\n".join(map(to_yaml, documents))


def _claim() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _CLAIM},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": _SIZE}},
        },
    }


def _job(start: Start) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _NAME},
        "spec": {
            "backoffLimit": Noted(0, "A command that fails is not started again."),
            "template": {"spec": {"restartPolicy": "Never", **_spec(start)}},
        },
    }


def _pod(start: Start) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME},
        "spec": {"restartPolicy": "Never", **_spec(start)},
    }


def _spec(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {
        "automountServiceAccountToken": Noted(False, "The program gets no access to the cluster."),
        "securityContext": _security(start),
    }
    if start.host is not None:
        found["nodeSelector"] = Noted(
            _labels(start),
            "Nodes like this host, by the labels of GPU Feature Discovery. If the cluster does not run"
            " it, use the labels that the cluster has.",
        )
        found["tolerations"] = Noted(
            [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
            "Many clusters keep other pods away from nodes with GPUs.",
        )
    found["containers"] = [_container(start)]
    found["volumes"] = _volumes(start)
    return found


def _security(start: Start) -> Noted:
    """Return who the pod runs as. Root may not run it, so the image's own user does then."""
    own = {"runAsUser": start.user.uid, "runAsGroup": start.user.gid} if start.user.uid else {}
    group = Noted(
        start.user.gid if own else USER, f"{WORKSPACE} belongs to this group, which can write there."
    )
    return Noted(
        {
            "runAsNonRoot": True,
            **own,
            "fsGroup": group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "Your own number, so that files in the volume belong to you."
        if own
        else "The image's own user, because a pod should not run as root.",
    )


def _labels(start: Start) -> dict[str, str]:
    assert start.host is not None
    labels = {DRIVER_LABEL: str(start.host.driver.branch)}
    if len(start.host.capabilities) == 1:
        [capability] = start.host.capabilities
        labels |= dict(zip(CAPABILITY_LABELS, (str(capability.major), str(capability.minor)), strict=True))
    return labels


def _container(start: Start) -> dict[str, Any]:
    caches = cache_variables(WORKSPACE)
    variables = {"HOME": "/tmp", **caches, **start.environment}
    whys = {
        "HOME": "In the image, your user may have no home directory.",
        next(iter(caches)): sentence(CACHE_WHY),
    }
    entries: list[Any] = []
    for name, value in variables.items():
        entry = {"name": name, "value": _text(value)}
        entries.append(Noted(entry, whys[name]) if name in whys.keys() - start.environment.keys() else entry)
    found: dict[str, Any] = {"name": _NAME, "image": start.image.reference}
    if start.command:
        found["args"] = Noted(
            [_text(word) for word in start.command],
            "`command` would replace the image's entry point, which checks the driver and the GPUs.",
        )
    elif start.port is not None:
        found["ports"] = [{"containerPort": start.port}]
    else:
        found |= {"stdin": True, "tty": True}
    found |= {
        "workingDir": WORKSPACE,
        "env": entries,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if start.host is not None:
        found["resources"] = {"limits": {GPU_RESOURCE: str(start.gpu_count)}}
    mounts = [{"name": "workspace", "mountPath": WORKSPACE}]
    if start.host is not None:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    found["volumeMounts"] = mounts
    return found


def _volumes(start: Start) -> list[Any]:
    workspace: Any = {"name": "workspace", "emptyDir": {}}
    note = "The files are gone with the pod. --mount writes a volume that stays."
    if start.directory is not None:
        workspace = {"name": "workspace", "persistentVolumeClaim": {"claimName": _CLAIM}}
        note = (
            "The nodes don't have your directory. Copy your files into this volume, for example with"
            " kubectl cp, or name a claim that has them."
        )
    volumes: list[Any] = [Noted(workspace, note)]
    if start.host is not None:
        memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}
        volumes.append(Noted({"name": "shared-memory", "emptyDir": memory}, sentence(SHARED_MEMORY_WHY)))
    return volumes


def _text(value: str) -> str:
    """Return a text in which Kubernetes replaces no variable (its documentation of args and env: `$$`)."""
    return value.replace("$", "$$")
