"""Test the objects for Kubernetes: what they request, and that Kubernetes knows each field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from validator.delivery.formats import (
    CAPABILITY_LABELS,
    DRIVER_LABEL,
    GPU_RESOURCE,
    write_kubernetes,
)
from validator.delivery.start import User
from validator.fleet import kubernetes_objects, settings

from ...fleet.kubernetes.api_models import faults
from ...fleet.kubernetes.pod_security import violations
from . import starts
from .starts import start

ME = Path("/home/me")


def objects(text: str) -> dict[str, dict[str, Any]]:
    """Parse a file, by kinds."""
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def pod(text: str) -> dict[str, Any]:
    found = objects(text)
    whole = found["Job"]["spec"]["template"]["spec"] if "Job" in found else found["Pod"]["spec"]
    return dict(whole)


def expanded(text: str) -> str:
    """Return what Kubernetes makes of an argument or a value: `$$` is `$`, and `$(NAME)` a variable."""
    parts = re.findall(r"\$\$|\$\([^)]*\)|[^$]+|\$", text)
    assert not [part for part in parts if part.startswith("$(")], text
    return "".join("$" if part == "$$" else part for part in parts)


@pytest.mark.parametrize("changes", [{"command": ("python",)}, {}, {"directory": ME}, {"user": User(0, 0)}])
def test_a_pod_meets_the_restricted_pod_security_standard(changes: dict[str, Any]) -> None:
    assert violations(pod(write_kubernetes(start(**changes)))) == []


def test_the_gpus_of_the_host_are_requested_on_nodes_like_it() -> None:
    found = pod(write_kubernetes(start("h100", "h100")))
    [container] = found["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert found["nodeSelector"] == {
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
    }
    assert found["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert pod(write_kubernetes(start("h100", "a100")))["nodeSelector"].keys() == {DRIVER_LABEL}
    found = pod(write_kubernetes(start(host=None, devices=None)))
    assert not found.keys() & {"nodeSelector", "tolerations"}
    assert "resources" not in found["containers"][0]


def test_the_labels_are_those_that_the_fleet_reads() -> None:
    assert GPU_RESOURCE == settings.GPU_RESOURCE
    labels = pod(write_kubernetes(start()))["nodeSelector"]
    assert labels.keys() == {DRIVER_LABEL, *CAPABILITY_LABELS}
    node = kubernetes_objects.Node("n", labels, (), {}, "")
    assert (node.driver, str(node.capability)) == ("580", "9.0")


def test_shared_memory_is_a_volume_of_its_own() -> None:
    found = pod(write_kubernetes(start()))
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in found["volumes"]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in found["containers"][0]["volumeMounts"]


def test_files_in_the_volume_belong_to_the_user() -> None:
    security = pod(write_kubernetes(start(directory=ME)))["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (1000, 100, 100)
    security = pod(write_kubernetes(start(directory=ME, user=User(0, 0))))["securityContext"]
    assert (security.get("runAsUser"), security["runAsNonRoot"], security["fsGroup"]) == (None, True, 10001)


def test_a_directory_is_a_claim_because_nodes_do_not_have_it() -> None:
    found = objects(write_kubernetes(start(directory=ME)))
    name = found["PersistentVolumeClaim"]["metadata"]["name"]
    assert {"name": "workspace", "persistentVolumeClaim": {"claimName": name}} in found["Pod"]["spec"][
        "volumes"
    ]
    assert "/home/me" not in write_kubernetes(start(directory=ME))
    assert objects(write_kubernetes(start())).keys() == {"Pod"}


def test_a_command_is_a_job_that_the_entry_point_starts() -> None:
    found = objects(write_kubernetes(start(command=("python", "a"))))
    assert found["Job"]["spec"]["backoffLimit"] == 0
    [container] = pod(write_kubernetes(start(command=("python", "a"))))["containers"]
    assert container["args"] == ["python", "a"] and "command" not in container
    [container] = pod(write_kubernetes(start()))["containers"]
    assert (container["stdin"], container["tty"]) == (True, True)
    text = write_kubernetes(start(image=starts.with_image(port=8888)))
    assert "kubectl port-forward pod/tensorflow 8888" in text
    assert pod(text)["containers"][0]["ports"] == [{"containerPort": 8888}]


@given(starts.commands, starts.variables)
def test_every_value_survives(command: tuple[str, ...], variables: dict[str, str]) -> None:
    [container] = pod(write_kubernetes(start(command=command, environment=variables)))["containers"]
    assert tuple(map(expanded, container.get("args", []))) == command
    names = [entry["name"] for entry in container["env"]]
    assert len(set(names)) == len(names)
    found = {entry["name"]: expanded(entry["value"]) for entry in container["env"]}
    assert found.items() >= variables.items()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"command": ("python",), "directory": ME},
        {},
        {"image": starts.with_image(port=8888), "user": User(0, 0)},
        {"host": None, "devices": None},
    ],
)
def test_kubernetes_knows_each_field(changes: dict[str, Any]) -> None:
    for document in objects(write_kubernetes(start("h100", "h100", **changes))).values():
        assert faults(document) == []


@pytest.mark.slow
def test_a_fault_of_each_kind_is_seen() -> None:
    wrong = objects(write_kubernetes(start()))["Pod"]
    [container] = wrong["spec"]["containers"]
    container["arg"] = ["x"]
    wrong["spec"]["automountServiceAccountToken"] = "no"
    del container["name"], container["volumeMounts"][0]["mountPath"]
    assert faults(wrong) == [
        "spec.automountServiceAccountToken",
        "spec.containers.0.arg",
        "spec.containers.0.name",
        "spec.containers.0.volumeMounts.0.mountPath",
    ]
    wrong = objects(write_kubernetes(start()))["Pod"]
    [mount, _] = wrong["spec"]["containers"][0]["volumeMounts"]
    mount["mount_path"] = mount.pop("mountPath")
    assert faults(wrong) == ["a field has its name in Python"]
