"""One cluster for all tests of Slurm, which run in one worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loop import tiers
from validator.fleet.settings import SlurmPlace, SlurmSection
from validator.fleet.slurm import SlurmFleet

from .cluster import Cluster, running_cluster

#: Host classes, by the features of the cluster's nodes. Two nodes have an H100, the others have one each.
PLACES = {
    "r580-h100": SlurmPlace(constraint="r580&h100", gres="gpu:h100:1", time_limit=5),
    "r580-l4": SlurmPlace(constraint="r580&l4", gres="gpu:l4:1", time_limit=5),
    "r535-t4": SlurmPlace(constraint="r535&t4", gres="gpu:t4:1", time_limit=5),
    "r999-h100": SlurmPlace(constraint="r999&h100", gres="gpu:h100:1"),
}
Site = Callable[..., SlurmFleet]


@pytest.fixture(scope="session")
@tiers.carries(pytest.mark.engine, pytest.mark.xdist_group("slurm"))
def cluster() -> Iterator[Cluster]:
    """Yield a cluster of four nodes, and make Slurm's programs use it."""
    with running_cluster(MinJobAge="5") as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.configuration))
        yield running


@pytest.fixture(scope="session")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a function that makes an engine with a shared directory."""

    def make(
        name: str = "shared", setup: str = "", container: str = "venv", **places: SlurmPlace
    ) -> SlurmFleet:
        directory = tmp_path_factory.getbasetemp() / name
        # The Python of the tests is that of the nodes.
        path = f"export PATH={Path(sys.base_prefix, 'bin')}:$PATH\n"
        return SlurmFleet(
            SlurmSection(
                directory=str(directory),
                container=container,
                setup=path + setup,
                host_classes={**PLACES, **places},
            ),
            settle_s=2.0,
        )

    return make
