"""Images on a base of one's own, from the matrix to the registry, on a machine without an engine or cosign.

The base, the wheels and TensorFlow are tiny; the registry and the index are real.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from validator.assemble.base import BaseLayer
from validator.assemble.image import RegistryDestination, put_base
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheels import Wheelhouse
from validator.cli import build_matrix
from validator.cli import verify as verify_module
from validator.cli.certify import _uncomputed as uncomputed_parts
from validator.cli.planning import load_plan, locks_of
from validator.compat.policies import requirements
from validator.errors import EXIT_FAILED, EXIT_OK, MissingError
from validator.locks import lock_files
from validator.model.spec import ImageSpec, Wheel
from validator.registry.blobs import Blobs
from validator.registry.client import Registry
from validator.registry.names import Repository, image_tag

from ..assemble import images
from ..assemble.bases import FILES, base_of, layer
from ..assemble.bases import archive as archive_of
from ..integration.docker.package_index import Index, TinyWheel, lock_of, running_index
from ..registry.proxy import Fault, Proxy
from ..registry.server import RunningRegistry

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
        digest = put_base(base_of(table, layer(files)), into, table)
        return f"{self.address}/team/base:{tag}@{digest}"

    def describe(self, base: str) -> None:
        """Write a matrix with an image on this base, and the lock of that image."""
        self.matrix.write_text(MATRIX.format(base=base))
        spec = self.spec
        lock = lock_of(spec, *WHEELS)
        lock = type(lock)(lock.identifier, lock.python, lock.platform, requirements(spec), lock.wheels)
        lock_files.write(locks_of(self.matrix).own, lock)

    def move_to(self, cache: Path) -> None:
        """Go on with another cache directory, as on another machine."""
        self.patch.setenv("VALIDATOR_CACHE", str(cache))

    def run(self, command: click.Command, *arguments: object, code: int = EXIT_OK) -> Result:
        words = [*map(str, arguments)]
        done = CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
        assert done.return_value == code, done.output
        return done

    def push(self, *arguments: object, code: int = EXIT_OK) -> list[dict[str, Any]]:
        """Run `build-matrix --push`, and return its results."""
        done = self.run(
            build_matrix.build_matrix_command,
            "--push",
            self.repository,
            "--no-validate",
            "--json",
            *arguments,
            code=code,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        assert all(one["published"] for one in found) or code, found
        return found


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with running_index(*WHEELS) as index:
        yield index


@pytest.fixture
def server(own_server: RunningRegistry) -> RunningRegistry:
    return own_server


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
    for name in ("git", "dpkg-deb", "mmdebstrap"):
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
        build_matrix.build_matrix_command, "--push", elsewhere, "--no-validate",
        "--mount-from", f"{machine.address}/absent", "--mount-from", machine.repository,
    )  # fmt: skip
    tag = image_tag(machine.spec)
    found = layers_of(server, "other/place", tag)
    assert found == layers_of(server, NAME, tag)
    assert not [layer for layer in found if layer in sent(proxy)]


def test_layers_of_another_registry_need_no_wheels(
    machine: Machine, server: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.describe(machine.base(FILES))
    machine.push()
    # The same storage behind another address, so for the tool another registry.
    assert server.address != machine.address
    needed: list[Wheel] = []
    monkeypatch.setattr(Wheelhouse, "fetch", lambda _, wheels, *__: needed.extend(wheels))
    machine.run(
        build_matrix.build_matrix_command, "--push", f"{server.address}/copied/place", "--no-validate",
        "--mount-from", machine.repository,
    )  # fmt: skip
    tag = image_tag(machine.spec)
    assert layers_of(server, "copied/place", tag) == layers_of(server, NAME, tag)
    assert needed == []


# --- a base that changed ------------------------------------------------------------------------------


def test_a_base_without_a_digest_is_what_its_name_has_at_the_time(
    machine: Machine, server: RunningRegistry
) -> None:
    before = machine.base(FILES)
    machine.describe(before.partition("@")[0])
    machine.push()
    tag = image_tag(machine.spec)
    first, made = layers_of(server, NAME, tag), server.tags(NAME)
    machine.base({**FILES, "etc/motd": b"another base"})
    [refused] = machine.push(code=EXIT_FAILED)
    assert refused["status"] == "refused" and "this tag names another image" in refused["detail"]
    assert server.tags(NAME) == made
    machine.push("--retag")
    second = layers_of(server, NAME, tag)
    assert second[0] != first[0] and second[0] == layers_of(server, "team/base", "3.11")[0]
    # What an installer makes of the wheels does not depend on the base.
    assert second[1:-1] == first[1:-1]


def test_a_base_that_is_altered_on_the_way_publishes_nothing(
    machine: Machine, proxy: Proxy, server: RunningRegistry
) -> None:
    machine.describe(machine.base(FILES))
    # Not through the proxy, so that the base's layer is copied and not mounted. Its files are then known.
    near = replace(machine, address=server.address)
    near.push()
    [below] = layers_of(server, "team/base", "3.11")
    [blob] = server.storage.glob(f"**/{below.removeprefix('sha256:')}/data")
    part = blob.read_bytes()[40:56]
    proxy.faults = [Fault("GET", f"/blobs/{below}", replace=(part, bytes(len(part))))]
    elsewhere = ("--push", f"{server.address}/other/place")
    [failed] = near.push(*elsewhere, code=EXIT_FAILED)
    assert proxy.faults[0].happened
    assert "the registry sends content that does not match its digest" in failed["detail"]
    assert failed["record"]["verdict"] == "broken"
    assert server.tags("other/place") == {}
    proxy.faults = []
    near.push(*elsewhere)
    assert layers_of(server, "other/place", image_tag(machine.spec))[0] == below


# --- making an image again ----------------------------------------------------------------------------


def not_computed(machine: Machine, digest: str) -> Sequence[str]:
    """Return the parts of an image for which `certify` asks this machine to run `verify --rebuild`."""
    return uncomputed_parts(Registry(machine.repository), digest)


def verify(machine: Machine, name: str, code: int = EXIT_OK) -> tuple[dict[str, str], str]:
    """Run `verify --rebuild`. Return what it found of each part of the image, and what it said."""
    done = machine.run(
        verify_module.verify_command, "--rebuild", "--registry", machine.repository, "--json", name, code=code
    )
    [parts] = json.loads(done.stdout).values()
    return {part["name"]: part["finding"] for part in parts}, done.stderr


def test_another_machine_makes_the_image_again(machine: Machine, tmp_path: Path) -> None:
    machine.describe(machine.base(FILES))
    [pushed] = machine.push()
    name, digest = machine.spec.identifier, pushed["published"]["digest"]
    assert not_computed(machine, digest) == (), "the machine that made it"
    machine.move_to(tmp_path / "elsewhere")
    assert len(not_computed(machine, digest)) > 3
    found, said = verify(machine, name)
    assert f"{name}: exactly its lock" in said
    assert set(found.values()) == {"base", "equal"} and found["configuration"] == "equal"
    assert not_computed(machine, digest) == ()


def test_an_image_with_a_replaced_layer_is_found_out(
    machine: Machine, server: RunningRegistry, tmp_path: Path
) -> None:
    machine.describe(machine.base(FILES))
    machine.push()
    tag = image_tag(machine.spec)
    manifest: dict[str, Any] = server.manifest(NAME, tag)
    config = Registry(machine.repository).blob(manifest["config"]["digest"], 1 << 20)
    document = json.loads(config)
    archive = layer({"opt/venv/lib/python3/site-packages/tensorflow/__init__.py": b"evil = 1\n"})
    plain = b"".join(archive.archive())
    at = len(manifest["layers"]) - 2
    manifest["layers"][at] = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": images.upload(machine.address, NAME, plain),
        "size": len(plain),
    }
    document["rootfs"]["diff_ids"][at] = archive.diff_id
    altered = json.dumps(document).encode()
    manifest["config"]["digest"] = images.upload(machine.address, NAME, altered)
    manifest["config"]["size"] = len(altered)
    digest = Blobs.to_write(machine.repository).send_manifest(
        json.dumps(manifest).encode(), str(manifest["mediaType"]), tag
    )
    machine.move_to(tmp_path / "elsewhere")
    found, said = verify(machine, machine.spec.identifier, EXIT_FAILED)
    wrong = [name for name, finding in found.items() if finding == "differs"]
    assert wrong == ["tensorflow-cpu 2.21.0"]
    assert f"{machine.spec.identifier}: not what its lock gives: tensorflow-cpu 2.21.0" in said
    assert archive.diff_id in not_computed(machine, digest)


def test_the_engine_has_a_base_that_the_registry_lost(
    machine: Machine, server: RunningRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = machine.base(FILES)
    machine.describe(base)
    machine.push()
    shutil.rmtree(server.storage / "docker/registry/v2/repositories/team/base")
    machine.move_to(tmp_path / "elsewhere")
    with pytest.raises(MissingError, match="it is not in the registry"):
        verify(machine, machine.spec.identifier)

    class Images:
        def save(self, name: str, directory: Path) -> tuple[Path, str | None] | None:
            assert name == base
            return saved(tmp_path / "saved.tar", layer(FILES)), base.partition("@")[2]

    monkeypatch.setattr("validator.pipeline.makers._engine", object)
    monkeypatch.setattr("validator.pipeline.makers.EngineImages", lambda engine: Images())
    found, _ = verify(machine, machine.spec.identifier)
    assert set(found.values()) == {"base", "equal"}


def saved(path: Path, base: BaseLayer) -> Path:
    """Write an archive of a base as `docker image save` does."""
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": [], "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [base.diff_id]},
    }
    listed = [{"Config": "config.json", "Layers": ["layer.tar"], "RepoTags": None}]
    content = {
        "manifest.json": json.dumps(listed).encode(),
        "config.json": json.dumps(config).encode(),
        "layer.tar": b"".join(base.archive()),
    }
    path.write_bytes(archive_of(content))
    return path
