"""The kinds of nodes of a real cluster, and a short job that asks one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.cli.fleet import write_proposal
from validator.errors import InputError
from validator.fleet.settings import NodeKind, Survey, propose, read_settings
from validator.fleet.slurm import completed

from .cluster import Cluster

ANSWER = "printf '570.26, NVIDIA A10\\n'"


def test_a_proposal_names_the_nodes_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    write_proposal("slurm", path)
    slurm = read_settings(path).slurm
    assert slurm is not None
    found = {
        name: (set(place.constraint.split("&")), place.gres) for name, place in slurm.host_classes.items()
    }
    assert found["r580-h100"] == ({"r580", "h100"}, "gpu:h100:1")
    assert found["r535-t4"] == ({"r535", "t4"}, "gpu:t4:1")
    with pytest.raises(InputError, match="already exists"):
        write_proposal("slurm", path)


def test_a_node_is_asked_where_features_do_not_say_the_driver(cluster: Cluster) -> None:
    kind = NodeKind(1, "node1", "", "", True, {"constraint": "t4", "gres": "gpu:t4:1"})
    found = completed(kind, ("sh", "-c", ANSWER))
    assert (found.host_class, found.driver) == ("r570-a10", "570.26")
    assert found.said.startswith("node1 said driver 570.26 and NVIDIA A10. CHECK: ")


@pytest.mark.parametrize("command", ["exit 3", "echo no driver"])
def test_a_node_that_does_not_say_its_driver_is_a_comment(
    cluster: Cluster, tmp_path: Path, command: str
) -> None:
    kind = NodeKind(1, "node1", "", "t4", True, {"constraint": "t4", "gres": "gpu:t4:1"})
    keys = {"directory": (str(tmp_path), "CHECK")}
    text = propose(Survey("slurm", keys, [completed(kind, ("sh", "-c", command))]))
    assert "a job on node1 could not find out its driver" in text


def test_a_kind_that_no_node_can_run_is_not_waited_for(cluster: Cluster) -> None:
    kind = NodeKind(1, "node1", "", "", True, {"constraint": "r999"})
    assert completed(kind, ("true",)).host_class is None
