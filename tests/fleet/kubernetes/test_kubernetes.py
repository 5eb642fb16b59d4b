"""The engine on a real control plane with simulated nodes: what it submits, what comes back, and every
fault.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from validator.engines.protocol import ProbeRequest
from validator.errors import MissingError
from validator.fleet import kubernetes_objects
from validator.fleet.kubernetes import Kubernetes
from validator.fleet.protocol import CutError, Fault, FleetDown, Handle, Phase, Refused, State, Unit
from validator.fleet.settings import KubernetesPlace, KubernetesSection
from validator.model.record import labelled

from ..making import unit
from .cluster import NAMESPACE, Cluster
from .conftest import Open

REQUEST = ProbeRequest(b"archive", ("--depth", "quick"), {"lock.txt": b"numpy==2.0\n"}, timeout_s=60.0)
ENDINGS = (Phase.ENDED, Phase.LOST)
BACKGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}


def submit(fleet: Kubernetes, *units: Unit) -> Mapping[str, Handle | Refused]:
    return fleet.submit(units, {each.name: REQUEST for each in units})


def submitted(fleet: Kubernetes, *units: Unit) -> list[Handle]:
    found = submit(fleet, *units)
    assert all(isinstance(found[each.name], str) for each in units), found
    return [str(found[each.name]) for each in units]


def wait(
    fleet: Kubernetes, handles: Sequence[Handle], until: Callable[[State], bool], seconds: float = 60
) -> list[State]:
    """Poll until every state is as wanted."""
    deadline = time.monotonic() + seconds
    while True:
        states = fleet.poll(handles)
        found = [states.get(handle, State(Phase.GONE)) for handle in handles]
        if all(until(state) for state in found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def ended(state: State) -> bool:
    return state.phase in ENDINGS


def running(state: State) -> bool:
    return state.phase is Phase.RUNNING


def pods(cluster: Cluster, handle: Handle) -> list[dict[str, Any]]:
    return cluster.objects("pods", f"{kubernetes_objects.UNIT_LABEL}={handle}")


def kubectl(cluster: Cluster, *words: str) -> None:
    """Run kubectl as the user that `fleet manifests` sets up."""
    command = [str(cluster.built / "bin/kubectl"), "--kubeconfig", str(cluster.kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


# -- a night without faults ------------------------------------------------------------------------------


def test_the_inventory_has_the_host_classes_of_the_nodes(cluster: Cluster, open_fleet: Open) -> None:
    found = {each.host_class: each for each in open_fleet().inventory()}
    assert (found["no-gpu"].nodes, found.pop("no-gpu").usable) == (4, 4)
    assert sorted(found) == [
        "r535-sm75", "r535-t4", "r550-a100", "r550-sm80", "r580-h100", "r580-l4", "r580-sm89", "r580-sm90",
    ]  # fmt: skip
    assert {(each.nodes, each.usable, each.gpus_per_node) for each in found.values()} == {(1, 1, 1)}
    place = f"/api/v1/nodes/{cluster.nodes[0].name}"
    cluster.patch(place, {"spec": {"unschedulable": True}})
    try:
        found = {each.host_class: each for each in open_fleet().inventory()}
    finally:
        cluster.patch(place, {"spec": {"unschedulable": None}})
    cordoned = found["r535-t4"]
    assert (cordoned.nodes, cordoned.usable, cordoned.detail) == (1, 0, "r535-t4 is cordoned")


def test_each_unit_runs_on_a_node_of_its_class_and_comes_back_whole(
    cluster: Cluster, open_fleet: Open
) -> None:
    fleet = open_fleet()
    classes = ("r535-t4", "r550-a100", "r580-h100", "r580-l4", "r580-sm90")
    units = [unit(number, host_class) for number, host_class in enumerate(classes)]
    handles = submitted(fleet, *units)
    states = wait(fleet, handles, ended)
    assert [state.phase for state in states] == [Phase.ENDED] * 5
    assert [state.node for state in states] == ["r535-t4", "r550-a100", "r580-h100", "r580-l4", "r580-h100"]
    answer = fleet.collect(handles[2])
    assert answer.report is not None and handles[2].encode() in answer.report
    assert answer.image_digest == units[2].image_digest
    assert (answer.node, answer.isolates, answer.failure) == ("r580-h100", True, "")
    assert answer.outside == labelled("580.65.06", "NVIDIA-H100-80GB-HBM3", "9.0", 1)
    assert "tfm-frame report" in fleet.logs(handles[2])


def test_the_tasks_of_a_unit_run_on_a_node_each_and_are_deleted_together(
    cluster: Cluster, open_fleet: Open
) -> None:
    cluster.behave(".", seconds=None)
    branch = KubernetesPlace(node_selector={"nvidia.com/cuda.driver-version.major": ["580"]}, workers=2)
    fleet = open_fleet(settings=KubernetesSection(host_classes={"r580-h100": branch}))
    limits = fleet.limits("r580-h100")
    assert (limits.tasks("full"), limits.tasks("quick")) == (2, 1)
    two = unit(0, tasks=2)
    assert submitted(fleet, two) == [two.name]
    # A submitter that died between the Jobs goes on.
    cluster.api("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{two.name}-1", BACKGROUND)
    _until(lambda: len(cluster.objects("jobs")) == 1)
    assert submitted(fleet, two) == [two.name]
    wait(fleet, [two.name], running)
    selector = f"{kubernetes_objects.WORKERS_LABEL}={two.name}"

    def running_on() -> set[str]:
        found = cluster.objects("pods", selector)
        return {pod["spec"]["nodeName"] for pod in found if pod["status"]["phase"] == "Running"}

    _until(lambda: running_on() == {"r580-h100", "r580-l4"})
    assert len(cluster.objects("services", selector)) == 1
    fleet.cancel([two.name])
    _until(lambda: not cluster.objects("pods", selector) and not cluster.objects("services", selector))


def test_a_unit_that_was_submitted_is_adopted(cluster: Cluster, open_fleet: Open) -> None:
    cluster.behave(".", seconds=None)
    first = submitted(open_fleet(), unit(1), unit(2))
    again = submitted(open_fleet(), unit(1), unit(2), unit(3))
    assert again[:2] == first
    assert sorted(job["metadata"]["name"] for job in cluster.objects("jobs")) == sorted(again)


def test_what_is_shown_is_what_is_submitted(cluster: Cluster, open_fleet: Open) -> None:
    import yaml

    fleet = open_fleet()
    shown = fleet.preview([unit()], {unit().name: REQUEST})
    [handle] = submitted(fleet, unit())
    [document] = [each for each in yaml.safe_load_all(shown) if each]
    [job] = cluster.objects("jobs")
    for field in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "completions"):
        assert job["spec"][field] == document["spec"][field]
    wanted, made = document["spec"]["template"]["spec"], job["spec"]["template"]["spec"]
    for field in ("affinity", "securityContext", "tolerations", "activeDeadlineSeconds", "volumes"):
        assert made[field] == wanted[field], field
    for field in ("command", "image", "resources", "volumeMounts", "securityContext"):
        assert made["containers"][0][field] == wanted["containers"][0][field], field
    assert job["metadata"]["labels"] == document["metadata"]["labels"]
    assert handle in shown


def test_units_are_cancelled_and_forgotten_with_their_pods(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    cluster.behave(unit(1, "r535-t4").name, seconds=0.2)
    done, alive = submitted(fleet, unit(1, "r535-t4"), unit(2))
    wait(fleet, [done], ended)
    wait(fleet, [alive], running)
    fleet.cancel([done, alive])
    wait(fleet, [alive], lambda state: state.phase is Phase.GONE)
    assert fleet.collect(done).report is not None, "what ended is left alone"
    fleet.forget([done])
    assert fleet.poll([done]) == {}
    _until(lambda: not cluster.objects("pods"))
    assert fleet.logs(alive) == ""


def test_the_user_may_remove_the_config_maps_as_the_page_says(cluster: Cluster, open_fleet: Open) -> None:
    submitted(open_fleet(), unit())
    assert [each for each in cluster.objects("configmaps") if each.get("immutable")]
    kubectl(
        cluster, "delete", "configmap", "--selector", "app.kubernetes.io/managed-by=tensorflow-gpu-matrix"
    )
    assert not [each for each in cluster.objects("configmaps") if each.get("immutable")]


# -- missing ---------------------------------------------------------------------------------------------


def test_a_class_that_no_node_has_is_refused_at_once(cluster: Cluster, open_fleet: Open) -> None:
    refused = submit(open_fleet(), unit(host_class="r595-b200"))[unit(host_class="r595-b200").name]
    assert refused == Refused("none of 4 nodes has the labels of r595-b200")
    assert cluster.objects("jobs") == []


def test_a_busy_node_is_not_missing(cluster: Cluster, open_fleet: Open) -> None:
    """The scheduler says the same of a GPU that is busy and of one that does not exist."""
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    handles = submitted(fleet, unit(1), unit(2))
    # Either of the two may get the only GPU.
    found = wait(fleet, handles, lambda state: running(state) or "Insufficient" in state.detail)
    assert sorted(state.phase.value for state in found) == ["running", "waiting"]


def test_the_site_may_name_its_own_labels_and_a_selector_nobody_meets_is_missing(
    cluster: Cluster, open_fleet: Open
) -> None:
    places = {
        "r580-h100": KubernetesPlace(node_selector={"kubernetes.io/hostname": ["r580-l4"]}),
        "r580-l4": KubernetesPlace(node_selector={"team": ["ml"]}),
    }
    fleet = open_fleet(settings=KubernetesSection(host_classes=places))
    found = {each.host_class: each for each in fleet.inventory()}
    assert (found["r580-l4"].nodes, found["r580-l4"].detail) == (0, "none of 4 nodes has team=ml")
    [handle] = submitted(fleet, unit(host_class="r580-h100"))
    [state] = wait(fleet, [handle], ended)
    assert state.node == "r580-l4"


# -- faults of the infrastructure ------------------------------------------------------------------------


def test_an_image_that_is_not_there_is_given_up(
    cluster: Cluster, open_fleet: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = open_fleet()
    cluster.behave(".", waiting="ImagePullBackOff")
    [handle] = submitted(fleet, unit())
    [state] = wait(fleet, [handle], lambda state: "ImagePullBackOff" in state.detail)
    assert state.phase is Phase.WAITING
    monkeypatch.setattr(kubernetes_objects, "START_LIMIT_S", 1.0)
    [state] = wait(fleet, [handle], ended)
    assert (state.phase, state.fault) == (Phase.LOST, Fault.PULL_FAILED)
    # It would hold the GPU until its deadline.
    assert fleet.poll([handle]) == {}
    _until(lambda: not cluster.objects("pods"))


def test_a_slow_pull_is_waited_for(
    cluster: Cluster, open_fleet: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_objects, "START_LIMIT_S", 1.0)
    cluster.behave(".", waiting="ContainerCreating", waiting_s=4)
    fleet = open_fleet()
    [handle] = submitted(fleet, unit())
    [state] = wait(fleet, [handle], lambda state: state.phase is not Phase.WAITING)
    [state] = wait(fleet, [handle], ended)
    assert state.phase is Phase.ENDED


def test_a_lost_node_ends_the_attempt_and_the_next_one_runs_once(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], running)
    cluster.kill("r580-h100")
    [state] = wait(fleet, [handle], ended, 90)
    assert (state.phase, state.fault, state.node) == (Phase.LOST, Fault.NODE_LOST, "r580-h100")
    cluster.behave(".", seconds=0.2)
    again = unit().next_attempt()
    assert again is not None
    [following] = submitted(fleet, again)
    # The first Job would have started another pod on the node that is back.
    assert [job["metadata"]["name"] for job in cluster.objects("jobs")] == [following]
    cluster.start()
    [state] = wait(fleet, [following], ended)
    assert state.phase is Phase.ENDED
    assert fleet.poll([handle]) == {}


def test_a_preempted_pod_runs_again_and_reports_once(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    cluster.behave(unit().name, seconds=None)
    cluster.behave("urgent", seconds=None)
    priority = {"metadata": {"name": "urgent"}, "value": 1000}
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if not any(each["metadata"]["name"] == "urgent" for each in cluster.api("GET", path)["items"]):
        cluster.api("POST", path, priority)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], running)
    [first] = pods(cluster, handle)
    container = {"name": "urgent", "image": "urgent", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster.api("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {
        "metadata": {"name": "urgent"},
        "spec": {"priorityClassName": "urgent", "nodeSelector": {"kubernetes.io/hostname": "r580-h100"},
                 "containers": [container]},
    })  # fmt: skip
    wait(fleet, [handle], lambda state: state.phase is not Phase.RUNNING)
    cluster.behave(unit().name, seconds=0.2)
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    cluster.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/urgent", options)
    [state] = wait(fleet, [handle], ended)
    assert state.phase is Phase.ENDED
    report = fleet.collect(handle).report
    assert report is not None and first["metadata"]["uid"].encode() not in report


def test_a_pod_that_an_operator_deletes_is_replaced_and_reports_once(
    cluster: Cluster, open_fleet: Open
) -> None:
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], running)
    [first] = pods(cluster, handle)
    cluster.behave(".", seconds=0.2)
    cluster.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{first['metadata']['name']}")
    [state] = wait(fleet, [handle], ended)
    report = fleet.collect(handle).report
    assert state.phase is Phase.ENDED
    assert report is not None and first["metadata"]["uid"].encode() not in report


def test_a_job_that_an_operator_deletes_is_gone_without_a_result(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], running)
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    cluster.api("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{handle}", options)
    wait(fleet, [handle], lambda state: state.phase is Phase.GONE)
    with pytest.raises(CutError, match="no pod that ended"):
        fleet.collect(handle)


def test_the_deadline_of_a_job_is_a_fault(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    cluster.behave(".", seconds=None)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], running)
    cluster.patch(
        f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{handle}", {"spec": {"activeDeadlineSeconds": 1}}
    )
    [state] = wait(fleet, [handle], ended)
    assert (state.phase, state.fault) == (Phase.LOST, Fault.DEADLINE)


@pytest.mark.parametrize(
    ("reason", "fault"), [("OOMKilled", Fault.OUT_OF_MEMORY), ("StartError", Fault.NOT_STARTED)]
)
def test_a_container_that_is_ended_from_outside_is_a_fault(
    cluster: Cluster, open_fleet: Open, reason: str, fault: Fault
) -> None:
    fleet = open_fleet()
    cluster.behave(".", exit_code=137, reason=reason, message="", log="")
    [handle] = submitted(fleet, unit())
    [state] = wait(fleet, [handle], ended)
    assert (state.phase, state.fault) == (Phase.LOST, fault)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"cut": True}, "has no end"),
        ({"log": ""}, "no frame ending"),
        ({"message": '{"status": 0}'}, "the ending can't be read"),
    ],
)
def test_an_output_that_is_not_whole_is_refused(
    cluster: Cluster, open_fleet: Open, behaviour: dict[str, Any], message: str
) -> None:
    fleet = open_fleet()
    cluster.behave(".", **behaviour)
    [handle] = submitted(fleet, unit())
    [state] = wait(fleet, [handle], ended)
    assert state.phase is Phase.ENDED
    with pytest.raises(CutError, match=message):
        fleet.collect(handle)


@pytest.mark.parametrize(
    "image_id", ["registry.test/ours@sha256:" + "0" * 64, "sha256:" + "1" * 64, "another:latest"]
)
def test_an_answer_names_the_image_that_was_run(cluster: Cluster, open_fleet: Open, image_id: str) -> None:
    fleet = open_fleet()
    cluster.behave(".", image_id=image_id)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], ended)
    assert fleet.collect(handle).image_digest not in (None, unit().image_digest)


def test_a_log_on_a_lost_node_is_a_fault_and_not_an_outage(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], ended)
    cluster.kill("r580-h100")
    with pytest.raises(CutError, match="the log can't be read"):
        fleet.collect(handle)
    cluster.start()
    _until(lambda: fleet.collect(handle).report is not None, CutError)


def _until(done: Callable[[], bool], *errors: type[BaseException], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if done():
                return
        except errors:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


# -- quotas and rights -----------------------------------------------------------------------------------


def _quota(cluster: Cluster, **hard: str) -> None:
    body = {
        "metadata": {"name": "none"},
        "spec": {"hard": {key.replace("_", "/", 1): value for key, value in hard.items()}},
    }
    cluster.api("POST", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", body)


def test_a_quota_without_pods_is_a_fault(
    cluster: Cluster, open_fleet: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.fleet.kubernetes.NO_POD_LIMIT_S", 3.0)
    _quota(cluster, pods="0")
    fleet = open_fleet()
    [handle] = submitted(fleet, unit())
    [state] = wait(fleet, [handle], ended)
    assert (state.phase, state.fault) == (Phase.LOST, Fault.QUOTA)
    assert "exceeded quota" in state.detail


def test_a_quota_without_jobs_refuses_the_unit(cluster: Cluster, open_fleet: Open) -> None:
    _quota(cluster, **{"count_jobs.batch": "0"})
    fleet = open_fleet()

    def refused() -> bool:
        found = submit(fleet, unit())[unit().name]
        fleet.forget([unit().name])
        return isinstance(found, Refused) and found.fault is Fault.QUOTA and "exceeded quota" in found.detail

    # The quota's controller needs a moment.
    _until(refused)


def test_expired_credentials_are_an_error_that_waiting_does_not_change(open_fleet: Open) -> None:
    with pytest.raises(MissingError, match="rejects the credentials") as raised:
        open_fleet("expired").inventory()
    assert not isinstance(raised.value, FleetDown)
    assert raised.value.hint is not None and "fleet resume" in raised.value.hint


def test_missing_rights_are_named(open_fleet: Open) -> None:
    with pytest.raises(
        MissingError, match=r"this user may not list nodes: nodes is forbidden.*nobody"
    ) as raised:
        open_fleet("nobody").inventory()
    assert raised.value.hint is not None and "fleet manifests" in raised.value.hint
    with pytest.raises(MissingError, match="may not list Jobs"):
        open_fleet("nobody").poll([unit().name])


# -- the control plane -----------------------------------------------------------------------------------


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(FleetDown):
        call()
    return time.monotonic() - began


def test_a_stopped_api_server_is_an_outage_and_nothing_is_lost(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet()
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], ended)
    cluster.kill("kube-apiserver")
    for call in (fleet.inventory, lambda: fleet.poll([handle]), lambda: fleet.collect(handle),
                 lambda: submit(fleet, unit()), lambda: fleet.cancel([handle])):  # fmt: skip
        assert _seconds(call) < 5
    cluster.start()
    assert submitted(fleet, unit()) == [handle]
    assert fleet.collect(handle).report is not None


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
def test_the_time_limit_holds_while_a_part_hangs(cluster: Cluster, open_fleet: Open, part: str) -> None:
    """The client would try a list four times, and with etcd stopped wait for two minutes."""
    fleet = open_fleet(limit_s=3.0)
    [handle] = submitted(fleet, unit(1))
    cluster.pause(part)
    try:
        assert _seconds(lambda: fleet.poll([handle])) < 8
        assert _seconds(lambda: submit(fleet, unit(2))) < 8
    finally:
        cluster.resume(part)
    # The outcome of the second one is not known. Submitting it again makes it once.
    patient = open_fleet()
    _until(lambda: submitted(patient, unit(2)) == [unit(2).name], FleetDown, seconds=90)
    names = sorted(job["metadata"]["name"] for job in cluster.objects("jobs"))
    assert names == sorted([unit(1).name, unit(2).name])


def test_a_stopped_etcd_is_an_outage_and_nothing_is_lost(cluster: Cluster, open_fleet: Open) -> None:
    fleet = open_fleet(limit_s=3.0)
    [handle] = submitted(fleet, unit())
    wait(fleet, [handle], ended)
    cluster.kill("etcd")
    assert _seconds(lambda: fleet.poll([handle])) < 8
    cluster.start()
    assert fleet.collect(handle).report is not None


# -- several submitters ----------------------------------------------------------------------------------


def test_two_submitters_at_once_make_each_unit_once(cluster: Cluster, open_fleet: Open) -> None:
    units = [unit(number) for number in range(12)]
    fleets = [open_fleet(), open_fleet()]
    found: list[list[Handle]] = []
    threads = [
        threading.Thread(target=lambda fleet=fleet: found.append(submitted(fleet, *units)))
        for fleet in fleets
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[each.name for each in units]] * 2
    assert sorted(job["metadata"]["name"] for job in cluster.objects("jobs")) == sorted(found[0])
