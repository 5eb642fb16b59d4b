"""Kubernetes: one Job for each unit, on the nodes that the labels of its host class name.

A Job's name is the unit's name, so it is made once, whoever makes it and however often. What a pod says comes
back in its log, as frames. What is believed about it comes from elsewhere: the image that was run from the
API's `imageID`, the driver and the GPU from the labels of its node.

The API is asked through the official Python client, with time limits that hold, and JSON as it came. The
client repeats what failed, and its time limit counts for each try: a list with a limit of 5 s blocked for
20 s. Here nothing is repeated, and the limit also counts for an answer that comes slowly. The client's own
model objects are not made, because they take most of its time and memory.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar, cast

import msgspec
import yaml
from urllib3.exceptions import HTTPError, SSLError

from ..engines.protocol import ProbeRequest
from ..errors import InputError, MissingError, ValidatorError
from ..model.record import Outside, Unread
from ..model.spec import NO_GPU
from ..versions import whole_number
from . import kubernetes_objects as objects
from .protocol import (
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
from .settings import FleetSettings, KubernetesSection, Limits, Survey

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
        self._nodes: tuple[objects.Node, ...] = ()
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
        return tuple(objects.capacity(name, self._settings.place(name), nodes) for name in sorted(names))

    def submit(
        self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]
    ) -> Mapping[str, Handle | Refused]:
        self._clean()
        return {unit.name: self._submitted(unit, requests[unit.name]) for unit in units}

    def _submitted(self, unit: Unit, request: ProbeRequest) -> Handle | Refused:
        found = objects.capacity(unit.host_class, self._settings.place(unit.host_class), self._all_nodes())
        if not found.nodes:
            return Refused(found.detail)
        if unit.attempt > 1:
            # Its Job may have started another pod after it was given up.
            self._api.delete_job(msgspec.structs.replace(unit, attempt=unit.attempt - 1).name)
        try:
            if not self._config_maps.issuperset(objects.config_map_names(request)):
                for each in objects.config_maps(request):
                    self._api.create(each)
                    self._config_maps.add(each["metadata"]["name"])
            self._api.create(self._job(unit, request))
            if unit.tasks > 1:
                # The service and the Jobs of the other tasks are deleted with the Job of task 0.
                for found_job in self._api.jobs(f"{objects.UNIT_LABEL}={unit.name}"):
                    owner = found_job["metadata"]["uid"]
                    self._api.create(objects.service(unit, namespace=self._api.namespace, owner=owner))
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
                pods.setdefault(labels.get(objects.UNIT_LABEL, ""), []).append(pod)
            for name, job in jobs.items():
                state = objects.state_of(job, pods.get(name, ()), self._api.now)
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
        is_new = objects.age_s(job, self._api.now) < objects.NO_POD_LIMIT_S
        if is_new or "Suspended" in objects.conditions_of(job):
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
            for pod in self._api.pods(f"{objects.UNIT_LABEL}={handle}")
            if objects.terminated(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        for pod in sorted(pods, key=lambda pod: objects.terminated(pod).get("finishedAt") or ""):
            try:
                log = self._log_of(pod)
                ended = objects.terminated(pod)
                image_id = str(objects.container_of(pod).get("imageID") or "")
                found = _REPOSITORY_DIGEST.search(image_id)
                engine = str(ended.get("containerID") or "").partition("://")[0] or "kubernetes"
                # An id that is not a digest in a repository is not the one that was asked for either.
                digest = found[1] if found else image_id or "unknown"
                known = Answer(self._outside(pod), engine, True, digest, objects.node_of(pod))
                answer = read_answer(log, known)
                message = str(ended.get("message") or "")
                sha256 = hashlib.sha256(answer.report).hexdigest() if answer.report is not None else None
                if message and read_ending(message.encode()).report != sha256:
                    raise CutError("the report in the log is not the one that the termination message names")
                return answer
            except CutError as error:
                reasons.append(str(error))
        raise CutError(reasons[0] if reasons else "there is no pod that ended")

    def _log_of(self, pod: Mapping[str, Any]) -> bytes:
        try:
            return self._api.log(pod["metadata"]["name"], objects.CONTAINER)
        except (NotFound, Invalid) as error:
            raise CutError(f"the log can't be read: {error}") from None

    def _outside(self, pod: Mapping[str, Any]) -> Outside | Unread:
        """Return what the labels of a pod's node say about the GPUs that it got."""
        [container, *_] = pod["spec"].get("containers") or [{}]
        limits = container.get("resources", {}).get("limits") or {}
        gpus = sum(
            whole_number(count) or 0
            for name, count in limits.items()
            if name.startswith(f"{objects.GPU_VENDOR}/")
        )
        if not gpus:
            return Unread.NO_GPU_OFFERED
        try:
            return objects.read_node(self._api.node(objects.node_of(pod))).outside(gpus)
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
        for pod in self._api.pods(f"{objects.UNIT_LABEL}={handle}"):
            try:
                text = self._log_of(pod).decode("utf-8", "replace")
            except CutError as error:
                text = f"{error}\n"
            parts.append(f"# {pod['metadata']['name']} on {objects.node_of(pod) or 'no node'}\n{text}")
        return "".join(parts)

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        """Return the Jobs as YAML. Asks for the nodes, whose products are in the Jobs."""
        parts = []
        for unit in units:
            request = requests[unit.name]
            for each in objects.config_maps(request):
                sizes = ", ".join(
                    f"{name}, {len(text) * 3 // 4} bytes" for name, text in each["binaryData"].items()
                )
                parts.append(f"# config map {each['metadata']['name']}: {sizes}\n")
            made = [self._job(unit, request, task) for task in range(unit.tasks)]
            if unit.tasks > 1:
                made.append(objects.service(unit, namespace=self._api.namespace, owner=""))
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
            terms: tuple[objects.Term, ...] = (place.node_selector,)
        else:
            terms = () if unit.host_class == NO_GPU else objects.terms_of(unit.host_class, self._all_nodes())
        return objects.job(
            unit, request, place, terms=terms, namespace=self._api.namespace,
            pull_secret=self._settings.pull_secret, task=task, owner=owner,
        )  # fmt: skip

    def _all_nodes(self) -> tuple[objects.Node, ...]:
        if time.monotonic() > self._nodes_until:
            self._nodes = tuple(objects.read_node(item) for item in self._api.nodes())
            self._nodes_until = time.monotonic() + _NODES_S
        return self._nodes


