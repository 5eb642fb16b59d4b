"""The objects that the Kubernetes engine makes: a Job for each unit, and config maps with the probe and the
lock.

The pods meet the *restricted* level of the Pod Security Standards
(https://kubernetes.io/docs/concepts/security/pod-security-standards/). They carry no credentials; the pull
secret stays with the node's kubelet.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..engines.interpreters import START
from ..engines.protocol import ProbeRequest
from ..errors import InputError
from ..model.spec import NO_GPU
from .settings_schema import GPU_RESOURCE, KubernetesPlace
from .units import PREFIX, Unit

Object = dict[str, Any]
#: Files by name.
Files = tuple[tuple[str, bytes], ...]

#: On every object, so that a person can find them all.
MANAGED_BY = {"app.kubernetes.io/managed-by": "tensorflow-gpu-matrix"}
#: The unit's name, on its Job and its pods.
UNIT_LABEL = "tensorflow-gpu-matrix.github.io/unit"
#: The unit's name, on what the tasks of a unit of several have in common.
WORKERS_LABEL = "tensorflow-gpu-matrix.github.io/workers"
#: The port at which the tasks of a unit meet. Each pod has an address of its own.
_PORT = 29500
#: The queue of Kueue (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/).
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
CONTAINER = "probe"
#: Bytes of all files in a config map, by Kubernetes' own limit.
LARGEST_CONFIG_MAP = 1 << 20

_DIRECTORY = "/opt/validator-probe"
_TERMINATION = "/dev/termination-log"
#: `nobody` of most distributions. Kubernetes does not know the number of a user that an image names.
_USER = 65534
#: A lost node's pods are given up after this time. Kubernetes' own default is five minutes.
_UNREACHABLE_S = 15
_GRACE_S = 5
#: Between the limit inside the container and the pod's deadline, for the start and the writing of the report.
_MARGIN_S = 120
#: How long a finished Job can be read: a submitter that died in the night is resumed the next day.
_KEPT_S = 2 * 24 * 60 * 60


def config_maps(request: ProbeRequest) -> tuple[Object, ...]:
    """Return the config maps of a run: the probe, which all units of a night share, and the other files.

    They are named after their content and immutable, so one that exists is the right one. Raises InputError
    if the files are too large.
    """
    return tuple(_config_map(files) for files in _files(request))


def config_map_names(request: ProbeRequest) -> tuple[str, ...]:
    """Return the names of a run's config maps, which is faster than to make them."""
    return tuple(_config_map_name(files) for files in _files(request))


def _files(request: ProbeRequest) -> tuple[Files, ...]:
    probe = (("inside.py", _inside()), ("probe.pyz", request.archive))
    return tuple(files for files in (probe, tuple(sorted(request.files.items()))) if files)


@functools.cache
def _inside() -> bytes:
    return Path(__file__).with_name("inside.py").read_bytes()


@functools.lru_cache(maxsize=256)
def _config_map_name(files: Files) -> str:
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return PREFIX + digest.hexdigest()[:16]


def _config_map(files: Files) -> Object:
    size = sum(len(content) for _, content in files)
    if size > LARGEST_CONFIG_MAP:
        raise InputError(
            f"the files for a pod take {size} bytes: {', '.join(name for name, _ in files)}."
            f" A Kubernetes config map holds at most {LARGEST_CONFIG_MAP}",
            hint="make the user's own checks smaller",
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _config_map_name(files), "labels": MANAGED_BY},
        "immutable": True,
        "binaryData": {name: base64.b64encode(content).decode() for name, content in files},
    }


def job(
    unit: Unit,
    request: ProbeRequest,
    place: KubernetesPlace,
    *,
    terms: Sequence[Mapping[str, Sequence[str]]] = (),
    namespace: str,
    pull_secret: str = "",
    task: int = 0,
    owner: str = "",
) -> Object:
    """Return the Job of a unit, or of another task of a unit of several.

    task: its number. Only the Job of task 0 has the unit's name and its label.
    owner: the uid of the Job of task 0, with which this one is deleted.
    terms: the labels of the nodes that it may run on, each with its values; a node has to match one of the
    terms.
    """
    deadline_s = pod_deadline_s(request, place)
    name = _task_name(unit, task)
    labels = {**MANAGED_BY, UNIT_LABEL: name}
    if unit.tasks > 1:
        labels[WORKERS_LABEL] = unit.name
    queue = {QUEUE_LABEL: place.queue} if place.queue else {}
    about = {"cell": unit.cell, "depth": unit.depth, "probe-version": unit.probe_version}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, **queue},
            **_owned_by(unit, owner),
            "annotations": {f"tensorflow-gpu-matrix.github.io/{name}": text for name, text in about.items()},
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            # A fault ends the attempt. The next one has another name.
            "backoffLimit": 0,
            # It deletes the pod with its log, so it only removes what nobody waits for any more. It counts
            # from the creation, and the pod's own deadline counts from its start on a node.
            "activeDeadlineSeconds": place.wait_limit * 60 + deadline_s + _MARGIN_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(unit, request, place, terms, pull_secret, deadline_s, task),
            },
        },
    }


