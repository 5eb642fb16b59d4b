"""Host classes of nodes, by the labels of GPU Feature Discovery."""

from __future__ import annotations

from typing import Any

import pytest

from validator.fleet.kubernetes_objects import Node, capacity, read_node, terms_of
from validator.fleet.settings import KubernetesPlace, Toleration
from validator.model.record import Unread, labelled

from .cluster import NODES

ANY = KubernetesPlace()
H100 = NODES[2].labels
NEW = {key: value for key, value in H100.items() if not key.startswith("nvidia.com/cuda.driver.")}
OLD = {key: value for key, value in H100.items() if not key.startswith("nvidia.com/cuda.driver-version.")}


def node(labels: dict[str, str] = H100, name: str = "n", gpus: int = 8, **spec: Any) -> Node:
    conditions = [{"type": "Ready", "status": spec.pop("ready", "True")}]
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions}
    return read_node({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})


@pytest.mark.parametrize("labels", [H100, NEW, OLD], ids=["both", "new", "old"])
def test_the_new_and_the_old_labels_of_the_driver_are_read(labels: dict[str, str]) -> None:
    found = node(labels)
    assert found.driver == "580.65.06"
    assert found.host_classes() == ("r580-h100", "r580-sm90")
    assert found.outside(2) == labelled("580.65.06", "NVIDIA-H100-80GB-HBM3", "9.0", 2)


def test_a_pod_may_go_to_nodes_with_new_and_to_nodes_with_old_labels() -> None:
    pcie = {**OLD, "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
    terms = terms_of("r580-h100", [node(NEW), node(OLD), node(pcie), node(NODES[3].labels)])
    by_driver = {
        next(key for key in term if "driver" in key): term["nvidia.com/gpu.product"] for term in terms
    }
    assert by_driver == {
        "nvidia.com/cuda.driver-version.major": ["NVIDIA-H100-80GB-HBM3"],
        "nvidia.com/cuda.driver.major": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"],
    }
    assert all(values == ["580"] for term in terms for key, values in term.items() if "driver" in key)


@pytest.mark.parametrize(
    ("host_class", "fits"),
    [
        ("r580-h100", True),
        ("r580-sm90", True),
        ("r580.65-h100", True),
        ("r580.65.06-h100", True),
        ("r580.65.07-h100", False),
        ("r570-h100", False),
        ("r580-h200", False),
        ("r580-sm89", False),
        # No label says which packages are on the node.
        ("r580-h100-compat12.9", False),
        ("no-gpu", True),
    ],
)
def test_which_node_is_of_a_class(host_class: str, fits: bool) -> None:
    assert node().fits(host_class, ANY) is fits


def test_the_terms_of_a_release_name_all_of_its_numbers() -> None:
    [term] = terms_of("r580.65.06-sm90", [node(NEW)])
    assert term == {
        "nvidia.com/cuda.driver-version.major": ["580"],
        "nvidia.com/cuda.driver-version.minor": ["65"],
        "nvidia.com/cuda.driver-version.revision": ["06"],
        "nvidia.com/gpu.compute.major": ["9"],
        "nvidia.com/gpu.compute.minor": ["0"],
    }


def test_parts_and_shares_of_a_gpu_are_of_its_model() -> None:
    for product in ("NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"):
        assert node({**H100, "nvidia.com/gpu.product": product}).model == "h100"


def test_nodes_without_gpus_labels_or_driver_have_no_class() -> None:
    assert node({}).host_classes() == ()
    assert node({}).outside(1) is Unread.NO_NODE_LABELS
    assert not node(gpus=0).fits("r580-h100", ANY)
    assert not node({"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}).fits("r580-h100", ANY)


def test_capacity_counts_what_can_be_used_now() -> None:
    nodes = [node(name="a"), node(name="b", unschedulable=True, gpus=4), node(name="c", ready="Unknown")]
    found = capacity("r580-h100", ANY, nodes)
    assert (found.nodes, found.usable, found.gpus_per_node) == (3, 1, 4)
    assert found.detail == "b is cordoned, c is not ready"
    assert capacity("r595-b200", ANY, nodes).detail == "none of 3 nodes has the labels of r595-b200"


def test_a_taint_that_nobody_tolerates_makes_a_node_missing() -> None:
    tainted = node(taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}])
    assert not tainted.fits("r580-h100", ANY)
    assert tainted.fits("r580-h100", KubernetesPlace(tolerations=[Toleration(key="team", value="ml")]))
    assert not tainted.fits("r580-h100", KubernetesPlace(tolerations=[Toleration(key="team", value="web")]))
    operator = node(taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    assert operator.fits("r580-h100", ANY)
    lost = node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    assert lost.fits("r580-h100", ANY), "a lost node comes back"
