"""The objects of Kubernetes that the engine makes, and what it reads in those that the cluster has.

The host classes of nodes are read from the labels of NVIDIA's GPU Feature Discovery, which are described in
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md.
The labels of the driver were renamed in 2024; nodes of older operators have `nvidia.com/cuda.driver.major`.
"""

from __future__ import annotations

import base64
import copy
import datetime
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..compat.hardware import model_of
from ..engines.protocol import START, ProbeRequest
from ..errors import InputError
from ..model.codec import parse_timestamp
from ..model.record import Outside, Unread, labelled
from ..model.spec import NO_GPU
from ..versions import ComputeCapability, is_release_of, leading_numbers, major, whole_number
from .protocol import PREFIX, Capacity, Fault, Phase, State, Unit
from .settings import GPU_RESOURCE, KubernetesPlace, NodeKind, Toleration

#: On every object, so that a person can find them all.
MANAGED_BY = {"app.kubernetes.io/managed-by": "tensorflow-gpu-matrix"}
#: The unit's name, on its Job and its pods.
UNIT_LABEL = "tensorflow-gpu-matrix.github.io/unit"
#: The unit's name, on all Jobs and pods and the service of a unit with several tasks.
WORKERS_LABEL = "tensorflow-gpu-matrix.github.io/workers"
#: The queue of Kueue (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/).
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
#: Names of the container, its directory and its termination message in `templates/job.yaml`.
CONTAINER = "probe"
_DIRECTORY = "/opt/validator-probe"
_TERMINATION = "/dev/termination-log"
#: The port at which the tasks of a unit meet. Each pod has an address of its own.
_PORT = 29500
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Bytes of all files in a config map, by Kubernetes' own limit.
LARGEST_CONFIG_MAP = 1 << 20
#: A lost node's pods are given up after this time. Kubernetes' own default is five minutes.
_UNREACHABLE_S = 15
#: Between the limit inside the container and the pod's deadline, for the start and the writing of the report.
_MARGIN_S = 120

# -- the objects that the engine makes, from the files in `templates/` --------------------------------------

Object = dict[str, Any]
Json = Mapping[str, Any]
#: Files by name.
Files = tuple[tuple[str, bytes], ...]


def config_maps(request: ProbeRequest) -> tuple[Object, ...]:
    """Return the config maps of a run: the probe, which all units of a night share, and the other files.

    They are named after their content and immutable, so one that exists is the right one. Raises InputError
    if the files are too large.
    """
    made = []
    for files in _files(request):
        size = sum(len(content) for _, content in files)
        if size > LARGEST_CONFIG_MAP:
            raise InputError(
                f"the files for a pod take {size} bytes: {', '.join(name for name, _ in files)}."
                f" A Kubernetes config map holds at most {LARGEST_CONFIG_MAP}",
                hint="make the user's own checks smaller",
            )
        encoded = {name: base64.b64encode(content).decode() for name, content in files}
        made += _filled("config-map", name=_config_map_name(files), content=encoded)
    return tuple(made)


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

    task: its number. Only the Job of task 0 has the unit's name and its label. owner: the uid of the Job of
    task 0, with which this one is deleted. terms: labels of nodes, each with its values; a node has to match
    one.
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
        together = {"hostname": f"task{task}", "subdomain": unit.name, "apart": {_REQUIRED: [apart]}}
    selected = []
    for term in terms:
        wanted = [{"key": key, "operator": "In", "values": list(term[key])} for key in sorted(term)]
        selected.append({"matchExpressions": wanted})
    limits = {
        "cpu": str(place.cpus) if place.cpus else None,
        "memory": f"{place.memory}Gi" if place.memory else None,
        place.resource: "1" if unit.host_class != NO_GPU else None,
    }
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
        limits={name: amount for name, amount in limits.items() if amount},
        sources=[{"configMap": {"name": name}} for name in config_map_names(request)],
        nodes={_REQUIRED: {"nodeSelectorTerms": selected}} if selected else None,
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
    """Return a template's objects with values for texts that begin with `$`. None leaves its key out."""
    # The template was parsed before, so no value can change the structure.
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


