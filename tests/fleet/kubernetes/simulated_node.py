"""A simulated node: it keeps its Node object ready and moves the pods bound to it through their states.

    python -m tests.fleet.kubernetes.simulated_node NAME API_PORT OWN_PORT CLUSTER_DIRECTORY LABELS_AS_JSON

It runs nothing. What a pod does is in the last rule of `CLUSTER_DIRECTORY/behaviour/` whose pattern matches
the pod's name or image; without a rule, the pod succeeds after a moment with a report in its log, as
`inside.py` writes.
"""

from __future__ import annotations

import hashlib
import heapq
import http.client
import http.server
import itertools
import json
import re
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from validator.fleet.inside import frame

Json = dict[str, Any]
_PATCH = "application/strategic-merge-patch+json"
_OTHERS = ("waiting", "running", "terminated")


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a pod.

    seconds: how long it runs; None for ever. waiting: it never starts, for this reason (`ImagePullBackOff`),
    for `waiting_s` seconds or for ever. exit_code, reason: of its end. log, message: None for a whole report;
    `cut` removes the end of the log. image_id: None for that of the image.
    """

    pattern: str = ""
    seconds: float | None = 0.2
    waiting: str = ""
    waiting_s: float | None = None
    exit_code: int = 0
    reason: str = ""
    log: str | None = None
    message: str | None = None
    cut: bool = False
    image_id: str | None = None


def report_of(pod: Json) -> bytes:
    """Return the report of a simulated pod, which says who made it."""
    unit = pod["metadata"].get("labels", {}).get("job-name", "")
    content = {"unit": unit, "pod": pod["metadata"]["uid"], "node": pod["spec"].get("nodeName"), "checks": []}
    return json.dumps(content, sort_keys=True).encode()


def ending_of(pod: Json) -> bytes:
    content = report_of(pod)
    return json.dumps({
        "status": 0, "timed_out": False, "overflow": False, "report": hashlib.sha256(content).hexdigest(),
        "length": len(content), "limit_s": 60.0, "last_line": "", "started": _now(), "finished":
        _now(),
    }, sort_keys=True).encode()  # fmt: skip


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Node:
    """The node, its link to the API server, and the pods that it knows."""

    def __init__(self, name: str, api: int, port: int, directory: Path, labels: dict[str, str]) -> None:
        self.name, self._api, self._port, self._directory, self._labels = name, api, port, directory, labels
        pki = directory / "pki"
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._local = threading.local()
        self._timers: list[tuple[float, int, Callable[[Json], None], Json]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self.pods: dict[str, Json] = {}

    def run(self) -> None:
        for work in (self._heartbeat, self._clock):
            threading.Thread(target=work, daemon=True).start()
        self._watch()

    # -- what it says about itself and its pods ------------------------------------------------------

    def _heartbeat(self) -> None:
        size = {
            "cpu": "32",
            "memory": "128Gi",
            "pods": "110",
            "ephemeral-storage": "100Gi",
            "nvidia.com/gpu": "1",
        }
        since = _now()
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", **self._labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
        while True:
            conditions = [
                {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Simulated",
                 "lastHeartbeatTime": _now(), "lastTransitionTime": since}
                for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
            ]  # fmt: skip
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            endpoints = {"kubeletEndpoint": {"Port": self._port}}
            status = {"capacity": size, "allocatable": size, "conditions": conditions, "addresses": addresses,
                      "daemonEndpoints": endpoints}  # fmt: skip
            try:
                if self._call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status})[0] == 404:
                    self._call("POST", "/api/v1/nodes", node)
                    continue
            except (OSError, http.client.HTTPException) as error:
                print(_now(), "heartbeat:", error, flush=True)
            time.sleep(3)

    def _set(self, pod: Json, phase: str, state: Json) -> bool:
        meta, old = pod["metadata"], pod.get("status", {})
        start = old.get("startTime") or _now()
        behaviour = self._behaviour(pod)
        (key, value), *_ = state.items()
        if key == "terminated":
            message = behaviour.message if behaviour.message is not None else ending_of(pod).decode()
            value |= {"startedAt": start, "finishedAt": _now(), "message": message[:4096]}
        ready = "True" if key == "running" else "False"
        image = pod["spec"]["containers"][0]["image"]
        container = {
            "name": pod["spec"]["containers"][0]["name"], "image": image, "restartCount": 0,
            "ready": ready == "True",
            "imageID": "" if key == "waiting" else behaviour.image_id or image,
            "state": {key: value, **{other: None for other in _OTHERS if other != key}},
        }  # fmt: skip
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": _now()}
            for kind, status in (("Initialized", "True"), ("Ready", ready), ("ContainersReady", ready))
        ]
        body = {"metadata": {"uid": meta["uid"]}, "status": {
            "phase": phase, "startTime": start, "hostIP": "127.0.0.1", "conditions": conditions,
            "containerStatuses": [container]}}  # fmt: skip
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        code, answer = self._call("PATCH", path, body)
        if code == 200:
            pod["status"] = answer["status"]
        return code == 200

    def _behaviour(self, pod: Json) -> Behaviour:
        image = pod["spec"]["containers"][0]["image"]
        for path in sorted((self._directory / "behaviour").glob("*.json"), reverse=True):
            rule = json.loads(path.read_text())
            if re.search(rule["pattern"], f"{pod['metadata']['name']} {image}"):
                return Behaviour(**rule)
        return Behaviour()

    # -- the life of a pod ---------------------------------------------------------------------------

    def _begin(self, pod: Json) -> None:
        behaviour = self._behaviour(pod)
        if behaviour.waiting:
            waiting = {"reason": behaviour.waiting, "message": "simulated"}
            self._set(pod, "Pending", {"waiting": waiting})
            if behaviour.waiting_s is not None:
                self._later(behaviour.waiting_s, self._run, pod)
        else:
            self._run(pod)

    def _run(self, pod: Json) -> None:
        if self._set(pod, "Running", {"running": {"startedAt": _now()}}):
            self._lasts(pod)

    def _lasts(self, pod: Json) -> None:
        seconds = self._behaviour(pod).seconds
        if seconds is not None:
            self._later(seconds, self._finish, pod)

    def _finish(self, pod: Json) -> None:
        behaviour = self._behaviour(pod)
        reason = behaviour.reason or ("Error" if behaviour.exit_code else "Completed")
        state = {"exitCode": behaviour.exit_code, "reason": reason}
        self._set(pod, "Failed" if behaviour.exit_code else "Succeeded", {"terminated": state})

    def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                   "preconditions": {"uid": meta["uid"]}}  # fmt: skip
        self._call("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", options)

    def log_of(self, name: str) -> bytes | None:
        for pod in list(self.pods.values()):
            if pod["metadata"]["name"] == name:
                behaviour = self._behaviour(pod)
                if behaviour.log is not None:
                    return behaviour.log.encode()
                whole = b"a line before\n" + frame("report", report_of(pod)) + frame("ending", ending_of(pod))
                return whole[: whole.rindex(b"tfm-end")] if behaviour.cut else whole
        return None

    # -- the API -------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        kind = _PATCH if method == "PATCH" else "application/json"
        try:
            if not getattr(self._local, "link", None):
                self._local.link = self._connect(10)
            self._local.link.request(method, path, json.dumps(body) if body else None, {"Content-Type": kind})
            answer = self._local.link.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self._local.link = None
            raise

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._api, timeout=timeout_s, context=self._tls)

    def _later(self, seconds: float, action: Callable[[Json], None], pod: Json) -> None:
        with self._changed:
            heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action, pod))
            self._changed.notify()

    def _clock(self) -> None:
        while True:
            with self._changed:
                while not self._timers or self._timers[0][0] > time.monotonic():
                    self._changed.wait(self._timers[0][0] - time.monotonic() if self._timers else None)
                _, _, action, pod = heapq.heappop(self._timers)
            known = self.pods.get(pod["metadata"]["uid"])
            if known is None or (action != self._remove and known["metadata"].get("deletionTimestamp")):
                continue
            try:
                action(pod)
            except (OSError, http.client.HTTPException) as error:
                print(_now(), pod["metadata"]["name"], error, flush=True)
                self._later(1, action, pod)

    def _seen(self, pod: Json) -> None:
        before = self.pods.get(pod["metadata"]["uid"])
        self.pods[pod["metadata"]["uid"]] = pod
        if pod["metadata"].get("deletionTimestamp"):
            if not before or not before["metadata"].get("deletionTimestamp"):
                self._later(0.3, self._remove, pod)
        elif before is None:
            phase = pod.get("status", {}).get("phase")
            if phase == "Pending":
                self._later(0, self._begin, pod)
            elif phase == "Running":
                self._lasts(pod)

    def _watch(self) -> None:
        path = "/api/v1/pods?fieldSelector=spec.nodeName%3D" + self.name
        while True:
            try:
                listing = self._call("GET", path)[1]
                for gone in set(self.pods) - {pod["metadata"]["uid"] for pod in listing["items"]}:
                    del self.pods[gone]
                for pod in listing["items"]:
                    self._seen(pod)
                link = self._connect(330)
                version = listing["metadata"]["resourceVersion"]
                link.request("GET", f"{path}&watch=1&timeoutSeconds=300&resourceVersion={version}")
                for line in link.getresponse():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    if event["type"] == "DELETED":
                        self.pods.pop(event["object"]["metadata"]["uid"], None)
                    else:
                        self._seen(event["object"])
            except (OSError, http.client.HTTPException, KeyError, json.JSONDecodeError) as error:
                print(_now(), "watch:", error, flush=True)
                time.sleep(0.5)


def serve_logs(node: Node, port: int, pki: Path) -> None:
    """Answer the API server's requests for logs, in a thread."""

    class Logs(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # /containerLogs/NAMESPACE/POD/CONTAINER
            parts = urllib.parse.urlsplit(self.path).path.split("/")
            log = node.log_of(parts[3]) if parts[1] == "containerLogs" else None
            self.send_response(404 if log is None else 200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(log or b"")

        def log_message(self, *_: Any) -> None:
            pass

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(pki / "server.crt", pki / "server.key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Logs)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    name, api, port, directory, labels = sys.argv[1:]
    node = Node(name, int(api), int(port), Path(directory), json.loads(labels))
    serve_logs(node, int(port), Path(directory) / "pki")
    node.run()


if __name__ == "__main__":
    main()
