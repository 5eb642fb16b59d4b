"""The manifests of units: what their pods may do, what they carry, and when they end."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from validator.cli.fleet import fleet_command
from validator.engines.protocol import ProbeRequest, probe_request
from validator.errors import InputError
from validator.fleet import kubernetes_objects as objects
from validator.fleet.settings import KubernetesPlace, Toleration

from ..making import unit
from .api_models import faults
from .pod_security import violations

Json = dict[str, Any]
REQUEST = ProbeRequest(b"archive", ("--depth", "quick"), {"lock.txt": b"numpy==2.0\n"}, timeout_s=1900.0)
PLACE = KubernetesPlace()
TERMS = [
    {"nvidia.com/gpu.product": ["NVIDIA-H100-80GB-HBM3"], "nvidia.com/cuda.driver-version.major": ["580"]}
]


def job(place: KubernetesPlace = PLACE, **changes: Any) -> Json:
    options: Json = {"terms": TERMS, "namespace": "fleet"}
    return objects.job(unit(), REQUEST, place, **{**options, **changes})


def pod(**changes: Any) -> Json:
    spec: Json = job(**changes)["spec"]["template"]["spec"]
    return spec


def test_a_pod_meets_the_restricted_pod_security_standard() -> None:
    assert violations(pod()) == []
    assert violations(pod(pull_secret="registry", place=KubernetesPlace(cpus=4, memory=16))) == []


@pytest.mark.slow
def test_kubernetes_knows_each_field() -> None:
    place = KubernetesPlace(cpus=4, memory=16, queue="gpus", tolerations=[Toleration(key="spot")])
    made = [
        job(place, pull_secret="registry"),
        job(),
        of_two(1, "uid-of-0"),
        objects.service(unit(tasks=2), namespace="fleet", owner="uid-of-0"),
        *objects.config_maps(REQUEST),
        *objects.rights("fleet", "ci"),
    ]
    assert [(each["kind"], found) for each in made if (found := faults(each))] == []


def _set(*path: str, value: Any) -> Callable[[Json], None]:
    def change(spec: Json) -> None:
        place: Any = {"pod": spec, "container": spec["containers"][0]}[path[0]]
        for key in path[1:-1]:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(path[-1])
        else:
            place[path[-1]] = value

    return change


CHANGES = {
    "hostNetwork": _set("pod", "hostNetwork", value=True),
    "hostPID": _set("pod", "hostPID", value=True),
    "hostIPC": _set("pod", "hostIPC", value=True),
    "volumes": _set("pod", "volumes", value=[{"name": "home", "hostPath": {"path": "/home"}}]),
    "sysctls": _set("pod", "securityContext", "sysctls", value=[{"name": "kernel.msgmax", "value": "1"}]),
    "privileged": _set("container", "securityContext", "privileged", value=True),
    "allowPrivilegeEscalation": _set("container", "securityContext", "allowPrivilegeEscalation", value=None),
    "capabilities.drop": _set("container", "securityContext", "capabilities", value={"drop": ["NET_RAW"]}),
    "capabilities.add": _set("container", "securityContext", "capabilities", "add", value=["SYS_ADMIN"]),
    "runAsNonRoot": _set("pod", "securityContext", "runAsNonRoot", value=None),
    "runAsUser": _set("container", "securityContext", "runAsUser", value=0),
    "seccompProfile": _set("pod", "securityContext", "seccompProfile", value={"type": "Unconfined"}),
    "hostPort": _set("container", "ports", value=[{"containerPort": 80, "hostPort": 80}]),
    "procMount": _set("container", "securityContext", "procMount", value="Unmasked"),
    "seLinuxOptions": _set("pod", "securityContext", "seLinuxOptions", value={"type": "spc_t"}),
    "appArmorProfile": _set("container", "securityContext", "appArmorProfile", value={"type": "Unconfined"}),
    "livenessProbe": _set("container", "livenessProbe", value={"httpGet": {"host": "other"}}),
}


@pytest.mark.parametrize("field", CHANGES)
def test_the_rules_of_the_standard_see_each_violation(field: str) -> None:
    spec = copy.deepcopy(pod())
    CHANGES[field](spec)
    [found] = violations(spec)
    assert field in found


def test_a_pod_carries_no_credentials_but_the_pull_secret() -> None:
    spec = pod(pull_secret="registry")
    assert spec["automountServiceAccountToken"] is False
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in pod()
    [container] = spec["containers"]
    assert [each["name"] for each in container["env"]] == ["HOME"]
    assert "envFrom" not in container
    assert not [volume for volume in spec["volumes"] if "secret" in str(volume).lower()]


def test_the_engine_does_not_retry() -> None:
    spec = job()["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 1, 1)
    assert pod()["restartPolicy"] == "Never"


@pytest.mark.parametrize("minutes", [1, 30, 240])
@pytest.mark.parametrize("depth", ["quick", "full"])
def test_the_limits_end_from_the_inside_out(depth: str, minutes: int) -> None:
    """The Job's deadline deletes the log, and the pod's deadline ends the probe without a report."""
    place = KubernetesPlace(time_limit=minutes, wait_limit=60)
    made = objects.job(unit(), probe_request(depth, b"lock"), place, namespace="fleet")["spec"]
    spec = made["template"]["spec"]
    fleet_command = spec["containers"][0]["command"]
    inside = float(fleet_command[fleet_command.index("--limit") + 1])
    probe = float(fleet_command[fleet_command.index("--time-limit") + 1])
    assert probe < inside <= spec["activeDeadlineSeconds"] - 60
    assert spec["activeDeadlineSeconds"] >= minutes * 60
    # The Job's counts from its creation, and the pod's from its start on a node.
    assert spec["activeDeadlineSeconds"] + 60 * 60 < made["activeDeadlineSeconds"]
    assert made["ttlSecondsAfterFinished"] >= 24 * 60 * 60


def test_a_lost_node_is_given_up_after_fifteen_seconds() -> None:
    found = {each["key"]: each for each in pod()["tolerations"]}
    for state in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
        assert (found[state]["effect"], found[state]["tolerationSeconds"]) == ("NoExecute", 15)


def test_the_taints_of_the_operator_and_of_the_site_are_tolerated() -> None:
    place = KubernetesPlace(tolerations=[Toleration(key="team", value="ml"), Toleration(key="spot")])
    found = {each["key"]: each for each in pod(place=place)["tolerations"]}
    assert found["nvidia.com/gpu"] == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert found["team"] == {"key": "team", "operator": "Equal", "value": "ml"}
    assert found["spot"] == {"key": "spot", "operator": "Exists"}


def test_a_pod_asks_for_one_gpu_on_the_nodes_of_its_class() -> None:
    spec = pod()
    [container] = spec["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    assert [(each["key"], each["values"]) for each in term["matchExpressions"]] == [
        ("nvidia.com/cuda.driver-version.major", ["580"]),
        ("nvidia.com/gpu.product", ["NVIDIA-H100-80GB-HBM3"]),
    ]
    mig = pod(place=KubernetesPlace(resource="nvidia.com/mig-1g.10gb", cpus=4, memory=16))
    limits = {"nvidia.com/mig-1g.10gb": "1", "cpu": "4", "memory": "16Gi"}
    assert mig["containers"][0]["resources"]["limits"] == limits


def test_a_unit_without_a_gpu_asks_for_none() -> None:
    made = objects.job(unit(host_class="no-gpu"), REQUEST, KubernetesPlace(), namespace="fleet")
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {}


def test_the_job_has_the_name_of_its_unit_and_the_queue_of_its_place() -> None:
    made = job(KubernetesPlace(queue="gpus"))
    assert made["metadata"]["name"] == unit().name
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "kueue.x-k8s.io/queue-name" not in job()["metadata"]["labels"]
    assert made["spec"]["template"]["metadata"]["labels"][objects.UNIT_LABEL] == unit().name
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == unit().reference


def test_the_probe_and_the_lock_are_in_immutable_config_maps_named_after_them() -> None:
    probe, lock = objects.config_maps(REQUEST)
    assert probe["immutable"] is lock["immutable"] is True
    assert base64.b64decode(probe["binaryData"]["probe.pyz"]) == b"archive"
    assert b"def frame(" in base64.b64decode(probe["binaryData"]["inside.py"])
    assert base64.b64decode(lock["binaryData"]["lock.txt"]) == b"numpy==2.0\n"
    other = ProbeRequest(b"archive", ("--depth", "full"), {"lock.txt": b"numpy==2.1\n"})
    [same, different] = objects.config_map_names(other)
    assert (same, different != lock["metadata"]["name"]) == (probe["metadata"]["name"], True)
    [volume, _] = pod()["volumes"]
    names = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    assert names == [probe["metadata"]["name"], lock["metadata"]["name"]]


def test_the_real_probe_fits_into_a_config_map() -> None:
    probe, _ = objects.config_maps(probe_request("full", b"lock"))
    size = sum(len(base64.b64decode(text)) for text in probe["binaryData"].values())
    assert 500_000 < size < objects.LARGEST_CONFIG_MAP * 0.95


def test_a_probe_that_is_too_large_is_an_error() -> None:
    with pytest.raises(InputError, match=r"probe\.pyz\. A Kubernetes config map holds at most 1048576"):
        objects.config_maps(ProbeRequest(b"x" * (1 << 20)))


def of_two(task: int, owner: str = "") -> Json:
    return objects.job(unit(tasks=2), REQUEST, PLACE, terms=TERMS, namespace="fleet", task=task, owner=owner)


def test_the_tasks_of_a_unit_find_each_other_by_the_names_of_their_service() -> None:
    name = unit(tasks=2).name
    service = objects.service(unit(tasks=2), namespace="fleet", owner="uid-of-0")
    assert service["metadata"]["name"] == name
    # Pods are never ready, and have to find each other all the same.
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    for task, made in enumerate((of_two(0), of_two(1, "uid-of-0"))):
        template = made["spec"]["template"]
        assert violations(template["spec"]) == []
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert (template["spec"]["hostname"], template["spec"]["subdomain"]) == (f"task{task}", name)
        fleet_command = template["spec"]["containers"][0]["command"]
        given = fleet_command[fleet_command.index("--task") : fleet_command.index("--")]
        assert given == ["--task", str(task), "--workers", f"task0.{name}:29500,task1.{name}:29500"]
        assert fleet_command[fleet_command.index("--") + 1 :] == ["--depth", "quick"]


def test_the_tasks_of_a_unit_have_a_node_each_and_end_together() -> None:
    first, second = of_two(0), of_two(1, "uid-of-0")
    assert second["metadata"]["name"] == f"{first['metadata']['name']}-1"
    owners = [made["metadata"].get("ownerReferences", []) for made in (first, second)]
    assert [[one["uid"] for one in each] for each in owners] == [[], ["uid-of-0"]]
    # Only the Job of task 0 is taken for the unit.
    assert first["metadata"]["labels"][objects.UNIT_LABEL] == unit(tasks=2).name
    assert second["metadata"]["labels"][objects.UNIT_LABEL] != unit(tasks=2).name
    for made in (first, second):
        affinity = made["spec"]["template"]["spec"]["affinity"]
        (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["labelSelector"]["matchLabels"] == {objects.WORKERS_LABEL: unit(tasks=2).name}
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        assert "nodeAffinity" in affinity


def test_a_unit_of_one_task_has_no_workers() -> None:
    spec = pod()
    assert {"hostname", "subdomain"}.isdisjoint(spec)
    assert "--workers" not in spec["containers"][0]["command"]
    assert objects.WORKERS_LABEL not in job()["spec"]["template"]["metadata"]["labels"]


def test_only_tasks_that_train_together_reach_each_other() -> None:
    policies = [each for each in objects.rights("fleet", "ci") if each["kind"] == "NetworkPolicy"]
    _, workers = (each["spec"] for each in policies)
    several = {"matchExpressions": [{"key": objects.WORKERS_LABEL, "operator": "Exists"}]}
    assert workers["podSelector"] == several
    assert workers["ingress"] == [{"from": [{"podSelector": several}]}]
    assert workers["egress"][0] == {"to": [{"podSelector": several}]}
    assert {port["port"] for rule in workers["egress"][1:] for port in rule["ports"]} == {53}


def test_the_submitter_may_do_only_what_it_does() -> None:
    made = {each["kind"]: each for each in reversed(objects.rights("fleet", "ci"))}
    allowed = {
        (resource, verb)
        for rule in made["Role"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == {
        ("jobs", "create"), ("jobs", "get"), ("jobs", "list"), ("jobs", "delete"), ("pods", "get"), ("pods",
        "list"), ("events", "get"), ("events", "list"), ("pods/log", "get"), ("configmaps", "create"),
        ("configmaps", "list"), ("configmaps", "delete"),
        ("services", "create"),
    }  # fmt: skip
    assert made["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}
    ]
    assert (
        made["RoleBinding"]["subjects"][0]["name"]
        == made["ClusterRoleBinding"]["subjects"][0]["name"]
        == "ci"
    )
    assert made["NetworkPolicy"]["spec"] == {
        "podSelector": {"matchLabels": objects.MANAGED_BY},
        "policyTypes": ["Ingress", "Egress"],
    }
    assert made["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def test_a_second_namespace_takes_nothing_from_the_first() -> None:
    def names(namespace: str, user: str) -> set[tuple[str, str, str]]:
        """Return what identifies each object in the cluster."""
        made = objects.rights(namespace, user)
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in made
        }

    assert len(names("team-a", "ci")) == 7
    assert names("team-a", "ci").isdisjoint(names("team-b", "nightly"))


def test_the_command_prints_the_rights_for_kubectl() -> None:
    done = CliRunner().invoke(
        fleet_command, ["manifests", "--namespace", "gpu-matrix", "--user", "ci"], standalone_mode=False
    )
    assert tuple(yaml.safe_load_all(done.stdout)) == objects.rights("gpu-matrix", "ci")