# -- the nodes, by their labels -----------------------------------------------------------------------

#: The vendor in the names of all resources that are GPUs or parts of them.
GPU_VENDOR = "nvidia.com"
PRODUCT = "nvidia.com/gpu.product"
_CAPABILITY = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
#: The labels of a driver's release, newest names first: branch, and the two numbers after it.
_DRIVER = (
    (
        "nvidia.com/cuda.driver-version.major",
        "nvidia.com/cuda.driver-version.minor",
        "nvidia.com/cuda.driver-version.revision",
    ),
    ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"),
)
#: How `host_identifier` writes host classes. No label says if a node has a cuda-compat package.
_HOST_CLASS = re.compile(r"r(?P<driver>\d+(?:\.\d+)*)-(?P<gpu>[a-z0-9.+-]+?)")
#: What Feature Discovery adds to the product of a GPU that pods share by time.
_SHARED = "-SHARED"

#: The labels of nodes, each with the values that fit.
Term = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Node:
    """A node. allocatable: by the name of the resource. problem: why no pod starts there now, or ""."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    allocatable: Mapping[str, str]
    problem: str

    def gpus(self, resource: str) -> int:
        return whole_number(self.allocatable.get(resource, "0")) or 0

    @property
    def driver_labels(self) -> tuple[str, str, str] | None:
        """The names of the labels that say the driver, or None if there are none."""
        return next((names for names in _DRIVER if names[0] in self.labels), None)

    @property
    def driver(self) -> str | None:
        """The driver's release as far as the labels say it: `580.65.06`, `580`, or None."""
        numbers = [self.labels.get(name, "") for name in self.driver_labels or ()]
        while numbers and not numbers[-1]:
            numbers.pop()
        return ".".join(numbers) if numbers and None not in map(whole_number, numbers) else None

    @property
    def model(self) -> str | None:
        """The GPU's model as in host classes, `h100`."""
        product = self.labels.get(PRODUCT)
        return model_of(product.removesuffix(_SHARED).replace("-", " ")) if product else None

    @property
    def capability(self) -> ComputeCapability | None:
        major, minor = (whole_number(self.labels.get(name, "")) for name in _CAPABILITY)
        return None if major is None or minor is None else ComputeCapability(major, minor)

    def outside(self, gpus: int) -> Outside | Unread:
        """Return what the labels say about the GPUs of a pod."""
        product = self.labels.get(PRODUCT)
        if self.driver is None or product is None or self.capability is None:
            return Unread.NO_NODE_LABELS
        return labelled(self.driver, product, str(self.capability), gpus)

    def host_classes(self) -> tuple[str, ...]:
        """Return the host classes of the driver's branch: by the GPU's model and by its capability."""
        if self.driver is None:
            return ()
        branch = major(self.driver)
        capability = self.capability and self.capability.sm.replace("_", "")
        return tuple(f"r{branch}-{gpu}" for gpu in (self.model, capability) if gpu)

    def fits(self, host_class: str, place: KubernetesPlace) -> bool:
        """Return True if the node belongs to a host class, ready or not."""
        if host_class != NO_GPU and not self.gpus(place.resource):
            return False
        if not all(_tolerated(taint, place.tolerations) for taint in self.taints):
            return False
        if place.node_selector:
            return all(self.labels.get(key) in values for key, values in place.node_selector.items())
        return host_class == NO_GPU or self.term(host_class) is not None

    def term(self, host_class: str) -> Term | None:
        """Return the labels by which a pod gets this node for a host class; None if it is of another."""
        found = _HOST_CLASS.fullmatch(host_class)
        if found is None or self.driver is None or self.driver_labels is None:
            return None
        if found["gpu"] == self.model:
            wanted = {PRODUCT: [self.labels[PRODUCT]]}
        elif self.capability is not None and found["gpu"] == self.capability.sm.replace("_", ""):
            wanted = {name: [self.labels[name]] for name in _CAPABILITY}
        else:
            return None
        if not is_release_of(self.driver, found["driver"]):
            return None
        told = self.driver_labels[: len(leading_numbers(found["driver"]))]
        return {**wanted, **{name: [self.labels[name]] for name in told}}