def _is_finished(job: Mapping[str, Any]) -> bool:
    return bool({"Complete", "Failed"} & objects.conditions_of(job).keys())


def _selectors(handles: Iterable[Handle]) -> Iterator[str]:
    names = sorted(set(handles))
    for start in range(0, len(names), _NAMES):
        yield f"{objects.UNIT_LABEL} in ({','.join(names[start : start + _NAMES])})"


def survey(settings: FleetSettings) -> Survey:
    """Return the nodes of the cluster of the kubeconfig. Raises MissingError without access to a cluster.

    None of them is asked: a pod needs an image, and no image is on every cluster, so only labels are used.
    """
    api = Api(settings.kubernetes.context, settings.kubernetes.namespace)
    comment = "CHECK: `fleet manifests` prints the permissions that it needs."
    kinds = objects.kinds_of(objects.read_node(item) for item in api.nodes())
    return Survey("kubernetes", {"namespace": (api.namespace, comment)}, kinds)


# -- the API ---------------------------------------------------------------------------------------

Json = dict[str, Any]
#: Pages of a list, each with up to `_PAGE` objects. A server could say without end that there is one more.
_MOST_PAGES = 1000
#: Seconds that a call may take. A cluster under load answers within a second or two.
LIMIT_S = 20.0
#: Bytes of an answer. The log of a unit is the largest.
LARGEST = 96 << 20
_CONNECT_S = 5.0
#: An API server that starts rejects everybody until it has read the roles.
_ROLES_READ_S = 60.0
_PAGE = 500
_CHUNK = 1 << 16

T = TypeVar("T")


# What is read of the API's objects. An answer in which something has another type is refused as a whole.


class _Named(TypedDict):
    name: str


class _Metadata(_Named, total=False):
    uid: str
    labels: dict[str, str] | None
    creationTimestamp: str | None
    deletionTimestamp: str | None


class _Told(TypedDict, total=False):
    """An event, or the state of a container that waits or has ended."""

    reason: str | None
    message: str | None
    finishedAt: str | None
    containerID: str | None


class _TypedCondition(TypedDict):
    type: str
    status: str


class _Condition(_Told, _TypedCondition):
    """A condition, with its reason and message."""


class _Container(TypedDict, total=False):
    imageID: str | None
    #: By `running`, `waiting` or `terminated`.
    state: dict[str, _Told | None]


class _Status(_Told, total=False):
    phase: str | None
    startTime: str | None
    conditions: list[_Condition] | None
    containerStatuses: list[_Container] | None
    allocatable: dict[str, str] | None


