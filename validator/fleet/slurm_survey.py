"""Find the kinds of nodes of a Slurm cluster, by features and generic resources, or by a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import ValidatorError
from . import slurm_client
from .proposal import NodeKind, Seen, driver_of, model_in
from .protocol import FleetDown
from .settings import FleetSettings
from .slurm_client import Node

#: Minutes that the short job may run, and seconds for which it may wait for a node.
_MINUTES = 2
_WAIT_S = 60
#: What the job runs. nvidia-smi comes with the driver, and needs no Python.
ASK = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")


def open_surveyor(settings: FleetSettings) -> SlurmSurveyor:
    """Return the surveyor. It does not need the settings."""
    # Home directories are shared on most clusters.
    return SlurmSurveyor(Path.home() / "tensorflow-gpu-matrix")


class SlurmSurveyor:
    """The cluster that this machine submits to."""

    section = "slurm"

    def __init__(self, directory: Path, ask: tuple[str, ...] = ASK) -> None:
        self.keys: Mapping[str, tuple[str, str]] = {
            "directory": (
                str(directory),
                "CHECK: this machine and all nodes have to see it under this path.",
            ),
        }
        self._ask = ask

    def survey(self) -> list[NodeKind]:
        return kinds_of(slurm_client.nodes())

    def ask(self, kind: NodeKind) -> Seen | None:
        options = [f"--{name}={value}" for name, value in kind.place.items()]
        try:
            answer = slurm_client.run_job(
                [*options, "--ntasks=1", f"--time={_MINUTES}", f"--immediate={_WAIT_S}", *self._ask]
            )
        except FleetDown:
            raise
        except (slurm_client.Refusal, ValidatorError):
            return None
        return seen_in(answer)


def seen_in(answer: str) -> Seen | None:
    """Return what nvidia-smi said of the first GPU, or None if it said something else."""
    driver, _, gpu = answer.strip().partition("\n")[0].partition(",")
    if not driver_of([driver.strip()]) or not gpu.strip():
        return None
    return Seen(driver.strip(), gpu.strip())


def kinds_of(nodes: Iterable[Node]) -> list[NodeKind]:
    """Return the kinds of nodes: those with the same features, GPUs and partitions are one.

    Nodes without a GPU are one kind. If nodes have GPUs of two models, each model is a kind of its own,
    chosen by its GRES type.
    """
    partitions: dict[str, list[Node]] = {}
    for node in nodes:
        partitions.setdefault(node.name, []).append(node)
    kinds: dict[tuple[object, ...], list[list[Node]]] = {}
    for of_node in partitions.values():
        node = of_node[0]
        gpus = tuple(sorted(node.gpus))
        where = tuple(sorted(entry.partition for entry in of_node))
        key = (where, gpus, tuple(sorted(node.features))) if gpus else ((), (), ())
        kinds.setdefault(key, []).append(of_node)
    return [kind for alike in kinds.values() for kind in _kinds(alike)]


def _kinds(alike: list[list[Node]]) -> list[NodeKind]:
    """Return the kinds of nodes that look the same. alike: for each node, its entry in every partition."""
    first = alike[0]
    node = first[0]
    partition = {} if any(entry.default for entry in first) else {"partition": node.partition}
    if not node.gpus:
        return [NodeKind(len(alike), node.name, "", "", False, partition or {"partition": node.partition})]
    found = []
    for kind in sorted(node.gpus):
        model = model_in([kind]) if kind else ""
        # With two models on a node, a feature can be about either of them.
        model = model or (model_in(node.features) if len(node.gpus) == 1 else "")
        driver = driver_of(node.features)
        wanted = [
            feature
            for feature in sorted(node.features)
            if (driver and driver_of([feature]) == driver) or (model and model_in([feature]) == model)
        ]
        place = {
            **({"constraint": "&".join(wanted)} if wanted else {}),
            "gres": f"gpu:{kind}:1" if kind else "gpu:1",
            **partition,
        }
        found.append(NodeKind(len(alike), node.name, driver, model, True, place))
    return found