def read_node(item: Mapping[str, Any]) -> Node:
    """Return a node from the API's JSON."""
    spec, status = item.get("spec", {}), item.get("status", {})
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    problem = "cordoned" if spec.get("unschedulable") else "" if ready else "not ready"
    return Node(
        item["metadata"]["name"],
        item["metadata"].get("labels") or {},
        # What the cluster itself sets while a node is lost or cordoned does not change what the node is.
        tuple(
            taint
            for taint in spec.get("taints") or ()
            if not taint["key"].startswith("node.kubernetes.io/") and taint["effect"] != "PreferNoSchedule"
        ),
        status.get("allocatable") or {},
        problem,
    )


def terms_of(host_class: str, nodes: Iterable[Node]) -> tuple[Term, ...]:
    """Return the labels of the nodes of a host class: one term for each set of labels that says the driver.

    A node has to match one of them. The products in them are those that the nodes have: a host class names a
    model, and a product also names its form and memory.
    """
    merged: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for node in nodes:
        term = node.term(host_class)
        if term is not None:
            values = merged.setdefault(tuple(sorted(term)), {})
            for key, found in term.items():
                values.setdefault(key, set()).update(found)
    return tuple({key: sorted(found) for key, found in term.items()} for _, term in sorted(merged.items()))


def capacity(host_class: str, place: KubernetesPlace, nodes: Sequence[Node]) -> Capacity:
    """Return the capacity of a host class among all nodes."""
    fitting = [node for node in nodes if node.fits(host_class, place)]
    usable = [node for node in fitting if not node.problem]
    if not fitting:
        labels = [f"{key}={'|'.join(values)}" for key, values in sorted(place.node_selector.items())]
        wanted = ", ".join(labels) or f"the labels of {host_class}"
        return Capacity(host_class, 0, 0, 0, f"none of {len(nodes)} nodes has {wanted}")
    problems = sorted(f"{node.name} is {node.problem}" for node in fitting if node.problem)
    least = min(node.gpus(place.resource) for node in fitting)
    return Capacity(host_class, len(fitting), len(usable), least, ", ".join(problems[:5]))


