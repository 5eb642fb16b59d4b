"""The API of Kubernetes through the official Python client, with time limits that hold, and JSON as it came.

The client repeats what failed, and its time limit counts for each try: a list with a limit of 5 s blocked for
20 s. Here nothing is repeated, and the limit also counts for an answer that comes slowly. The client's own
model objects are not made, because they take most of its time and memory.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypedDict, TypeVar, cast

import msgspec
import yaml
from urllib3.exceptions import HTTPError, SSLError

from ..errors import InputError, MissingError, ValidatorError
from .protocol import FleetDown

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


class _Limits(TypedDict, total=False):
    limits: dict[str, str] | None


class _Asked(TypedDict, total=False):
    resources: _Limits


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
        # When the first of the calls was forbidden that were all forbidden since; at first, long ago.
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
