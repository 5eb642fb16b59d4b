"""Other clients read and run whole images, from a registry or an OCI layout."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.assemble.image import Assembled, OciLayout, RegistryDestination, assemble
from validator.assemble.layer_table import LayerTable
from validator.engines.endpoint import Endpoint
from validator.model.spec import Lock
from validator.registry.names import Repository

from ...assemble.podman import own_podman
from ...assemble.pushes import TAG, locked, planned, published
from ...registry.server import RunningRegistry
from .conftest import CPU, cpu_lock, maker_at, quiet
from .package_index import Index
from .private_engine import PrivateEngine, private_engine

pytestmark = pytest.mark.engine


@dataclass(frozen=True)
class Pushed:
    """An image in a registry, with the place of its wheels and its layer table."""

    name: str
    image: Assembled
    lock: Lock
    place: Path

    @property
    def blobs(self) -> set[str]:
        """The digests of the layers and the configuration."""
        config = f"sha256:{hashlib.sha256(self.image.config).hexdigest()}"
        return {config, *(placed.encoded.digest for placed in self.image.layers)}


@pytest.fixture(scope="module")
def pushed(server: RunningRegistry, tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    place = tmp_path_factory.mktemp("pushed")
    lock, repository = locked(place, 31), Repository(server.address, "clients/pushed")
    image = published(place, lock, repository)
    return Pushed(repository.tagged(TAG), image, lock, place)


@pytest.fixture(scope="module", params=[True, False], ids=["containerd", "older"])
def client(request: pytest.FixtureRequest) -> Iterator[PrivateEngine]:
    """Yield an engine with each image store."""
    root = Path(tempfile.mkdtemp(prefix="own-engine-"))
    with private_engine(root, root / "data", image_store=request.param) as running:
        yield running
    shutil.rmtree(root, ignore_errors=True)


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blobs_in(directory: Path) -> set[str]:
    """Return the digests of what skopeo wrote to a directory."""
    return {f"sha256:{path.name}" for path in directory.iterdir() if len(path.name) == 64}


def test_docker_pulls_it(client: PrivateEngine, pushed: Pushed) -> None:
    docker = ("docker", "-H", client.url)
    run(*docker, "pull", pushed.name)
    layers = run(*docker, "image", "inspect", "-f", '{{join .RootFS.Layers " "}}', pushed.name)
    assert layers.split() == [placed.encoded.diff_id for placed in pushed.image.layers]
    run(*docker, "image", "rm", pushed.name)


def test_containerd_pulls_it(client: PrivateEngine, pushed: Pushed) -> None:
    socket = f"{client.url.removeprefix('unix://').rpartition('/')[0]}/exec/containerd/containerd.sock"
    ctr = ("ctr", "-a", socket, "-n", "clients")
    run(*ctr, "images", "pull", "--plain-http", pushed.name)
    assert set(run(*ctr, "content", "ls", "-q").split()) >= pushed.blobs
    run(*ctr, "images", "rm", "--sync", pushed.name)


def test_skopeo_copies_it(pushed: Pushed, tmp_path: Path) -> None:
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{pushed.name}", f"dir:{tmp_path}")
    assert blobs_in(tmp_path) == pushed.blobs


def test_skopeo_copies_an_oci_layout(pushed: Pushed, tmp_path: Path) -> None:
    table, layout = LayerTable(pushed.place / "table"), OciLayout(tmp_path / "layout", TAG)
    plan = planned(pushed.place, pushed.lock, table)
    image = assemble(plan, layout, table, lambda line: None)
    assert image.digest == pushed.image.digest
    run("skopeo", "copy", f"oci:{tmp_path}/layout:{TAG}", f"dir:{tmp_path}/copy")
    assert blobs_in(tmp_path / "copy") == pushed.blobs


@pytest.mark.parametrize("partial", [True, False])
def test_podman_runs_it(
    partial: bool,
    endpoint: Endpoint,
    index: Index,
    cache: Path,
    server: RunningRegistry,
) -> None:
    """In a partial pull, Podman creates the root of a layer itself, but the image's user has to enter it."""
    repository = Repository(server.address, f"clients/podman-{partial}".lower())
    maker = maker_at(cache, index.url, endpoint)
    maker.make(CPU, cpu_lock(index), RegistryDestination(repository, TAG), quiet)
    program = "import os, sys, tensorflow; print(os.getuid(), sys.prefix, tensorflow.__version__)"
    with own_podman(partial_pulls=partial) as podman:
        podman("pull", "--quiet", "--tls-verify=false", repository.tagged(TAG))
        # Podman's own limits are higher than those that a machine may allow.
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        image = (repository.tagged(TAG), "python", "-c", program)
        printed = podman("run", "--rm", "--network=none", *limits, *image)
    assert printed.split() == ["10001", "/opt/venv", CPU.tensorflow]
