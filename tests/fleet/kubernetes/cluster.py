"""A small Kubernetes cluster on 127.0.0.1: a real control plane, simulated nodes, and if wanted one real
node.

    python -m tests.fleet.kubernetes.cluster up DIRECTORY [--kubelet]
    python -m tests.fleet.kubernetes.cluster down DIRECTORY
    python -m tests.fleet.kubernetes.cluster kill DIRECTORY PART

`up` prints the kubeconfig. Simulated nodes run nothing, see `simulated_node.py`. The real node needs root and
runs containers with containerd and runc. Everything is under DIRECTORY, whose path may have 72 characters.
`kill` ends one part as a lost machine does; `up` starts again what is missing, with all objects as they were.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validator.system.files import cache_directory

from .certificates import Authority, write_kubeconfig
from .real_node import RealNode, remove_control_groups

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "fleet"
#: The programs of the control plane, in the order in which they start.
BUILD = ".ci/kubernetes"
#: Marks the processes of one cluster: a process id alone may belong to another process by now.
_MARK = "TESTS_KUBERNETES_CLUSTER"


@dataclass(frozen=True)
class NodeClass:
    """A node as the GPU operator labels it. version: of the driver. memory: MiB."""

    name: str
    version: str
    product: str
    family: str
    memory: int
    compute: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels of GPU Feature Discovery."""
        branch, minor, revision = self.version.split(".")
        major, _, below = self.compute.partition(".")
        return {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.product": self.product,
            "nvidia.com/gpu.family": self.family,
            "nvidia.com/gpu.memory": str(self.memory),
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.compute.major": major,
            "nvidia.com/gpu.compute.minor": below,
            "nvidia.com/cuda.driver.major": branch,
            "nvidia.com/cuda.driver.minor": minor,
            "nvidia.com/cuda.driver.rev": revision,
            "nvidia.com/cuda.driver-version.major": branch,
            "nvidia.com/cuda.driver-version.minor": minor,
            "nvidia.com/cuda.driver-version.revision": revision,
            "nvidia.com/cuda.driver-version.full": self.version,
        }


NODES = (
    NodeClass("r535-t4", "535.104.05", "Tesla-T4", "turing", 15360, "7.5"),
    NodeClass("r550-a100", "550.54.15", "NVIDIA-A100-SXM4-80GB", "ampere", 81920, "8.0"),
    NodeClass("r580-h100", "580.65.06", "NVIDIA-H100-80GB-HBM3", "hopper", 81559, "9.0"),
    NodeClass("r580-l4", "580.65.06", "NVIDIA-L4", "ada-lovelace", 23034, "8.9"),
)
REAL_NODE = NodeClass("127.0.0.1", "570.86.15", "NVIDIA-A10", "ampere", 23028, "8.6")


class ClusterError(Exception):
    """The cluster does not do what it should. The message has the end of the log."""


def programs() -> Path | None:
    """Return the directory that `.ci/kubernetes` built, or None."""
    named = os.environ.get("VALIDATOR_KUBERNETES")
    built = Path(named).resolve() if named else cache_directory() / "kubernetes"
    return built if (built / "version").is_file() else None


