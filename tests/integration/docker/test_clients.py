"""Other clients read what the assembler pushed, or wrote as an OCI layout."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.assemble.oci_layout import OciLayout
from validator.assemble.registry_destination import RegistryDestination
from validator.registry.names import Repository

from ...assemble.synthetic import Image, image
from ...registry.server import RunningRegistry
from .private_engine import PrivateEngine, private_engine

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=[True, False], ids=["containerd", "older"])
def engine(request: pytest.FixtureRequest) -> Iterator[PrivateEngine]:
    """Yield an engine with each image store."""
    path = Path(tempfile.mkdtemp(prefix="own-engine-"))
    with private_engine(path, path / "data", image_store=request.param) as running:
        yield running
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=[True, False], ids=["known", "unknown"])
def pushed(request: pytest.FixtureRequest, server: RunningRegistry) -> tuple[str, Image]:
    """Return the name of an image in a registry, and the image."""
    sent = image(31, 32, 33)
    repository = Repository(server.address, f"clients/{request.param}".lower())
    sent.send(RegistryDestination(repository, "v1"), known=request.param)
    return repository.tagged("v1"), sent


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blobs_in(directory: Path) -> set[str]:
    """Return the digests of what skopeo wrote to a directory."""
    return {f"sha256:{path.name}" for path in directory.iterdir() if len(path.name) == 64}


def test_docker_pulls_it(engine: PrivateEngine, pushed: tuple[str, Image]) -> None:
    name, sent = pushed
    run("docker", "-H", engine.url, "pull", name)
    layers = run("docker", "-H", engine.url, "image", "inspect", "-f", '{{join .RootFS.Layers " "}}', name)
    assert layers.split() == [layer.encoded.diff_id for layer in sent.layers]
    run("docker", "-H", engine.url, "image", "rm", name)


def test_containerd_pulls_it(engine: PrivateEngine, pushed: tuple[str, Image]) -> None:
    name, sent = pushed
    socket = f"{engine.url.removeprefix('unix://').rpartition('/')[0]}/exec/containerd/containerd.sock"
    ctr = ("ctr", "-a", socket, "-n", "clients")
    run(*ctr, "images", "pull", "--plain-http", name)
    assert set(run(*ctr, "content", "ls", "-q").split()) >= set(sent.blobs)
    run(*ctr, "images", "rm", name)


def test_skopeo_copies_it(pushed: tuple[str, Image], tmp_path: Path) -> None:
    name, sent = pushed
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{name}", f"dir:{tmp_path}")
    assert blobs_in(tmp_path) == set(sent.blobs)


def test_skopeo_copies_an_oci_layout(tmp_path: Path) -> None:
    sent = image(31, 32, 33)
    sent.send(OciLayout(tmp_path / "layout", "v1"))
    run("skopeo", "copy", f"oci:{tmp_path}/layout:v1", f"dir:{tmp_path}/copy")
    assert blobs_in(tmp_path / "copy") == set(sent.blobs)