class _Resources(TypedDict, total=False):
    limits: dict[str, str] | None


class _Asked(TypedDict, total=False):
    resources: _Resources


class _TypedTaint(TypedDict):
    key: str
    effect: str


class _Taint(_TypedTaint, total=False):
    value: str


class _Spec(TypedDict, total=False):
    nodeName: str | None
    containers: list[_Asked]
    taints: list[_Taint] | None
    unschedulable: bool


class _Object(TypedDict):
    """A Job, a pod or a node."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


class _More(msgspec.Struct):
    following: str | None = msgspec.field(name="continue", default=None)


class _Page(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _More = msgspec.field(default_factory=_More)


class NotFound(ValidatorError):
    """The object does not exist."""


class _Conflict(ValidatorError):
    """An object of this name exists."""


class QuotaExceeded(ValidatorError):
    """The namespace's quota does not allow the object."""


class Invalid(ValidatorError):
    """The API server rejects the object."""


class _ServerError(FleetDown):
    """The API server could not answer. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A connection to an API server. namespace: of all calls. now: its clock at its last answer; UTC."""

    def __init__(self, context: str = "", namespace: str = "", *, limit_s: float = LIMIT_S) -> None:
        """Read the kubeconfig, or the account of the pod in which this runs.

        Raises MissingError without access, and ModuleNotFoundError without the extra `kubernetes`.
        """
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException

        settings = client.Configuration()
        # The client reads this variable when it is imported.
        file = os.environ.get("KUBECONFIG") or config.KUBE_CONFIG_DEFAULT_LOCATION
        try:
            try:
                contexts, current = config.list_kube_config_contexts(file)
            except ConfigException:
                if context:
                    raise
                config.load_incluster_config(client_configuration=settings)
                given = None
            else:
                config.load_kube_config(file, context=context or None, client_configuration=settings)
                chosen = next((each for each in contexts if each["name"] == context), current)
                given = chosen["context"].get("namespace")
        except (ConfigException, OSError, yaml.YAMLError) as error:
            raise MissingError(
                f"there is no access to a Kubernetes cluster: {_short(error)}",
                hint="set KUBECONFIG, or choose a context of `kubectl config get-contexts` in fleet.yaml",
            ) from None
        settings.retries = False
        self.namespace = namespace or str(given or "default")
        self.server = str(settings.host)
        self.now = datetime.datetime.now(datetime.timezone.utc)
        self._limit_s = limit_s
        self._rejected: type[Exception] = client.ApiException
        # When the calls that are forbidden until now began; None after an answer. At first, long ago.
        self._forbidden_since: float | None = -_ROLES_READ_S
        self._client = client.ApiClient(settings)
        self._core, self._batch = client.CoreV1Api(self._client), client.BatchV1Api(self._client)

    def close(self) -> None:
        self._client.close()

    # -- what the engine needs -----------------------------------------------------------------------

    def create(self, body: Json) -> None:
        """Create a Job, a service or a config map, unless it is there. Raises QuotaExceeded or Invalid."""
        calls: dict[str, tuple[Callable[..., Any], str]] = {
            "Job": (self._batch.create_namespaced_job, "Job"),
            "Service": (self._core.create_namespaced_service, "service"),
            "ConfigMap": (self._core.create_namespaced_config_map, "config map"),
        }
        call, what = calls[body["kind"]]
        with contextlib.suppress(_Conflict):
            self._ask(call, self.namespace, body, what=f"create the {what}")

    def delete_job(self, name: str) -> None:
        """Delete a Job and its pods, if it is there. Without a policy, the pods would stay."""
        what = f"delete the Job {name}"
        call = self._batch.delete_namespaced_job
        with contextlib.suppress(NotFound):
            self._ask(call, name, self.namespace, propagation_policy="Background", what=what)

    def jobs(self, selector: str) -> Iterator[Json]:
        call = self._batch.list_namespaced_job
        return self._list(_Page[_Object], call, "list Jobs", self.namespace, label_selector=selector)

    def pods(self, selector: str) -> Iterator[Json]:
        call = self._core.list_namespaced_pod
        return self._list(_Page[_Object], call, "list pods", self.namespace, label_selector=selector)

    def events_of(self, name: str) -> Iterator[Json]:
        """Return the events about the Job of a name."""
        call = self._core.list_namespaced_event
        selector = f"involvedObject.kind=Job,involvedObject.name={name}"
        return self._list(_Page[_Told], call, "list events", self.namespace, field_selector=selector)

    def nodes(self) -> Iterator[Json]:
        return self._list(_Page[_Object], self._core.list_node, "list nodes")

    def node(self, name: str) -> Json:
        """Return a node. Raises NotFound."""
        answer = self._ask(self._core.read_node, name, what=f"read the node {name}")
        return cast(Json, _parsed(answer, _Object))

    def log(self, pod: str, container: str) -> bytes:
        """Return the log of a pod's container. Raises NotFound, or Invalid if its node does not give it."""
        what = f"read the log of {pod}"
        try:
            return self._ask(
                self._core.read_namespaced_pod_log, pod, self.namespace, container=container,
                limit_bytes=LARGEST, what=what,
            )  # fmt: skip
        except _ServerError as error:
            # The API server is there, and could not reach the node.
            if error.status == 500:
                raise Invalid(str(error)) from None
            raise

    # -- one call ------------------------------------------------------------------------------------

    def _list(
        self, kind: type[_Page[T]], call: Callable[..., Any], what: str, *arguments: str, **options: str
    ) -> Iterator[Json]:
        following: str | None = None
        for _ in range(_MOST_PAGES):
            more = {"_continue": following} if following else {}
            page = _parsed(self._ask(call, *arguments, limit=_PAGE, what=what, **options, **more), kind)
            yield from cast(list[Json], page.items or [])
            following = page.metadata.following
            if not following:
                return
        raise InputError(f"the API server's answer to {what} has more than {_MOST_PAGES} pages")

    def _ask(self, call: Callable[..., Any], *arguments: Any, what: str, **options: Any) -> bytes:
        """Return the body of an answer. Raises FleetDown if there is none within the limit."""
        deadline = time.monotonic() + self._limit_s
        try:
            answer = call(
                *arguments, **options, _preload_content=False, _request_timeout=(_CONNECT_S, self._limit_s)
            )
            try:
                # An odd date changes nothing.
                with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError):
                    date = email.utils.parsedate_to_datetime(answer.headers.get("Date"))
                    self.now = date.replace(tzinfo=date.tzinfo or datetime.timezone.utc)
                self._forbidden_since = None
                content = bytearray()
                # `read` waits for a whole chunk. Before urllib3 2.2 there is nothing else.
                read = getattr(answer, "read1", answer.read)
                while chunk := read(_CHUNK):
                    content += chunk
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"its answer to {what} was not complete in time")
                    if len(content) > LARGEST:
                        raise InputError(
                            f"the API server's answer to {what} has more than {LARGEST >> 20} MiB"
                        )
                return bytes(content)
            finally:
                answer.release_conn()
        except self._rejected as error:
            raise self._explain(error, what) from None
        except SSLError as error:
            raise MissingError(
                f"the API server {self.server} can't be trusted: {error}",
                hint="the kubeconfig has to name the authority that signed its certificate",
            ) from None
        except (HTTPError, OSError) as error:
            raise FleetDown(
                f"the API server {self.server} does not answer: {_short(error)}",
                hint="`kubectl get nodes` shows if it can be reached",
            ) from None

    def _explain(self, error: Any, what: str) -> ValidatorError:
        status, text = int(error.status or 0), _message(error.body)
        if status == 401:
            return MissingError(
                f"the API server {self.server} rejects the credentials: {text}",
                hint="renew those in the kubeconfig, then run `fleet resume` to go on",
            )
        if status == 403 and "exceeded quota" in text:
            return QuotaExceeded(text)
        if status == 403:
            now = time.monotonic()
            if self._forbidden_since is None:
                self._forbidden_since = now
            if now - self._forbidden_since < _ROLES_READ_S:
                return FleetDown(f"the API server {self.server} now forbids what it allowed before: {text}")
            return MissingError(
                f"this user may not {what}: {text}",
                hint="`fleet manifests` prints the permissions that an administrator has to grant",
            )
        if status in (404, 409):
            return (NotFound if status == 404 else _Conflict)(text)
        if status in (400, 413, 422):
            return Invalid(f"the API server can't {what}: {text}")
        if status == 429 or status >= 500:
            return _ServerError(f"the API server {self.server} could not {what}: {text}", status)
        return InputError(f"the API server {self.server} could not {what} ({status}): {text}")


def _parsed(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FleetDown(f"the API server's answer is incomplete: {error}") from None


def _message(body: Any) -> str:
    """Return the message of a Status object, or the beginning of another body."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return str(msgspec.json.decode(text).get("message") or text)[:1000]
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return text.strip()[:300] or "no message"


def _short(error: BaseException) -> str:
    return str(error).replace("\n", " ")[:300] or type(error).__name__