def free_ports(count: int) -> list[int]:
    """Return free ports below the range of outgoing connections, so that they are free after a restart
    too.
    """
    found: list[int] = []
    start = random.randrange(20000, 31000)
    for port in range(start, start + 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise ClusterError("there are no free ports")


@dataclass
class Cluster:
    """A cluster in a directory. built: what `.ci/kubernetes` made. registry: an address that the real node
    may pull from without TLS.
    """

    directory: Path
    built: Path
    ports: list[int]
    nodes: tuple[NodeClass, ...] = NODES
    kubelet: bool = False
    qps: int = 300
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def create(cls, directory: Path, built: Path, **settings: Any) -> Cluster:
        """Make the directory of a new cluster, or read that of one that exists."""
        directory.mkdir(parents=True, exist_ok=True)
        directory = directory.resolve()
        if len(str(directory)) > 72:
            raise ClusterError(f"{directory} is too long for the sockets under it: 72 characters at most")
        saved = directory / "settings.json"
        if not saved.is_file():
            cluster = cls(directory, built, free_ports(4 + len(NODES)), **settings)
            for name in ("etc", "pki", "etcd", "log", "pids", "behaviour"):
                (directory / name).mkdir()
            Authority(directory / "pki").make_all()
            cluster.write_kubeconfig(directory / "kubeconfig", "admin")
            for client in ("fleet", "nobody", "expired"):
                cluster.write_kubeconfig(directory / f"kubeconfig-{client}", client)
            for client in ("controller-manager", "scheduler", "kubelet"):
                cluster.write_kubeconfig(directory / "etc" / f"{client}.kubeconfig", client, "default")
            saved.write_text(json.dumps({"ports": cluster.ports, "kubelet": cluster.kubelet}))
        content = json.loads(saved.read_text())
        return cls(directory, built, content["ports"], kubelet=content["kubelet"])

    def write_kubeconfig(self, path: Path, client: str, namespace: str = NAMESPACE) -> None:
        write_kubeconfig(path, self.url, self.directory / "pki", client, namespace)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports[0]}"

    @property
    def kubeconfig(self) -> Path:
        """Return the file of the user `fleet`, who has only the rights that `fleet manifests` gives."""
        return self.directory / "kubeconfig-fleet"

    # -- processes -----------------------------------------------------------------------------------

    def start(self, without: Collection[str] = ()) -> None:
        """Start everything that does not run, except some nodes, and wait until the others are ready."""
        if not self.runs("etcd"):
            # An API server that lost its etcd takes up to a minute to find it again; a new one takes 4 s.
            self.kill("kube-apiserver")
        for name, command in self._commands():
            if name not in without and not self.runs(name):
                self._start(name, command)
            if name == "kube-apiserver":
                self._wait(60, self._answers, "kube-apiserver")
        self._apply_rights()
        if self.kubelet:
            node = self._real_node()
            if not self.runs("kubelet"):
                node.prepare()
                self._start("kubelet", node.command)
            self._wait(60, lambda: node.is_registered(self), "kubelet")
        expected = {node.name for node in self.nodes} | ({REAL_NODE.name} if self.kubelet else set())
        self._wait(60, lambda: self.ready_nodes() >= expected - {*without}, "kube-controller-manager")

    def stop(self) -> None:
        """End everything."""
        names = [path.stem for path in (self.directory / "pids").glob("*.pid")]
        for name in sorted(names, key=lambda name: (name == "etcd", name)):
            self.kill(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a part at once: a program of the control plane, a node by its name, or `kubelet`."""
        pid = self._pid(name)
        if pid is not None:
            os.kill(pid, number)
            if name in self._processes:
                self._processes.pop(name).wait()
            self._wait(15, lambda: self._pid(name) is None, name)
        if name == "kubelet":
            remove_control_groups(self.directory)

    def pause(self, name: str) -> None:
        """Make a part hang until `resume`."""
        pid = self._pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        # The signal is delivered to one thread, and the others may answer one more request.
        states = list(Path(f"/proc/{pid}/task").glob("*/stat"))
        self._wait(10, lambda: all(_is_stopped(path) for path in states), name)

    def resume(self, name: str) -> None:
        pid = self._pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGCONT)

    def runs(self, name: str) -> bool:
        return self._pid(name) is not None

    def _pid(self, name: str) -> int | None:
        """Return the id of a part's process. A zombie and another program's process don't count."""
        try:
            pid = int((self.directory / "pids" / f"{name}.pid").read_text())
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if f"{_MARK}={self.directory}".encode() in environment else None

    def _start(self, name: str, command: list[str]) -> None:
        environment = {
            "PATH": f"{self.built}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(self.directory),
            "LANG": "C",
            _MARK: str(self.directory),
        }
        with open(self.directory / "log" / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        (self.directory / "pids" / f"{name}.pid").write_text(str(process.pid))

    def _wait(self, seconds: float, done: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                log = (self.directory / "log" / f"{name}.log").read_text(errors="replace")
                raise ClusterError(f"{name} is not ready after {seconds} s:\n{log[-3000:]}")
            time.sleep(0.1)

    def _commands(self) -> Iterator[tuple[str, list[str]]]:
        """Return the programs of the control plane and the simulated nodes, with their command lines."""
        api, etcd, peers, *of_nodes = self.ports
        pki, etc, program = self.directory / "pki", self.directory / "etc", self.built / "bin"
        yield "etcd", [
            f"{program}/etcd", f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}", f"--initial-cluster=default=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
        ]  # fmt: skip
        yield "kube-apiserver", [
            f"{program}/kube-apiserver", "--bind-address=127.0.0.1", f"--secure-port={api}",
            "--insecure-port=0", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            "--profiling=false", f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/server.crt",
            f"--tls-private-key-file={pki}/server.key", f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key", "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki}/accounts.pub", "--authorization-mode=Node,RBAC",
            f"--service-account-signing-key-file={pki}/accounts.key", "--feature-gates=TTLAfterFinished=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--enable-admission-plugins=NodeRestriction,ResourceQuota",
        ]  # fmt: skip
        # With Kubernetes' own limits the controllers are slower than any client.
        limits = [f"--kube-api-qps={self.qps}", f"--kube-api-burst={2 * self.qps}"]
        yield "kube-controller-manager", [
            f"{program}/kube-controller-manager", "--port=0", "--secure-port=0", "--leader-elect=false",
            f"--kubeconfig={etc}/controller-manager.kubeconfig", "--use-service-account-credentials",
            f"--service-account-private-key-file={pki}/accounts.key", f"--root-ca-file={pki}/ca.crt",
            "--node-monitor-period=2s", "--node-monitor-grace-period=16s", *limits,
            "--feature-gates=TTLAfterFinished=true",
        ]  # fmt: skip
        yield "kube-scheduler", [
            f"{program}/kube-scheduler", "--port=0", "--secure-port=0", "--leader-elect=false",
            f"--kubeconfig={etc}/scheduler.kubeconfig", *limits,
        ]  # fmt: skip
        for node, port in zip(self.nodes, of_nodes[1:], strict=True):
            yield node.name, [
                sys.executable, "-m", "tests.fleet.kubernetes.simulated_node", node.name, str(api), str(port),
                str(self.directory), json.dumps(node.labels),
            ]  # fmt: skip

    # -- objects -------------------------------------------------------------------------------------

    def api(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", timeout_s: float = 20
    ) -> Any:
        """Call the API as an administrator and return its JSON. Raises ClusterError unless it succeeds."""
        status, answer = self._call(method, path, body, kind, timeout_s)
        if status >= 300:
            raise ClusterError(f"{method} {path}: {status} {answer}")
        return answer

    def patch(self, path: str, body: Any) -> Any:
        return self.api("PATCH", path, body, "application/strategic-merge-patch+json")

    def objects(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind, such as `pods` or `jobs`, in the fleet's namespace."""
        group = "apis/batch/v1" if kind == "jobs" else "api/v1"
        query = f"?labelSelector={selector}" if selector else ""
        items: list[dict[str, Any]] = self.api("GET", f"/{group}/namespaces/{NAMESPACE}/{kind}{query}")[
            "items"
        ]
        return items

    def ready_nodes(self) -> set[str]:
        items = self.api("GET", "/api/v1/nodes")["items"]
        return {item["metadata"]["name"] for item in items if _is_ready(item)}

    def behave(self, pattern: str, **behaviour: Any) -> None:
        """Say how simulated nodes run the pods whose name or image matches; see `simulated_node.Behaviour`.

        The rule that was added last wins.
        """
        path = self.directory / "behaviour" / f"{time.time_ns()}.json"
        path.with_suffix(".new").write_text(json.dumps({"pattern": pattern, **behaviour}))
        path.with_suffix(".new").rename(path)

    def clear(self) -> None:
        """Remove all jobs, pods and config maps of the namespace, and all behaviours."""
        for path in (self.directory / "behaviour").glob("*.json"):
            path.unlink()
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        self.api("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", options)
        force = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for kind in ("pods", "resourcequotas", "events"):
            self.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/{kind}", force)
        for item in self.objects("configmaps"):
            name = item["metadata"]["name"]
            if name.startswith("tfm-"):
                self.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
        self._wait(
            30, lambda: not self.objects("pods") and not self.objects("jobs"), "kube-controller-manager"
        )

    def _call(self, method: str, path: str, body: Any, kind: str, timeout_s: float) -> tuple[int, Any]:
        pki = self.directory / "pki"
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        link = http.client.HTTPSConnection("127.0.0.1", self.ports[0], timeout=timeout_s, context=tls)
        try:
            link.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
            answer = link.getresponse()
            content = answer.read()
        finally:
            link.close()
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()

    def _answers(self) -> bool:
        try:
            return bool(self.api("GET", "/readyz", timeout_s=2) == "ok")
        except (OSError, ClusterError, http.client.HTTPException):
            return False

    def _apply_rights(self) -> None:
        """Make the namespace, and give the user `fleet` what `fleet manifests` gives."""
        from validator.fleet.kubernetes_objects import rights

        for item in rights(NAMESPACE, user="fleet"):
            group = "api/v1" if item["apiVersion"] == "v1" else f"apis/{item['apiVersion']}"
            namespace = item["metadata"].get("namespace")
            place = f"namespaces/{namespace}/" if namespace else ""
            kind = item["kind"].lower().removesuffix("y")
            kind += "ies" if item["kind"].endswith("y") else "s"
            status, answer = self._call("POST", f"/{group}/{place}{kind}", item, "application/json", 20)
            if status not in (201, 409):
                raise ClusterError(f"{item['kind']}: {answer}")
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        self._wait(30, lambda: self._call("GET", account, None, "", 20)[0] == 200, "kube-controller-manager")

    def _real_node(self) -> RealNode:
        return RealNode(self.directory, self.built, self.ports[3], REAL_NODE.labels)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _is_stopped(stat: Path) -> bool:
    # Its state is behind the name, which is in parentheses: `12 (etcd) T 1 …`.
    return stat.read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def running_cluster(directory: Path, *, kubelet: bool = False) -> Iterator[Cluster]:
    """Run a cluster in an empty directory. Raises ClusterError if `.ci/kubernetes` has not run."""
    built = programs()
    if built is None:
        raise ClusterError(f"there is no control plane: run {BUILD}")
    cluster = Cluster.create(directory, built, kubelet=kubelet)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "down", "kill"):
        command = commands.add_parser(name)
        command.add_argument("directory", type=Path)
        if name == "up":
            command.add_argument("--kubelet", action="store_true")
        if name == "kill":
            command.add_argument("part")
    given = parser.parse_args()
    built = programs()
    if built is None:
        sys.exit(f"there is no control plane: run {BUILD}")
    settings = {"kubelet": given.kubelet} if given.command == "up" else {}
    cluster = Cluster.create(given.directory, built, **settings)
    if given.command == "up":
        cluster.start()
        print(f"export KUBECONFIG={cluster.kubeconfig}")
    elif given.command == "kill":
        cluster.kill(given.part)
    else:
        cluster.stop()


if __name__ == "__main__":
    main()
