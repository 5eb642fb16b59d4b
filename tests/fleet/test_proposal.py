"""Propose `fleet.yaml` from the nodes that a scheduler has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from validator.fleet import slurm_client
from validator.fleet.settings import (
    NodeKind,
    SlurmPlace,
    Survey,
    driver_of,
    model_in,
    propose,
    read_settings,
)
from validator.fleet.slurm import completed, kinds_of, told_by
from validator.fleet.slurm_client import Node


def proposed(kinds: Sequence[NodeKind]) -> str:
    keys = {"directory": ("/shared/tfm", "CHECK: all nodes have to see it.")}
    return propose(Survey("slurm", keys, kinds))


def node(
    name: str, features: str, partition: str = "batch", default: bool = True, untyped: int = 0, **gpus: int
) -> Node:
    """Return a node. untyped: how many GPUs without a type it has."""
    found = {**gpus, **({"": untyped} if untyped else {})}
    return Node(name, partition, default, "idle", frozenset(features.split(",")) - {""}, found)


def places(directory: Path, text: str) -> dict[str, SlurmPlace]:
    path = directory / "fleet.yaml"
    path.write_text(text, encoding="utf-8")
    slurm = read_settings(path).slurm
    assert slurm is not None
    return dict(slurm.host_classes)


NODES = [
    node("node1", "r535,t4", t4=1),
    node("node2", "r550,a100", a100=1),
    node("node3", "r580,h100", h100=4),
    node("node3", "r580,h100", "urgent", default=False, h100=4),
    node("node4", "r580,h100", h100=4),
    node("node4", "r580,h100", "urgent", default=False, h100=4),
    node("cpu1", "avx512"),
]


def test_nodes_whose_features_say_everything_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(slurm_client, "run")
    kinds = kinds_of(NODES)
    assert [completed(kind) for kind in kinds] == kinds
    text = proposed(kinds)
    assert places(tmp_path, text) == {
        "no-gpu": SlurmPlace(partition="batch"),
        "r535-t4": SlurmPlace(constraint="r535&t4", gres="gpu:t4:1"),
        "r550-a100": SlurmPlace(constraint="a100&r550", gres="gpu:a100:1"),
        "r580-h100": SlurmPlace(constraint="h100&r580", gres="gpu:h100:1"),
    }
    assert "from 5 nodes" in text
    assert "# 2 nodes, such as node3" in text
    assert "CHECK: all nodes have to see it." in text


def test_a_driver_that_no_feature_says_is_asked_for(tmp_path: Path) -> None:
    kinds = kinds_of([node("gpu7", "skylake,nvlink", tesla_t4=2), node("gpu8", "skylake", untyped=1)])
    assert [kind.host_class for kind in kinds] == [None, None]
    answers = ["535.183.01, Tesla T4\n", "580.65.06, NVIDIA H100 80GB HBM3\n"]
    text = proposed([told_by(kind, answer) for kind, answer in zip(kinds, answers, strict=True)])
    assert "# CHECK: every node has a GPU, so `no-gpu` is not here: its cells are missing." in text
    assert places(tmp_path, text) == {
        "r535-t4": SlurmPlace(gres="gpu:tesla_t4:1"),
        "r580-h100": SlurmPlace(gres="gpu:1"),
    }
    assert "# gpu7 said driver 535.183.01 and Tesla T4. CHECK: the scheduler does not know the driver" in text


def test_nodes_that_say_nothing_are_a_comment(tmp_path: Path) -> None:
    kinds = kinds_of([node("gpu7", "", a10=1), node("gpu8", "r580,h100", h100=1)])
    text = proposed([told_by(kinds[0], ""), kinds[1]])
    assert set(places(tmp_path, text)) == {"r580-h100"}
    assert "# CHECK: gpu7: a job on gpu7 could not find out its driver. Add it as:" in text
    assert '#   rDRIVER-a10: {gres: "gpu:a10:1"}' in text


def test_without_any_known_node_the_file_only_has_comments_and_can_be_completed() -> None:
    text = proposed(kinds_of([node("gpu7", "", a10=1)]))
    assert "host_classes:" not in text
    assert "rDRIVER-a10" in text


def test_two_ways_to_a_host_class_are_named_and_the_larger_one_is_used(tmp_path: Path) -> None:
    nodes = [
        node("old", "r580,h100", "lab", default=False, h100=1),
        *(node(f"new{index}", "r580,h100", h100=1) for index in (1, 2)),
    ]
    text = proposed(kinds_of(nodes))
    assert places(tmp_path, text)["r580-h100"].partition == ""
    assert (
        'CHECK: old need other keys: {constraint: "h100&r580", gres: "gpu:h100:1", partition: "lab"}' in text
    )


def test_a_node_with_two_models_is_two_kinds() -> None:
    found = kinds_of([node("mixed", "r580", a10=1, t4=1)])
    assert [(kind.host_class, kind.place) for kind in found] == [
        ("r580-a10", {"constraint": "r580", "gres": "gpu:a10:1"}),
        ("r580-t4", {"constraint": "r580", "gres": "gpu:t4:1"}),
    ]
    # A feature that names one of them says nothing about the other, whose type has no name.
    assert [kind.gpu for kind in kinds_of([node("mixed", "r580,a10", gpu_a=1, gpu_b=1)])] == ["", ""]


@pytest.mark.parametrize(
    ("features", "driver"),
    [
        ("r580", "580"),
        ("driver580,h100", "580"),
        ("nvidia-driver_535.183.01", "535.183.01"),
        ("nvidia_570", "570"),
        ("580.65.06", "580.65.06"),
        ("r580,r535", ""),
        ("r210,rack580,gen580,400", ""),
        ("r999999", ""),
        ("", ""),
    ],
)
def test_a_driver_is_read_from_features(features: str, driver: str) -> None:
    assert driver_of(features.split(",")) == driver


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("h100", "h100"),
        ("tesla_t4", "t4"),
        ("rtx_4090", "rtx-4090"),
        ("a100,avx512,ib", "a100"),
        ("a100,t4", ""),
        ("gold", ""),
    ],
)
def test_a_model_is_read_from_features(words: str, model: str) -> None:
    assert model_in(words.split(",")) == model


@pytest.mark.parametrize(
    ("answer", "host_class"),
    [
        ("580.65.06, NVIDIA H100 80GB HBM3\n580.65.06, Tesla T4\n", "r580-h100"),
        ("", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("580.65.06", None),
    ],
)
def test_what_nvidia_smi_says(answer: str, host_class: str | None) -> None:
    assert told_by(NodeKind(1, "gpu7", "", "", True), answer).host_class == host_class
