"""Images on a base of one's own, from the matrix to the registry, on a machine without an engine or cosign.

The base, the wheels and TensorFlow are tiny; the registry and the index are real.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from validator.assemble.encodings import encoding
from validator.assemble.image import put_base
from validator.assemble.layers import Layers
from validator.assemble.registry_destination import RegistryDestination
from validator.assemble.table import LayerTable
from validator.cli import build_matrix
from validator.cli.planning import load_plan, locks_of
from validator.compat.policies import requirements
from validator.errors import EXIT_INPUT, EXIT_OK
from validator.locks import files
from validator.model.spec import ImageSpec
from validator.registry.names import Repository, image_tag

from ..assemble.bases import FILES, base_of, layer
from ..integration.docker.package_index import Index, TinyWheel, lock_of, running_index
from ..registry.proxy import Proxy
from ..registry.server import RunningRegistry, running_registry

pytestmark = pytest.mark.service

NAME = "team/tensorflow"
WHEELS = (
    TinyWheel.make("tensorflow-cpu", "2.21.0", {"tensorflow/__init__.py": b"__version__ = '2.21.0'\n"}),
    TinyWheel.make("pip", "25.0", {"pip/__init__.py": b""}),
)
MATRIX = """\
images:
  - {{tensorflow: "2.21.0", python: "3.11", variant: cpu, base: "{base}"}}
hosts: [{{gpu: none}}]
profiles: {{quick: {{description: all of it}}}}
"""


@dataclass(frozen=True)
class Machine:
    """A machine without an engine, in a directory with a matrix. address: of its registry."""

    directory: Path
    address: str
    patch: pytest.MonkeyPatch

    @property
    def matrix(self) -> Path:
        return self.directory / "matrix.yaml"

    @property
    def repository(self) -> Repository:
        return Repository(self.address, NAME)

    @property
    def spec(self) -> ImageSpec:
        [spec] = load_plan(self.matrix, None, ()).images
        return spec

    def base(self, files: Mapping[str, bytes | str | None], tag: str = "3.11") -> str:
        """Push a base. Return its name with the digest."""
        table = LayerTable(self.directory / "base-table")
        into = RegistryDestination(Repository(self.address, "team/base"), tag)
        digest = put_base(base_of(table, layer(files)), into, table, encoding(Layers.GZIP))
        return f"{self.address}/team/base:{tag}@{digest}"

    def describe(self, base: str) -> None:
        """Write a matrix with an image on this base, and the lock of that image."""
        self.matrix.write_text(MATRIX.format(base=base))
        spec = self.spec
        lock = lock_of(spec, *WHEELS)
        lock = type(lock)(lock.identifier, lock.python, lock.platform, requirements(spec), lock.wheels)
        files.write(locks_of(self.matrix).own, lock)

    def move_to(self, cache: Path) -> None:
        """Go on with another cache directory, as on another machine."""
        self.patch.setenv("VALIDATOR_CACHE", str(cache))

    def run(self, command: click.Command, *arguments: object, code: int = EXIT_OK) -> Result:
        done = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    def push(self, *arguments: object, code: int = EXIT_OK) -> list[dict[str, Any]]:
        """Run `build-matrix --push`, and return its results."""
        done = self.run(
            build_matrix.command, "--push", self.repository, "--no-validate", "--json", *arguments, code=code
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        assert all(one["published"] for one in found) or code, found
        return found


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with running_index() as index:
        index.add(*WHEELS)
        yield index


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningRegistry]:
    """Yield a registry of its own for each test: what one of them pushes must not be there for another."""
    with running_registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def machine(index: Index, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    directory = tmp_path / "machine"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setenv("UV_INDEX", "")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    # No cosign, which would take most of the time, and no bubblewrap: the base's Python is not a program.
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("oras", "git", "dpkg-deb", "mmdebstrap"):
        (programs / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not installed"))
    monkeypatch.setenv("PATH", str(programs))
    machine = Machine(directory, proxy.address, monkeypatch)
    machine.move_to(tmp_path / "cache")
    return machine


def layers_of(server: RunningRegistry, repository: str, reference: str) -> list[str]:
    """Return the digests of an image's layers, lowest first."""
    manifest: dict[str, Any] = server.manifest(repository, reference)
    return [str(one["digest"]) for one in manifest["layers"]]


def sent(proxy: Proxy) -> str:
    """Return the addresses at which uploads of blobs were completed; each ends with a digest."""
    ends = [asked.path for asked in proxy.asked if asked.method == "PUT" and "digest=" in asked.path]
    return "\n".join(ends).replace("%3A", ":")


# --- layers of other repositories ---------------------------------------------------------------------


def test_the_layers_of_a_base_in_the_same_registry_are_not_sent(
    machine: Machine, proxy: Proxy, server: RunningRegistry
) -> None:
    base = machine.base(FILES)
    machine.describe(base)
    proxy.asked.clear()
    [pushed] = machine.push()
    assert pushed["published"]["sent"]
    [below] = layers_of(server, "team/base", "3.11")
    found = layers_of(server, NAME, image_tag(machine.spec))
    assert found[0] == below and len(found) > 1
    assert below not in sent(proxy)
    assert all(layer in sent(proxy) for layer in found[1:])


def test_layers_of_a_named_repository_are_not_sent(
    machine: Machine, proxy: Proxy, server: RunningRegistry, tmp_path: Path
) -> None:
    machine.describe(machine.base(FILES))
    machine.push()
    proxy.asked.clear()
    elsewhere = f"{machine.address}/other/place"
    machine.run(
        build_matrix.command, "--push", elsewhere, "--no-validate",
        "--mount-from", f"{machine.address}/absent", "--mount-from", machine.repository,
    )  # fmt: skip
    tag = image_tag(machine.spec)
    found = layers_of(server, "other/place", tag)
    assert found == layers_of(server, NAME, tag)
    assert not [layer for layer in found if layer in sent(proxy)]


def test_a_repository_of_another_registry_can_not_be_mounted(machine: Machine) -> None:
    machine.describe(machine.base(FILES))
    said = machine.run(
        build_matrix.command, "--push", machine.repository, "--mount-from", "registry.example/team/tf",
        code=EXIT_INPUT,
    ).output  # fmt: skip
    assert f"--mount-from registry.example/team/tf is not in the registry of --push ({machine.address})" in (
        " ".join(said.split())
    )
