"""The engine with a real kubelet: the probe itself runs in a container, pulled by digest from a registry."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec
import pytest

from validator.engines.protocol import ProbeRequest, probe_request
from validator.fleet import kubernetes_objects
from validator.fleet.kubernetes import Api, Kubernetes
from validator.fleet.kubernetes_objects import UNIT_LABEL
from validator.fleet.protocol import Fault, Handle, Phase, State, Unit
from validator.fleet.settings import KubernetesSection
from validator.model.record import labelled
from validator.model.report import read_report

from ...registry.server import RunningRegistry
from ..making import digest, unit
from .cluster import NAMESPACE, Cluster
from .conftest import kubernetes
from .images import push_rootfs

CHALLENGE = "ab" * 32
HOST_CLASS = "r570-a10"


@pytest.fixture(scope="module")
@kubernetes
def image(with_kubelet: Cluster, server: RunningRegistry) -> str:
    """Return the reference of an image with Python and without TensorFlow."""
    return push_rootfs(with_kubelet.built / "rootfs", server.address, "fleet/python")


@pytest.fixture
@kubernetes
def fleet(with_kubelet: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    monkeypatch.setenv("KUBECONFIG", str(with_kubelet.kubeconfig))
    opened = Kubernetes(KubernetesSection(), Api())
    yield opened
    opened.close()
    with_kubelet.start()
    with_kubelet.clear()


def of(reference: str, number: int) -> Unit:
    made = unit(number, HOST_CLASS)
    return msgspec.structs.replace(made, reference=reference, image_digest=reference.partition("@")[2])


def run(fleet: Kubernetes, wanted: Unit, request: ProbeRequest) -> Handle:
    handle = fleet.submit([wanted], {wanted.name: request})[wanted.name]
    assert isinstance(handle, str), handle
    return handle


def wait(fleet: Kubernetes, handle: Handle, *phases: Phase, seconds: float = 90) -> State:
    deadline = time.monotonic() + seconds
    while True:
        state = fleet.poll([handle]).get(handle, State(Phase.GONE))
        if state.phase in phases:
            return state
        assert time.monotonic() < deadline, state
        time.sleep(0.2)


def script(text: str, timeout_s: float = 60.0) -> ProbeRequest:
    """Return a request whose probe is any Python script."""
    return ProbeRequest(text.encode(), (), {"lock.txt": b""}, timeout_s)


def test_the_probe_runs_in_a_pod_and_its_report_comes_back(
    fleet: Kubernetes, with_kubelet: Cluster, image: str
) -> None:
    wanted = of(image, 1)
    request = probe_request("quick", b"numpy==2.0\n", challenge=CHALLENGE)
    handle = run(fleet, wanted, request)
    state = wait(fleet, handle, Phase.ENDED, Phase.LOST)
    assert (state.phase, state.node) == (Phase.ENDED, "127.0.0.1"), fleet.logs(handle)
    answer = fleet.collect(handle)
    assert answer.report is not None
    report = read_report(answer.report)
    assert report.raw["challenge"] == CHALLENGE
    # The image has no TensorFlow, which is a verdict and not a fault.
    assert {check.id: check.outcome.value for check in report.checks}["tensorflow_build"] != "pass"
    assert answer.image_digest == wanted.image_digest
    assert answer.engine == "containerd"
    assert answer.outside == labelled("570.86.15", "NVIDIA-A10", "8.6", 1)
    [pod] = with_kubelet.objects("pods", f"{UNIT_LABEL}={handle}")
    message = json.loads(pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"])
    assert message["report"] is not None
    assert message["length"] == len(answer.report)


_LOOK = """
import json, os, socket
mounts = [line.split()[1] for line in open("/proc/mounts")]
def fails(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return None
print(json.dumps({
    "user": os.getuid(), "token": os.path.exists("/var/run/secrets/kubernetes.io"),
    "environment": sorted(os.environ), "home": os.listdir("/tmp"),
    "probe": fails(lambda: open("probe.pyz", "a")), "root": fails(lambda: open("/file", "w")),
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")][0],
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
    "seccomp": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")][0],
}))
"""


def test_a_pod_sees_no_home_no_credentials_and_nothing_that_it_may_change(
    fleet: Kubernetes, image: str
) -> None:
    handle = run(fleet, of(image, 2), script(_LOOK))
    wait(fleet, handle, Phase.ENDED)
    report = fleet.collect(handle).report
    assert report is not None
    found = json.loads(report)
    assert (found["user"], found["token"], found["home"]) == (65534, False, [])
    assert (found["privileges"], int(found["capabilities"], 16), found["seccomp"]) == ("1", 0, "2")
    assert found["probe"] in ("PermissionError", "OSError")
    assert found["root"] == "PermissionError"
    # What Kubernetes itself sets: the name of the pod, and the address of the API server.
    own = {name for name in found["environment"] if not name.startswith("KUBERNETES_")}
    assert own <= {"HOME", "HOSTNAME", "PATH", "PWD", "SHLVL", "LC_CTYPE", "OLDPWD", "_"}


def test_a_probe_that_exceeds_its_limit_is_a_verdict_with_its_log(fleet: Kubernetes, image: str) -> None:
    """The limit inside the container comes before that of the pod, which would end it without a word."""
    handle = run(fleet, of(image, 3), script("import time\ntime.sleep(600)\n", timeout_s=2.0))
    state = wait(fleet, handle, Phase.ENDED, Phase.LOST)
    assert state.phase is Phase.ENDED
    answer = fleet.collect(handle)
    assert (answer.report, answer.failure) == (
        None, "the probe exceeded its time limit of 2 s and was stopped",
    )  # fmt: skip


def test_the_deadline_of_a_pod_is_a_fault_and_keeps_the_log(
    fleet: Kubernetes, with_kubelet: Cluster, image: str
) -> None:
    handle = run(fleet, of(image, 4), script("import time\ntime.sleep(600)\n"))
    wait(fleet, handle, Phase.RUNNING)
    [pod] = with_kubelet.objects("pods", f"{UNIT_LABEL}={handle}")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    with_kubelet.patch(path, {"spec": {"activeDeadlineSeconds": 1}})
    state = wait(fleet, handle, Phase.ENDED, Phase.LOST)
    assert (state.phase, state.fault) == (Phase.LOST, Fault.DEADLINE)
    assert len(with_kubelet.objects("pods", f"{UNIT_LABEL}={handle}")) == 1


def test_an_image_that_the_registry_does_not_have_is_named(
    fleet: Kubernetes, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_objects, "START_LIMIT_S", 3.0)
    absent = f"{image.partition('@')[0]}@{digest('absent')}"
    handle = run(fleet, of(absent, 5), script(""))
    state = wait(fleet, handle, Phase.LOST)
    assert state.fault is Fault.IMAGE_MISSING, state


def test_an_image_without_a_shell_is_a_fault(
    fleet: Kubernetes,
    with_kubelet: Cluster,
    server: RunningRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    empty = tmp_path_factory.mktemp("rootfs")
    (empty / "file").write_text("nothing else")
    handle = run(fleet, of(push_rootfs(empty, server.address, "fleet/empty"), 6), script(""))
    state = wait(fleet, handle, Phase.LOST)
    assert state.fault is Fault.NOT_STARTED, state


def test_a_node_that_dies_loses_the_unit_and_runs_the_next_attempt_after_it_is_back(
    fleet: Kubernetes, with_kubelet: Cluster, image: str
) -> None:
    wanted = of(image, 7)
    handle = run(fleet, wanted, script("import time\ntime.sleep(600)\n"))
    wait(fleet, handle, Phase.RUNNING)
    with_kubelet.kill("kubelet")
    with_kubelet.start()
    state = wait(fleet, handle, Phase.ENDED, Phase.LOST)
    assert (state.phase, state.fault) == (Phase.LOST, Fault.NODE_LOST)
    again = wanted.next_attempt()
    assert again is not None
    handle = run(fleet, again, script("print('{}')"))
    wait(fleet, handle, Phase.ENDED)
    assert fleet.collect(handle).report == b"{}\n"