def service(unit: Unit, *, namespace: str, owner: str) -> Object:
    """Return the headless service that gives the pods of a unit of several tasks their names.

    The tasks meet before they are ready. owner: the uid of the Job of task 0.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": unit.name,
            "namespace": namespace,
            "labels": {**MANAGED_BY, WORKERS_LABEL: unit.name},
            **_owned_by(unit, owner),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {WORKERS_LABEL: unit.name},
        },
    }


def _task_name(unit: Unit, task: int) -> str:
    return f"{unit.name}-{task}" if task else unit.name


def _owned_by(unit: Unit, owner: str) -> Object:
    if not owner:
        return {}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": unit.name, "uid": owner}
    return {"ownerReferences": [job]}


def pod_deadline_s(request: ProbeRequest, place: KubernetesPlace) -> int:
    """Return the seconds that a pod may take on its node. The limit inside the container comes first."""
    return max(place.time_limit * 60, math.ceil(request.timeout_s) + _MARGIN_S)


def _pod(
    unit: Unit,
    request: ProbeRequest,
    place: KubernetesPlace,
    terms: Sequence[Mapping[str, Sequence[str]]],
    pull_secret: str,
    deadline_s: int,
    task: int,
) -> Object:
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline_s,
        # After SIGTERM the probe has nothing to save, and a lost node's pod is known to be lost after this
        # time.
        "terminationGracePeriodSeconds": _GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": _tolerations(place),
        "containers": [_container(unit, request, place, task)],
        "volumes": [
            {
                "name": "probe",
                "projected": {
                    "defaultMode": 0o444,
                    "sources": [{"configMap": {"name": name}} for name in config_map_names(request)],
                },
            },
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    affinity: Object = {}
    if unit.tasks > 1:
        # Names in the service, and a node for each.
        spec |= {"hostname": _host(task), "subdomain": unit.name}
        apart = {
            "labelSelector": {"matchLabels": {WORKERS_LABEL: unit.name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    if terms:
        wanted = [
            {
                "matchExpressions": [
                    {"key": key, "operator": "In", "values": list(values)}
                    for key, values in sorted(term.items())
                ]
            }
            for term in terms
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
        affinity["nodeAffinity"] = required
    if affinity:
        spec["affinity"] = affinity
    if pull_secret:
        spec["imagePullSecrets"] = [{"name": pull_secret}]
    return spec


def _host(task: int) -> str:
    return f"task{task}"


def _tasks(unit: Unit, task: int) -> list[str]:
    """Return the arguments of `inside.py` for one of several tasks."""
    if unit.tasks == 1:
        return []
    addresses = [f"{_host(number)}.{unit.name}:{_PORT}" for number in range(unit.tasks)]
    return ["--task", str(task), "--workers", ",".join(addresses)]


def _container(unit: Unit, request: ProbeRequest, place: KubernetesPlace, task: int) -> Object:
    limits: Object = {}
    if place.cpus:
        limits["cpu"] = str(place.cpus)
    if place.memory:
        limits["memory"] = f"{place.memory}Gi"
    if unit.host_class != NO_GPU:
        limits[place.resource] = "1"
    return {
        "name": CONTAINER,
        "image": unit.reference,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("/bin/sh", "-c", START, f"{_DIRECTORY}/inside.py"),
            *("--limit", f"{request.timeout_s:.0f}", "--termination", _TERMINATION, *_tasks(unit, task)),
            *("--", *request.arguments),
        ],
        "workingDir": _DIRECTORY,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "terminationMessagePath": _TERMINATION,
        "resources": {"limits": limits, "requests": dict(limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "probe", "mountPath": _DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _tolerations(place: KubernetesPlace) -> list[Object]:
    lost = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _UNREACHABLE_S,
        }
        for state in ("not-ready", "unreachable")
    ]
    own = [
        {
            "key": toleration.key,
            **(
                {"operator": "Equal", "value": toleration.value}
                if toleration.value
                else {"operator": "Exists"}
            ),
            **({"effect": toleration.effect} if toleration.effect else {}),
        }
        for toleration in place.tolerations
    ]
    return [*lost, {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}, *own]


# -- the permissions of the submitter
# ----------------------------------------------------------------------


def rights(namespace: str, user: str) -> tuple[Object, ...]:
    """Return what an administrator applies once: the namespace, the submitter's permissions, and the pods'
    network.

    user: as the cluster's authentication names it. Nodes belong to no namespace, so they have a role of their
    own, which only reads them. The pods reach nothing and nobody reaches them, where the cluster enforces
    network policies. Only those of units of several tasks reach each other, and the cluster's DNS.
    """
    name = "tensorflow-gpu-matrix"
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "delete"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["create"]},
    ]
    workers = {"matchExpressions": [{"key": WORKERS_LABEL, "operator": "Exists"}]}
    of_nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
        _role("Role", {"name": name, "namespace": namespace}, rules),
        _binding("Role", {"name": name, "namespace": namespace}, subjects),
        _role("ClusterRole", {"name": f"{name}-nodes-{namespace}"}, of_nodes),
        _binding("ClusterRole", {"name": f"{name}-nodes-{namespace}"}, subjects),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podSelector": {"matchLabels": MANAGED_BY}, "policyTypes": ["Ingress", "Egress"]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": f"{name}-workers", "namespace": namespace},
            "spec": {
                "podSelector": workers,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": workers}]}],
                "egress": [
                    {"to": [{"podSelector": workers}]},
                    {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]},
                ],
            },
        },
    )


def _role(kind: str, metadata: Object, rules: list[Object]) -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, metadata: Object, subjects: list[Object]) -> Object:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": role,
        "subjects": subjects,
    }
