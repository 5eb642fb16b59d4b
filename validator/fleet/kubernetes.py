"""Kubernetes: one Job for each unit, on the nodes that the labels of its host class name.

A Job's name is the unit's name, so it is made once, whoever makes it and however often. What a pod says comes
back in its log, as frames. What is believed about it comes from elsewhere: the image that was run from the
API's `imageID`, the driver and the GPU from the labels of its node.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import hashlib
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ..engines.protocol import START, ProbeRequest
from ..errors import InputError
from ..model.record import Outside, Unread
from ..model.spec import NO_GPU
from ..versions import major, whole_number
from .kubernetes_client import Api, Invalid, NotFound, QuotaExceeded
from .kubernetes_nodes import (
    GPU_VENDOR,
    NO_POD_LIMIT_S,
    Node,
    Term,
    age_s,
    capacity,
    conditions_of,
    container_of,
    node_of,
    read_node,
    state_of,
    taints_to_tolerate,
    terminated,
    terms_of,
)
from .protocol import (
    PREFIX,
    Answer,
    Capacity,
    CutError,
    Fault,
    FleetDown,
    Handle,
    Phase,
    Refused,
    State,
    Unit,
    read_answer,
    read_ending,
)
from .settings import (
    GPU_RESOURCE,
    FleetSettings,
    KubernetesPlace,
    KubernetesSection,
    Limits,
    NodeKind,
    Survey,
)

#: Names in one selector: with 21 bytes each, the address of a call stays below 4 KiB.
_NAMES = 100
#: Seconds for which a list of all nodes is used.
_NODES_S = 60.0
_REPOSITORY_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
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
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Bytes of all files in a config map, by Kubernetes' own limit.
LARGEST_CONFIG_MAP = 1 << 20
#: A lost node's pods are given up after this time. Kubernetes' own default is five minutes.
_UNREACHABLE_S = 15
#: Between the limit inside the container and the pod's deadline, for the start and the writing of the report.
_MARGIN_S = 120


def open_fleet(settings: FleetSettings) -> Kubernetes:
    """Return the engine. Raises MissingError without access to a cluster."""
    chosen = settings.kubernetes
    return Kubernetes(chosen, Api(chosen.context, chosen.namespace))


class Kubernetes:
    """A cluster. A handle is the name of a unit."""

    name = "kubernetes"
    batch = 50

    def __init__(self, settings: KubernetesSection, api: Api) -> None:
        self._settings, self._api = settings, api
        self._nodes: tuple[Node, ...] = ()
        self._nodes_until = 0.0
        self._config_maps: set[str] = set()
        #: Units that were lost at the last look, and whose pods may still hold a GPU.
        self._lost: set[Handle] = set()

    def limits(self, host_class: str) -> Limits:
        return self._settings.place(host_class)

    def inventory(self) -> tuple[Capacity, ...]:
        """Return the host classes that the settings name, and those of the nodes with the labels of a GPU."""
        self._nodes_until = 0.0
        nodes = self._all_nodes()
        names = {
            NO_GPU,
            *self._settings.host_classes,
            *(name for node in nodes for name in node.host_classes()),
        }
        return tuple(capacity(name, self._settings.place(name), nodes) for name in sorted(names))

    def submit(
        self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]
    ) -> Mapping[str, Handle | Refused]:
        self._clean()
        return {unit.name: self._submitted(unit, requests[unit.name]) for unit in units}

    def _submitted(self, unit: Unit, request: ProbeRequest) -> Handle | Refused:
        found = capacity(unit.host_class, self._settings.place(unit.host_class), self._all_nodes())
        if not found.nodes:
            return Refused(found.detail)
        if unit.attempt > 1:
            # Its Job may have started another pod after it was given up.
            self._api.delete_job(msgspec.structs.replace(unit, attempt=unit.attempt - 1).name)
        try:
            if not self._config_maps.issuperset(config_map_names(request)):
                for each in config_maps(request):
                    self._api.create(each)
                    self._config_maps.add(each["metadata"]["name"])
            self._api.create(self._job(unit, request))
            if unit.tasks > 1:
                # The service and the Jobs of the other tasks are deleted with the Job of task 0.
                for found_job in self._api.jobs(f"{UNIT_LABEL}={unit.name}"):
                    owner = found_job["metadata"]["uid"]
                    self._api.create(service(unit, namespace=self._api.namespace, owner=owner))
                    for task in range(1, unit.tasks):
                        self._api.create(self._job(unit, request, task, owner))
        except QuotaExceeded as error:
            return Refused(str(error), Fault.QUOTA)
        return unit.name

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        self._clean()
        found = {}
        for selector in _selectors(handles):
            jobs = {job["metadata"]["name"]: job for job in self._api.jobs(selector)}
            pods: dict[str, list[dict[str, Any]]] = {}
            listed = self._api.pods(selector)
            for pod in sorted(listed, key=lambda pod: pod["metadata"].get("creationTimestamp") or ""):
                labels = pod["metadata"].get("labels") or {}
                pods.setdefault(labels.get(UNIT_LABEL, ""), []).append(pod)
            for name, job in jobs.items():
                state = state_of(job, pods.get(name, ()), self._api.now)
                if state.phase is Phase.WAITING and not pods.get(name):
                    state = self._without_pod(name, job, state)
                found[name] = state
                if state.phase is Phase.LOST and not _is_finished(job):
                    self._lost.add(name)
        return found

    def _clean(self) -> None:
        """Remove the Jobs that were lost. Whoever polled has noted that by now."""
        while self._lost:
            self._api.delete_job(min(self._lost))
            self._lost.remove(min(self._lost))

    def _without_pod(self, name: str, job: Mapping[str, Any], state: State) -> State:
        """Return why a Job has no pod. Only an event says so."""
        if age_s(job, self._api.now) < NO_POD_LIMIT_S or "Suspended" in conditions_of(job):
            return state
        failures = [event for event in self._api.events_of(name) if event.get("reason") == "FailedCreate"]
        if not failures:
            return state
        message = str(failures[-1].get("message"))
        return State(Phase.LOST, message, fault=Fault.QUOTA if "quota" in message else Fault.NOT_STARTED)

    def collect(self, handle: Handle) -> Answer:
        reasons = []
        pods = [
            pod
            for pod in self._api.pods(f"{UNIT_LABEL}={handle}")
            if terminated(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        for pod in sorted(pods, key=lambda pod: terminated(pod).get("finishedAt") or ""):
            try:
                log = self._log_of(pod)
                container = container_of(pod)
                image_id = str(container.get("imageID") or "")
                found = _REPOSITORY_DIGEST.search(image_id)
                engine = str(terminated(pod).get("containerID") or "").partition("://")[0] or "kubernetes"
                # An id that is not a digest in a repository is not the one that was asked for either.
                digest = found[1] if found else image_id or "unknown"
                answer = read_answer(log, Answer(self._outside(pod), engine, True, digest, node_of(pod)))
                message = str(terminated(pod).get("message") or "")
                sha256 = hashlib.sha256(answer.report).hexdigest() if answer.report is not None else None
                if message and read_ending(message.encode()).report != sha256:
                    raise CutError("the report in the log is not the one that the termination message names")
                return answer
            except CutError as error:
                reasons.append(str(error))
        raise CutError(reasons[0] if reasons else "there is no pod that ended")

    def _log_of(self, pod: Mapping[str, Any]) -> bytes:
        try:
            return self._api.log(pod["metadata"]["name"], CONTAINER)
        except (NotFound, Invalid) as error:
            raise CutError(f"the log can't be read: {error}") from None

    def _outside(self, pod: Mapping[str, Any]) -> Outside | Unread:
        """Return what the labels of a pod's node say about the GPUs that it got."""
        [container, *_] = pod["spec"].get("containers") or [{}]
        limits = container.get("resources", {}).get("limits") or {}
        gpus = sum(
            whole_number(count) or 0 for name, count in limits.items() if name.startswith(f"{GPU_VENDOR}/")
        )
        if not gpus:
            return Unread.NO_GPU_OFFERED
        try:
            return read_node(self._api.node(node_of(pod))).outside(gpus)
        except NotFound:
            return Unread.OTHER_MACHINE

    def cancel(self, handles: Sequence[Handle]) -> None:
        for selector in _selectors(handles):
            for job in self._api.jobs(selector):
                if not _is_finished(job):
                    self._api.delete_job(job["metadata"]["name"])

    def forget(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            self._api.delete_job(handle)

    def logs(self, handle: Handle) -> str:
        """Return the logs of the unit's pods, and the reason for each pod that has none."""
        parts = []
        for pod in self._api.pods(f"{UNIT_LABEL}={handle}"):
            try:
                text = self._log_of(pod).decode("utf-8", "replace")
            except CutError as error:
                text = f"{error}\n"
            parts.append(f"# {pod['metadata']['name']} on {node_of(pod) or 'no node'}\n{text}")
        return "".join(parts)

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        """Return the Jobs as YAML. Asks for the nodes, whose products are in the Jobs."""
        parts = []
        for unit in units:
            request = requests[unit.name]
            for each in config_maps(request):
                sizes = ", ".join(
                    f"{name}, {len(text) * 3 // 4} bytes" for name, text in each["binaryData"].items()
                )
                parts.append(f"# config map {each['metadata']['name']}: {sizes}\n")
            made = [self._job(unit, request, task) for task in range(unit.tasks)]
            if unit.tasks > 1:
                made.append(service(unit, namespace=self._api.namespace, owner=""))
            parts += ["---\n" + yaml.safe_dump(one, sort_keys=False, width=110) for one in made]
        return "".join(dict.fromkeys(parts))

    def close(self) -> None:
        with contextlib.suppress(FleetDown):
            self._clean()
        self._api.close()

    # -- what a Job needs ----------------------------------------------------------------------------

    def _job(self, unit: Unit, request: ProbeRequest, task: int = 0, owner: str = "") -> dict[str, Any]:
        place = self._settings.place(unit.host_class)
        if place.node_selector:
            terms: tuple[Term, ...] = (place.node_selector,)
        else:
            terms = () if unit.host_class == NO_GPU else terms_of(unit.host_class, self._all_nodes())
        return job(
            unit, request, place, terms=terms, namespace=self._api.namespace,
            pull_secret=self._settings.pull_secret, task=task, owner=owner,
        )  # fmt: skip

    def _all_nodes(self) -> tuple[Node, ...]:
        if time.monotonic() > self._nodes_until:
            self._nodes = tuple(read_node(item) for item in self._api.nodes())
            self._nodes_until = time.monotonic() + _NODES_S
        return self._nodes


def _is_finished(job: Mapping[str, Any]) -> bool:
    return bool({"Complete", "Failed"} & conditions_of(job).keys())


def _selectors(handles: Iterable[Handle]) -> Iterator[str]:
    names = sorted(set(handles))
    for start in range(0, len(names), _NAMES):
        yield f"{UNIT_LABEL} in ({','.join(names[start : start + _NAMES])})"


# -- the objects that the engine makes, from the files in `templates/` --------------------------------------

Object = dict[str, Any]
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


# -- the kinds of nodes, by the labels of GPU Feature Discovery ------------------------------------------


def survey(settings: FleetSettings) -> Survey:
    """Return the nodes of the cluster of the kubeconfig. Raises MissingError without access to a cluster.

    None of them is asked: a pod needs an image, and no image is on every cluster, so only labels are used.
    """
    api = Api(settings.kubernetes.context, settings.kubernetes.namespace)
    comment = "CHECK: `fleet manifests` prints the permissions that it needs."
    kinds = kinds_of(read_node(item) for item in api.nodes())
    return Survey("kubernetes", {"namespace": (api.namespace, comment)}, kinds)


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
