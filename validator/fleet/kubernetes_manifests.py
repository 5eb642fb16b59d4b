"""The objects that the Kubernetes engine makes, from the files in `templates/`."""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..engines.probe_archive import START
from ..engines.protocol import ProbeRequest
from ..errors import InputError
from ..model.spec import NO_GPU
from .protocol import PREFIX, Unit
from .settings_schema import GPU_RESOURCE, KubernetesPlace

Object = dict[str, Any]
#: Files by name.
Files = tuple[tuple[str, bytes], ...]

#: On every object, so that a person can find them all.
MANAGED_BY = {"app.kubernetes.io/managed-by": "tensorflow-gpu-matrix"}
#: The unit's name, on its Job and its pods.
UNIT_LABEL = "tensorflow-gpu-matrix.github.io/unit"
#: The unit's name, on what the tasks of a unit of several have in common.
WORKERS_LABEL = "tensorflow-gpu-matrix.github.io/workers"
#: The queue of Kueue (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/).
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
#: Names of the container, its directory and its termination message in `templates/job.yaml`.
CONTAINER = "probe"
_DIRECTORY = "/opt/validator-probe"
_TERMINATION = "/dev/termination-log"
#: The port at which the tasks of a unit meet. Each pod has an address of its own.
_PORT = 29500
#: Bytes of all files in a config map, by Kubernetes' own limit.
LARGEST_CONFIG_MAP = 1 << 20
#: A lost node's pods are given up after this time. Kubernetes' own default is five minutes.
_UNREACHABLE_S = 15
#: Between the limit inside the container and the pod's deadline, for the start and the writing of the report.
_MARGIN_S = 120


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
    content = {name: base64.b64encode(content).decode() for name, content in files}
    [made] = _filled("config-map", name=_config_map_name(files), content=content)
    return made


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
    # The limit inside the container comes first.
    deadline_s = max(place.time_limit * 60, math.ceil(request.timeout_s) + _MARGIN_S)
    name = f"{unit.name}-{task}" if task else unit.name
    labels = {**MANAGED_BY, UNIT_LABEL: name}
    command = [
        *("/bin/sh", "-c", START, f"{_DIRECTORY}/inside.py"),
        *("--limit", f"{request.timeout_s:.0f}", "--termination", _TERMINATION),
    ]
    together: Object = dict.fromkeys(("hostname", "subdomain", "apart"))
    if unit.tasks > 1:
        labels[WORKERS_LABEL] = unit.name
        addresses = [f"task{number}.{unit.name}:{_PORT}" for number in range(unit.tasks)]
        command += ["--task", str(task), "--workers", ",".join(addresses)]
        apart = {
            "labelSelector": {"matchLabels": {WORKERS_LABEL: unit.name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        together = {"hostname": f"task{task}", "subdomain": unit.name, "apart": required}
    [made] = _filled(
        "job",
        name=name,
        namespace=namespace,
        job_labels={**labels, **({QUEUE_LABEL: place.queue} if place.queue else {})},
        pod_labels=labels,
        owners=_owners(unit, owner),
        cell=unit.cell,
        depth=unit.depth,
        probe_version=unit.probe_version,
        job_deadline_s=place.wait_limit * 60 + deadline_s + _MARGIN_S,
        pod_deadline_s=deadline_s,
        tolerations=_tolerations(place),
        image=unit.reference,
        command=[*command, "--", *request.arguments],
        limits=_limits(unit, place),
        sources=[{"configMap": {"name": name}} for name in config_map_names(request)],
        nodes=_nodes(terms),
        pull_secrets=[{"name": pull_secret}] if pull_secret else None,
        **together,
    )
    return made


def service(unit: Unit, *, namespace: str, owner: str) -> Object:
    """Return the service of a unit of several tasks. owner: the uid of the Job of task 0."""
    [made] = _filled("service", name=unit.name, namespace=namespace, owners=_owners(unit, owner))
    return made


def _owners(unit: Unit, owner: str) -> list[Object] | None:
    if not owner:
        return None
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": unit.name, "uid": owner}]


def _limits(unit: Unit, place: KubernetesPlace) -> Object:
    limits: Object = {}
    if place.cpus:
        limits["cpu"] = str(place.cpus)
    if place.memory:
        limits["memory"] = f"{place.memory}Gi"
    if unit.host_class != NO_GPU:
        limits[place.resource] = "1"
    return limits


def _nodes(terms: Sequence[Mapping[str, Sequence[str]]]) -> Object | None:
    wanted = [
        [{"key": key, "operator": "In", "values": list(values)} for key, values in sorted(term.items())]
        for term in terms
    ]
    if not wanted:
        return None
    selected = {"nodeSelectorTerms": [{"matchExpressions": expressions} for expressions in wanted]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": selected}


def _tolerations(place: KubernetesPlace) -> list[Object]:
    found: list[Object] = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _UNREACHABLE_S,
        }
        for state in ("not-ready", "unreachable")
    ]
    found.append({"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"})
    for taint in place.tolerations:
        value = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
        effect = {"effect": taint.effect} if taint.effect else {}
        found.append({"key": taint.key, **value, **effect})
    return found


def rights(namespace: str, user: str) -> tuple[Object, ...]:
    """Return what an administrator applies once. user: as the cluster's authentication names it."""
    role = f"tensorflow-gpu-matrix-nodes-{namespace}"
    return tuple(_filled("rights", namespace=namespace, user=user, nodes_role=role))


@functools.cache
def _template(name: str) -> list[Any]:
    text = Path(__file__).with_name("templates").joinpath(f"{name}.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(text))


def _filled(template: str, **values: Any) -> list[Object]:
    """Return the objects of a template, with a value for each text that begins with `$`.

    The template was parsed before, so no value can change the structure. None leaves its key out.
    """
    return [_fill(part, values) for part in _template(template)]


def _fill(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        # A copy, since YAML writes an object that is there twice as a reference.
        return copy.deepcopy(values[part[1:]]) if part.startswith("$") else part
    if isinstance(part, list):
        return [_fill(entry, values) for entry in part]
    if not isinstance(part, dict):
        return part
    made = {key: filled for key, entry in part.items() if (filled := _fill(entry, values)) is not None}
    return made if made or not part else None
