"""The fleet file that is proposed for a Kubernetes cluster."""

from __future__ import annotations

import pytest

from validator.fleet.kubernetes import survey
from validator.fleet.kubernetes_objects import Node, kinds_of
from validator.fleet.settings import FleetSettings, Survey, Toleration, propose, settings_of
from validator.matrix.document import parse_document

from .cluster import NODES, Cluster
from .test_nodes import H100, NEW, node

TEAM = {"key": "team", "value": "ml", "effect": "NoSchedule"}


def proposed(*nodes: Node) -> str:
    return propose(Survey("kubernetes", {}, kinds_of(nodes)))


def test_a_host_class_is_proposed_for_each_kind_of_node() -> None:
    pcie = {**H100, "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
    text = proposed(
        node(name="a"),
        node(pcie, name="b"),
        node(NODES[3].labels, name="c", taints=[TEAM, {"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
        node({}, name="d", gpus=0),
    )
    places = settings_of(parse_document(text.encode(), "fleet.yaml")).kubernetes.host_classes
    assert sorted(places) == ["no-gpu", "r580-h100", "r580-l4"]
    assert places["r580-h100"].node_selector == {
        "nvidia.com/gpu.product": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"],
        "nvidia.com/cuda.driver-version.major": ["580"],
    }
    assert places["r580-l4"].tolerations == [Toleration(**TEAM)]
    assert places["no-gpu"].node_selector == {}
    assert "# CHECK: make sure that these keys don't choose nodes with a GPU." in text


def test_it_is_said_that_cells_without_a_gpu_run_on_any_node() -> None:
    assert "# CHECK: every node has a GPU, so `no-gpu` is not here: its cells run on any node." in proposed(
        node()
    )


def test_nodes_with_old_and_new_labels_are_found_by_the_defaults() -> None:
    old = {key: value for key, value in H100.items() if "driver-version" not in key}
    text = proposed(node(NEW, name="a"), node(old, name="b"))
    assert "r580-h100: {}" in text


def test_a_node_whose_labels_say_nothing_is_a_comment() -> None:
    text = proposed(node({}, name="bare"), node(name="a"))
    assert "# CHECK: bare: its driver or its model is not known. Add it as:" in text


def test_a_proposal_for_a_real_cluster_can_be_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    text = propose(survey(FleetSettings()))
    found = settings_of(parse_document(text.encode(), "fleet.yaml")).kubernetes
    assert found.namespace == "fleet"
    assert sorted(found.host_classes) == ["r535-t4", "r550-a100", "r580-h100", "r580-l4"]
