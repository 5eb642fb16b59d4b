"""`build-matrix --rehearse` from end to end, with a real engine and a real registry, on a tiny image."""

from __future__ import annotations

import json
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator import cli
from validator.cli import building
from validator.cli.planning import load_plan
from validator.compat.policies import requirements
from validator.delivery.pull import NotCertified
from validator.delivery.rehearsal import serve_command
from validator.engines.endpoint import Endpoint
from validator.engines.images import list_images
from validator.errors import MissingError
from validator.locks import lock_files
from validator.model.record import Origin, Verdict
from validator.model.spec import Lock
from validator.records.store import Store
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.files import cache_directory
from validator.system.package_sources import PackageSources

from ...registry.server import RunningRegistry
from .package_index import Index, TinyWheel, running_index

#: A release of which other tests, and people, have no image.
MATRIX = """
images: [{tensorflow: "2.18.1", python: "3.11"}]
hosts: [{driver: "580", gpu: h100}]
profiles: {quick: {select: "tensorflow=2.18.1"}}
"""


@pytest.fixture
def index() -> Iterator[Index]:
    with running_index() as index:
        yield index


def _wheel(name: str, version: str) -> TinyWheel:
    """Stands in for a requirement of the image, in any version if none is required."""
    version = version or "1.0"
    module = f"__version__ = {version!r}\n".encode()
    return TinyWheel.make(name, version, {f"{name.replace('-', '_')}/__init__.py": module})


@pytest.fixture
def place(tmp_path: Path, index: Index, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with a matrix and its lock, and use the tiny wheels and a cache of its own."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "matrix.yaml").write_text(MATRIX)
    (spec,) = load_plan(project / "matrix.yaml", None, ()).images
    wheels = tuple(_wheel(*line.partition("==")[::2]) for line in requirements(spec))
    index.add(*wheels)
    found = tuple(sorted((tiny.wheel for tiny in wheels), key=lambda wheel: wheel.name))
    lock = Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", requirements(spec), found)
    lock_files.write(project / lock_files.DIRECTORY, lock)
    cache = tmp_path / "cache"
    cache.mkdir()
    # The machine's bases take long to make.
    bases = cache_directory() / "bases"
    bases.mkdir(parents=True, exist_ok=True)
    (cache / "bases").symlink_to(bases)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("VALIDATOR_CACHE", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(building, "host_sources", lambda: PackageSources(index_url=index.url))
    monkeypatch.chdir(project)
    return project


def names(endpoint: Endpoint) -> set[str]:
    images = list_images(endpoint.client)
    return {name for image in images for name in (*image.tags, *image.attrs.get("RepoDigests", ()))}


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_everything_is_done_and_thrown_away(
    place: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(place)
    # TensorFlow is one line of code here, so the probe finds that the image does not work.
    assert cli.run(["build-matrix", "--rehearse", "--json"]) == 1
    said = capsys.readouterr()
    document = json.loads(said.out)
    done = {step["name"]: step["did"] for step in document["steps"]}
    assert document["rehearsal"] is True
    assert list(done) == [
        "build", "push", "probe", "certify", "verify", "promote", "recommend", "pull",
    ], said.err  # fmt: skip
    assert done["push"].startswith("REHEARSAL-2.18.1-cuda12.5-cudnn9.3-py3.11 is sha256:")
    assert done["probe"].startswith("failed: REHEARSAL: ")
    for name in ("certify", "verify", "promote", "recommend", "pull"):
        assert "REHEARSAL" in done[name], name
    assert "no certificate: record" in done["certify"]
    assert "nothing was pulled; it was then pulled by its digest" in done["pull"]
    lines = [line for line in said.err.splitlines() if not line.startswith("  ")]
    assert [line for line in lines if not line.startswith("REHEARSAL: ")] == []
    assert "  validator build-matrix --pull-from REGISTRY/NAME" in said.err

    assert everything(place) == before
    # Other tests use the same engine, but not this registry.
    found = re.search(r"started a registry at (127\.0\.0\.1:\d+)", said.err)
    assert found is not None and not [name for name in names(endpoint) if found[1] in name]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(found[1].partition(":")[2])), timeout=5)
    temporary, state = place.parent / "temporary", place.parent / "state"
    assert list(temporary.iterdir()) == []
    assert list(state.rglob("*.key")) == []


def test_it_is_kept_in_a_registry_of_ones_own(
    place: Path, endpoint: Endpoint, registry: RunningRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{registry.address}/team/tensorflow"
    before = everything(place)
    assert cli.run(["build-matrix", "--rehearse", "--keep", "--push", address]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split()[0] == "REHEARSAL"
    assert everything(place) == before
    (kept,) = (place.parent / "temporary").iterdir()
    assert f"are in {kept}" in said.err
    with Store(str(kept / "records.db"), read_only=True) as store:
        (record,) = store.latest().values()
    assert record.origin is Origin.REHEARSAL
    assert record.verdict is not Verdict.CERTIFIED
    assert record.measurement is None
    assert record.reason.startswith("REHEARSAL: ")
    repository = Registry(Repository.parse(address))
    tags = [tag for tag in repository.tags() if not tag.startswith("sha256-")]
    assert sorted(tags) == ["REHEARSAL-2.18.1-cuda12.5-cudnn9.3-py3.11", "REHEARSAL-latest"]
    for name in ("builder.key", "release.key", "trust.yaml"):
        assert "thrown away with the test" in (kept / name).read_text()
    assert not Path(serve_command(kept / "registry")[-1]).exists()

    # No command finds an image of this project there.
    public = ["--key", str(kept / "release.pub"), "--fixtures", "--accept-expired"]
    assert cli.run(["verify", "--registry", address, *public]) == 1
    assert cli.run(["verify", "--registry", address, *public, "REHEARSAL-latest"]) == 1
    assert "REHEARSAL" in capsys.readouterr().err
    there = ["--registry", address, *public, "--driver", "580", "--gpu", "h100"]
    for command in ("recommend", "pull"):
        with pytest.raises(MissingError, match="has only images of a REHEARSAL, which prove nothing"):
            cli.run([command, *there])
    with pytest.raises(NotCertified, match=r"the statement of a REHEARSAL.*; nothing was pulled"):
        cli.run(["pull", *there, "--image", "REHEARSAL-latest"])
    trust = ["--trust", str(kept / "trust.yaml")]
    assert cli.run(["promote", "--registry", address, *public, *trust]) == 0
    with_its_keys = ["--signing-key", str(kept / "release.key"), *trust, "--store", str(kept / "records.db")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", "")
        assert cli.run(["certify", "--registry", address, *with_its_keys, "--record", record.id]) == 1
    assert "made by a REHEARSAL, which proves nothing" in capsys.readouterr().err
    endpoint.client.images.remove(repository.repository.tagged("REHEARSAL-latest"), force=True)
