"""Clusters of the tests' own. One worker runs all tests with them, one after the other."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from validator.fleet.kubernetes import Api, Kubernetes
from validator.fleet.settings import KubernetesSection

from ...loop import tiers
from .cluster import BUILD, Cluster, ClusterError, programs, running_cluster

#: Every test with a cluster has these marks.
kubernetes = tiers.carries(pytest.mark.engine, pytest.mark.xdist_group("kubernetes"))
NO_CONTROL_PLANE = f"no control plane: run {BUILD}"
#: Opens the engine as a user of the cluster: `fleet`, `nobody` or `expired`.
Open = Callable[..., Kubernetes]


def _running(*, kubelet: bool = False) -> Iterator[Cluster]:
    if programs() is None:
        pytest.skip(NO_CONTROL_PLANE)
    # Not in pytest's directory: paths of sockets are short.
    directory = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    try:
        with running_cluster(directory, kubelet=kubelet) as running:
            yield running
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
@kubernetes
def simulated() -> Iterator[Cluster]:
    """Yield a cluster with four simulated nodes."""
    yield from _running()


@pytest.fixture(scope="session")
@kubernetes
def with_kubelet() -> Iterator[Cluster]:
    """Yield a cluster that also has a real node."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    yield from _running(kubelet=True)


@pytest.fixture
@kubernetes
def cluster(simulated: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with simulated nodes, complete, and with an empty namespace."""
    simulated.start()
    yield simulated
    simulated.start()
    simulated.clear()


@pytest.fixture
@kubernetes
def open_fleet(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Yield a function that opens the engine."""
    opened = []

    def open_(
        user: str = "fleet", settings: KubernetesSection | None = None, *, limit_s: float = 20.0
    ) -> Kubernetes:
        monkeypatch.setenv("KUBECONFIG", str(cluster.directory / f"kubeconfig-{user}"))
        opened.append(Kubernetes(settings or KubernetesSection(), Api(limit_s=limit_s)))
        return opened[-1]

    yield open_
    for fleet in opened:
        fleet.close()