def taints_to_tolerate(node: Node) -> list[dict[str, str]]:
    """Return what `tolerations` has to list for a pod on this node."""
    return [
        {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
        for taint in sorted(node.taints, key=lambda taint: taint["key"])
        if not _tolerated(taint, ())
    ]


def _tolerated(taint: Mapping[str, str], own: Iterable[Toleration]) -> bool:
    if taint["key"] == GPU_RESOURCE and taint["effect"] == "NoSchedule":
        return True
    return any(
        toleration.key == taint["key"]
        and toleration.value in ("", taint.get("value", ""))
        and toleration.effect in ("", taint["effect"])
        for toleration in own
    )


def kinds_of(nodes: Iterable[Node]) -> list[NodeKind]:
    """Return the kinds of nodes: those with the same driver branch, GPU and taints are one."""
    kinds: dict[tuple[str, str, bool, str], list[Node]] = {}
    for node in nodes:
        has_gpu = any(node.gpus(name) for name in node.allocatable if name.startswith(f"{GPU_VENDOR}/"))
        driver, model = (major(node.driver or ""), node.model or "") if has_gpu else ("", "")
        kinds.setdefault((driver, model, has_gpu, str(taints_to_tolerate(node))), []).append(node)
    return [
        NodeKind(len(alike), min(node.name for node in alike), driver, model, has_gpu, _place(alike))
        for (driver, model, has_gpu, _), alike in sorted(kinds.items())
    ]


def _place(alike: Sequence[Node]) -> dict[str, object]:
    """Return the keys that place a pod on one of these nodes, unless the defaults already do."""
    place: dict[str, object] = {}
    classes = alike[0].host_classes()
    terms = terms_of(classes[0], alike) if classes else ()
    if len(terms) == 1:
        place["node_selector"] = dict(terms[0])
    if taints := taints_to_tolerate(alike[0]):
        place["tolerations"] = taints
    return place


# The state of a unit, from its Job and its pods as the API describes them.
#
# A Job replaces a pod whose node was lost, or that somebody deleted, also with a `backoffLimit` of 0, and
# the lost one may still run. So a pod that is on its way out counts only if its node does not answer.

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

    pods: those of the Job, also those that are being deleted. now: by the API server's clock; UTC.
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
        # A pod is lost if the API says so, or if its node does not finish deleting it.
        gone_by = parse_timestamp(pod["metadata"].get("deletionTimestamp") or "")
        waited_s = (now - gone_by).total_seconds() if gone_by and node_of(pod) else 0.0
        is_lost = pod["status"].get("phase") == "Unknown" or pod["status"].get("reason") == "NodeLost"
        if is_lost or waited_s > _DELETION_S:
            detail = _detail(pod) or "its node does not answer"
            return State(Phase.LOST, detail, node_of(pod), Fault.NODE_LOST)
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


def age_s(item: Json, now: datetime.datetime) -> float:
    created = parse_timestamp(item["metadata"].get("creationTimestamp") or "")
    return (now - created).total_seconds() if created else 0.0


def _is_deleted(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _of_finished(pod: Json) -> State:
    status, node = pod["status"], node_of(pod)
    if status["phase"] == "Succeeded":
        return State(Phase.ENDED, "", node)
    disruption = conditions_of(pod).get("DisruptionTarget", ("", ""))[0]
    ended = terminated(pod)
    detail = _detail(pod)
    fault = _REASONS.get(disruption) or _REASONS.get(status.get("reason") or "")
    if fault is None and status.get("reason") == "Evicted":
        text = detail.lower()
        if any(word in text for word in _DISK):
            fault = Fault.DISK_FULL
        else:
            fault = Fault.OUT_OF_MEMORY if "memory" in text else Fault.PREEMPTED
    # The report may have been written all the same, and then the message has its digest.
    if fault is None and not (ended.get("message") or "").startswith("{"):
        fault = _ENDS.get(ended.get("reason") or "")
    if fault is None:
        return State(Phase.ENDED, detail, node)
    return State(Phase.LOST, detail, node, fault)


def _of_living(pod: Json, now: datetime.datetime) -> State:
    node, container = node_of(pod), container_of(pod)
    if container.get("state", {}).get("running") is not None:
        return State(Phase.RUNNING, "", node)
    waiting = container.get("state", {}).get("waiting") or {}
    reason, message = waiting.get("reason") or "", waiting.get("message") or ""
    if reason in (*_PULLING, *_CREATING):
        detail = f"{reason}: {message}".strip(": ")
        began = parse_timestamp(pod["status"].get("startTime") or "") or now
        if (now - began).total_seconds() <= START_LIMIT_S:
            return State(Phase.WAITING, detail, node)
        text = message.lower()
        if any(word in text for word in _DISK):
            fault = Fault.DISK_FULL
        elif reason in _CREATING:
            fault = Fault.NOT_STARTED
        else:
            absent = "not found" in text or "manifest unknown" in text or reason == "InvalidImageName"
            fault = Fault.IMAGE_MISSING if absent else Fault.PULL_FAILED
        return State(Phase.LOST, detail, node, fault)
    unscheduled = [
        condition.get("message") or condition.get("reason") or ""
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    return State(Phase.WAITING, unscheduled[0] if unscheduled else reason, node)


def _detail(pod: Json) -> str:
    status, ended = pod["status"], terminated(pod)
    message = ended.get("message") or ""
    parts = [status.get("reason"), status.get("message"), ended.get("reason")]
    # A message that begins so is that of `inside.py`.
    if message and not message.startswith("{"):
        parts.append(message)
    return ": ".join(part for part in parts if part)[:500]
