"""Kubernetes: one Job for each unit, on the nodes that the labels of its host class name.

A Job's name is the unit's name, so it is made once, whoever makes it and however often. What a pod says comes
back in its log, as frames. What is believed about it comes from elsewhere: the image that was run from the
API's `imageID`, the driver and the GPU from the labels of its node.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from ..engines.protocol import ProbeRequest
from ..model.measurement import Outside, Unread
from ..model.spec import NO_GPU
from ..versions import major, whole_number
from . import kubernetes_manifests
from .job_output import CutError, read_answer, read_ending
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
from .protocol import Answer, Capacity, Fault, FleetDown, Handle, Phase, Refused, State, Unit
from .settings import FleetSettings, NodeKind, Seen
from .settings_schema import KubernetesSection

#: Names in one selector: with 21 bytes each, the address of a call stays below 4 KiB.
_NAMES = 100
#: Seconds for which a list of all nodes is used.
_NODES_S = 60.0
_REPOSITORY_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")


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

    def limit(self, host_class: str) -> int:
        return self._settings.place(host_class).in_flight

    def tasks(self, host_class: str, depth: str) -> int:
        return self._settings.place(host_class).tasks(depth)

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
            self._make_config_maps(request)
            self._api.create(self._job(unit, request))
            if unit.tasks > 1:
                self._make_others(unit, request)
        except QuotaExceeded as error:
            return Refused(str(error), Fault.QUOTA)
        return unit.name

    def _make_others(self, unit: Unit, request: ProbeRequest) -> None:
        """Make the service and the Jobs of the other tasks, as far as they aren't there. They are deleted
        with the Job of task 0."""
        for found in self._api.jobs(f"{kubernetes_manifests.UNIT_LABEL}={unit.name}"):
            owner = found["metadata"]["uid"]
            self._api.create(kubernetes_manifests.service(unit, namespace=self._api.namespace, owner=owner))
            for task in range(1, unit.tasks):
                self._api.create(self._job(unit, request, task, owner))

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        self._clean()
        found = {}
        for selector in _selectors(handles):
            jobs = {job["metadata"]["name"]: job for job in self._api.jobs(selector)}
            pods: dict[str, list[dict[str, Any]]] = {}
            for pod in sorted(self._api.pods(selector), key=_created):
                labels = pod["metadata"].get("labels") or {}
                pods.setdefault(labels.get(kubernetes_manifests.UNIT_LABEL, ""), []).append(pod)
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
            for pod in self._api.pods(f"{kubernetes_manifests.UNIT_LABEL}={handle}")
            if terminated(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        for pod in sorted(pods, key=lambda pod: terminated(pod).get("finishedAt") or ""):
            try:
                log = self._log_of(pod)
                container = container_of(pod)
                image_id = str(container.get("imageID") or "")
                found = _REPOSITORY_DIGEST.search(image_id)
                answer = read_answer(
                    log,
                    self._outside(pod),
                    engine=str(terminated(pod).get("containerID") or "").partition("://")[0] or "kubernetes",
                    isolates=True,
                    # An id that is not a digest in a repository is not the one that was asked for either.
                    image_digest=found[1] if found else image_id or "unknown",
                    node=node_of(pod),
                )
                message = str(terminated(pod).get("message") or "")
                digest = hashlib.sha256(answer.report).hexdigest() if answer.report is not None else None
                if message and read_ending(message.encode()).report != digest:
                    raise CutError("the report in the log is not the one that the termination message names")
                return answer
            except CutError as error:
                reasons.append(str(error))
        raise CutError(reasons[0] if reasons else "there is no pod that ended")

    def _log_of(self, pod: Mapping[str, Any]) -> bytes:
        try:
            return self._api.log(pod["metadata"]["name"], kubernetes_manifests.CONTAINER)
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
        for pod in self._api.pods(f"{kubernetes_manifests.UNIT_LABEL}={handle}"):
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
            for each in kubernetes_manifests.config_maps(request):
                sizes = ", ".join(
                    f"{name}, {len(text) * 3 // 4} bytes" for name, text in each["binaryData"].items()
                )
                parts.append(f"# config map {each['metadata']['name']}: {sizes}\n")
            made = [self._job(unit, request, task) for task in range(unit.tasks)]
            if unit.tasks > 1:
                made.append(kubernetes_manifests.service(unit, namespace=self._api.namespace, owner=""))
            parts += ["---\n" + yaml.safe_dump(one, sort_keys=False, width=110) for one in made]
        return "".join(dict.fromkeys(parts))

    def close(self) -> None:
        with contextlib.suppress(FleetDown):
            self._clean()
        self._api.close()

    # -- what a Job needs ----------------------------------------------------------------------------

    def _job(self, unit: Unit, request: ProbeRequest, task: int = 0, owner: str = "") -> dict[str, Any]:
        place = self._settings.place(unit.host_class)
        return kubernetes_manifests.job(
            unit, request, place, terms=self._terms(unit.host_class), namespace=self._api.namespace,
            pull_secret=self._settings.pull_secret, task=task, owner=owner,
        )  # fmt: skip

    def _terms(self, host_class: str) -> tuple[Term, ...]:
        place = self._settings.place(host_class)
        if place.node_selector:
            return (place.node_selector,)
        return () if host_class == NO_GPU else terms_of(host_class, self._all_nodes())

    def _make_config_maps(self, request: ProbeRequest) -> None:
        if self._config_maps.issuperset(kubernetes_manifests.config_map_names(request)):
            return
        for each in kubernetes_manifests.config_maps(request):
            self._api.create(each)
            self._config_maps.add(each["metadata"]["name"])

    def _all_nodes(self) -> tuple[Node, ...]:
        if time.monotonic() > self._nodes_until:
            self._nodes = tuple(read_node(item) for item in self._api.nodes())
            self._nodes_until = time.monotonic() + _NODES_S
        return self._nodes


def _created(pod: Mapping[str, Any]) -> str:
    return pod["metadata"].get("creationTimestamp") or ""


def _is_finished(job: Mapping[str, Any]) -> bool:
    return bool({"Complete", "Failed"} & conditions_of(job).keys())


def _selectors(handles: Iterable[Handle]) -> Iterator[str]:
    names = sorted(set(handles))
    for start in range(0, len(names), _NAMES):
        yield f"{kubernetes_manifests.UNIT_LABEL} in ({','.join(names[start : start + _NAMES])})"


# -- the kinds of nodes, by the labels of GPU Feature Discovery ------------------------------------------


def open_surveyor(settings: FleetSettings) -> KubernetesSurveyor:
    """Return the surveyor. Raises MissingError without access to a cluster."""
    chosen = settings.kubernetes
    return KubernetesSurveyor(Api(chosen.context, chosen.namespace))


class KubernetesSurveyor:
    """The cluster of the kubeconfig."""

    section = "kubernetes"

    def __init__(self, api: Api) -> None:
        self._api = api
        self.keys: Mapping[str, tuple[str, str]] = {
            "namespace": (api.namespace, "CHECK: `fleet manifests` prints the permissions that it needs."),
        }

    def survey(self) -> list[NodeKind]:
        return kinds_of(read_node(item) for item in self._api.nodes())

    def ask(self, kind: NodeKind) -> Seen | None:
        """Return None: a pod needs an image, and no image is on every cluster, so only labels are used."""
        return None


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
