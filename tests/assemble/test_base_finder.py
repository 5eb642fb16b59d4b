"""The sources of bases: a registry, the packages of Debian, an engine's archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from validator.assemble import base as base_module
from validator.assemble import bootstrap
from validator.assemble.base import Base, BaseLayer, ImageName, decompressed, registry_base, saved_image
from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.image import OciLayout, RegistryDestination, put_base
from validator.assemble.layer_table import LayerTable
from validator.assemble.layers import Encoded
from validator.errors import InputError, MissingError, ValidatorError
from validator.registry.names import Repository
from validator.registry.session import AlteredError

from ..registry.proxy import Fault, Proxy
from ..registry.server import RunningRegistry
from .bases import CPU, FILES, archive, base_of, layer

OTHER = "sha256:" + "0" * 64


@pytest.fixture
def table(tmp_path: Path) -> LayerTable:
    return LayerTable(tmp_path / "table")


@pytest.mark.parametrize(
    ("text", "host", "path", "tag", "digest"),
    [
        ("python:3.12-slim", "docker.io", "library/python", "3.12-slim", None),
        ("team/python", "docker.io", "team/python", "latest", None),
        (f"python:3.12@{OTHER}", "docker.io", "library/python", "3.12", OTHER),
        ("localhost:5000/base", "localhost:5000", "base", "latest", None),
        ("registry.example/ours/python:3.12", "registry.example", "ours/python", "3.12", None),
    ],
)
def test_names_of_images(text: str, host: str, path: str, tag: str, digest: str | None) -> None:
    name = ImageName.parse(text)
    assert (name.repository, name.tag, name.digest) == (Repository(host, path), tag, digest)
    assert name.plain == text.partition("@")[0]


@pytest.mark.parametrize("text", ["", "Python", "python@sha256:1", "python:bad tag", "a//b"])
def test_what_is_not_the_name_of_an_image(text: str) -> None:
    with pytest.raises(InputError):
        ImageName.parse(text)


# --- a registry ---------------------------------------------------------------------------------------


@pytest.fixture
def pushed(server: RunningRegistry, table: LayerTable) -> tuple[str, Base]:
    """Return a base in a registry, with its digest."""
    base = base_of(table, layer({"etc/motd": b"old"}), layer(FILES))
    repository = Repository(server.address, "team/base")
    digest = put_base(base, RegistryDestination(repository, "3.11"), table)
    return f"{repository}:3.11@{digest}", base


def test_a_base_of_a_registry(pushed: tuple[str, Base], tmp_path: Path) -> None:
    name, original = pushed
    found = registry_base(ImageName.parse(name), "3.11", LayerTable(tmp_path / "other"))
    assert found.origin == f"registry:{name}" and found.digest == name.partition("@")[2]
    assert found.name == name.partition("@")[0]
    assert found.files == original.files
    assert [one.diff_id for one in found.layers] == [one.diff_id for one in original.layers]
    for one, before in zip(found.layers, original.layers, strict=True):
        assert one.blob is not None
        assert b"".join(one.archive()) == b"".join(before.archive())


def test_a_tag_is_pinned_by_its_digest(pushed: tuple[str, Base], table: LayerTable) -> None:
    name, _ = pushed
    found = registry_base(ImageName.parse(name.partition("@")[0]), "3.11", table)
    assert found.origin == f"registry:{name}"


def test_a_digest_is_asked_for_once(pushed: tuple[str, Base], table: LayerTable) -> None:
    name, _ = pushed
    first = registry_base(ImageName.parse(name), "3.11", table)
    parsed = ImageName.parse(name)
    nowhere = replace(parsed, repository=Repository("127.0.0.1:9", parsed.repository.path))
    assert registry_base(nowhere, "3.11", table).files == first.files


def test_a_digest_that_the_registry_does_not_have(pushed: tuple[str, Base], table: LayerTable) -> None:
    name = pushed[0].partition("@")[0]
    with pytest.raises(MissingError, match="can't be read: it is not in the registry"):
        registry_base(ImageName.parse(f"{name}@{OTHER}"), "3.11", table)


def test_another_manifest_under_the_digest_is_rejected(
    proxy: Proxy, server: RunningRegistry, table: LayerTable
) -> None:
    digest = put_as(server.address, "team/altered:1", FILES, table)
    proxy.faults = [Fault("GET", "/manifests/", replace=(b'"schemaVersion":2', b'"schemaVersion": 2'))]
    with pytest.raises(AlteredError, match=rf"team/altered@{digest} can't be read: it was altered"):
        registry_base(ImageName.parse(f"{proxy.address}/team/altered:1@{digest}"), "3.11", table)


def test_a_tag_that_moved_is_noticed_once(
    server: RunningRegistry, table: LayerTable, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{server.address}/team/moving:1"
    spec, bases = replace(CPU, base=name), Bases(BasePolicy.REGISTRY, table)
    before = put_as(server.address, "team/moving:1", FILES, table)
    old = bases.base(spec, lambda _: None)
    assert old.origin == f"registry:{name}@{before}"
    Bases(BasePolicy.REGISTRY, table).warn_if_moved(spec, old.origin)
    assert caplog.messages == []
    after = put_as(server.address, "team/moving:1", {**FILES, "etc/motd": b"new"}, table)
    # One run has one base.
    assert bases.base(spec, lambda _: None) is old
    later = Bases(BasePolicy.REGISTRY, table)
    for _ in range(2):
        assert later.is_current(spec, old.origin), "it is what the name had when the image was made"
        later.warn_if_moved(spec, old.origin)
    [said] = caplog.messages
    assert f"the base {name}@{before}" in said and f"another digest now, {after}" in said
    assert later.base(spec, lambda _: None).origin == f"registry:{name}@{after}"
    pinned = replace(CPU, base=f"{name}@{before}")
    later.warn_if_moved(pinned, old.origin)
    assert later.base(pinned, lambda _: None).origin == old.origin
    assert len(caplog.messages) == 1


def put_as(address: str, name: str, files: Mapping[str, bytes | str | None], table: LayerTable) -> str:
    """Push a base under a name with a tag, and return its digest."""
    path, _, tag = name.partition(":")
    into = RegistryDestination(Repository(address, path), tag)
    return put_base(base_of(table, layer(files)), into, table)


def test_a_base_without_the_python_is_rejected(pushed: tuple[str, Base], table: LayerTable) -> None:
    with pytest.raises(InputError, match=r"has Python 3\.11 on its PATH; Python 3\.12 is needed"):
        registry_base(ImageName.parse(pushed[0]), "3.12", table)


# --- Debian's packages --------------------------------------------------------------------------------


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the tool that bootstraps pack a small base. Return the suites that it made."""
    made: list[str] = []

    def root_file_system(suite: str, directory: Path, progress: object, packages: object) -> Path:
        made.append(suite)
        path = directory / "rootfs.tar"
        path.write_bytes(archive(FILES))
        return path

    monkeypatch.setattr(bootstrap, "root_file_system", root_file_system)
    monkeypatch.setattr(bootstrap, "tool", lambda: "mmdebstrap")
    return made


def test_a_base_of_debian_is_made_once(debian: list[str], table: LayerTable, tmp_path: Path) -> None:
    for _ in range(2):
        bases = Bases(BasePolicy.BOOTSTRAP, table, directory=tmp_path / "bases")
        base = bases.base(CPU, lambda _: None)
        assert base.origin == bootstrap.origin("bookworm") and base.name == "debian:bookworm"
        assert base.digest is None
        (one,) = base.layers
        data = b"".join(one.archive())
        assert data == archive(FILES) and one.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert bases.is_current(CPU, base.origin)
    assert debian == ["bookworm"]


def test_a_base_of_debian_is_kept_as_its_blob(
    debian: list[str], table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is only compressed again if another version of zstd compressed the file."""

    def blob() -> tuple[Encoded, bytes]:
        bases = Bases(BasePolicy.BOOTSTRAP, table, directory=tmp_path / "bases")
        written: list[bytes] = []
        return bases.base(CPU, lambda _: None).layers[0].compress(written.append), b"".join(written)

    compressed = base_module.compressed
    calls = 0

    def count(parts: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal calls
        calls += 1
        return compressed(parts)

    monkeypatch.setattr(base_module, "compressed", count)
    encoded, data = blob()
    # The file itself was made once.
    assert calls == 1
    assert encoded.digest == f"sha256:{hashlib.sha256(data).hexdigest()}" and encoded.size == len(data)
    (kept,) = (tmp_path / "bases").iterdir()
    assert kept.read_bytes() == data
    with monkeypatch.context() as patch:
        patch.setattr(zstandard, "ZSTD_VERSION", (9, 9, 9))
        assert blob() == (encoded, data) and calls == 2
    assert debian == ["bookworm"]
    before = kept.stat().st_mtime_ns
    kept.write_bytes(zstandard.compress(archive(FILES).replace(b"# profile", b"# PROFILE")))
    os.utime(kept, ns=(before, before))
    with pytest.raises(ValidatorError, match="no longer has the content"):
        blob()


def test_an_evicted_base_of_debian_is_made_again(
    debian: list[str], table: LayerTable, tmp_path: Path
) -> None:
    base = Bases(BasePolicy.BOOTSTRAP, table, directory=tmp_path / "bases").base(CPU, lambda _: None)
    for path in (tmp_path / "bases").iterdir():
        path.unlink()
    assert b"".join(base.layers[0].archive()) == archive(FILES)
    assert debian == ["bookworm", "bookworm"]


def test_a_base_of_debian_that_was_made_differently_is_another_base(
    debian: list[str], table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> BaseLayer:
        bases = Bases(BasePolicy.BOOTSTRAP, table, directory=tmp_path / "bases")
        return bases.base(CPU, lambda _: None).layers[0]

    def made(suite: str, directory: Path, progress: object, packages: object) -> Path:
        (directory / "other.tar").write_bytes(other)
        return directory / "other.tar"

    before, other = found(), archive(FILES).replace(b"# profile", b"# PROFILE")
    monkeypatch.setattr(bootstrap, "root_file_system", made)
    for path in (tmp_path / "bases").iterdir():
        path.unlink()
    # The layer table does not know the new content yet.
    with pytest.raises(ValidatorError, match="no longer has the content") as caught:
        found().compress(lambda _: None)
    assert "repeat the command" in str(caught.value.hint)
    after = found()
    assert after.diff_id == f"sha256:{hashlib.sha256(other).hexdigest()}" != before.diff_id
    assert after.compress(lambda _: None).diff_id == after.diff_id


def test_without_a_registry_debian_is_used(
    debian: list[str], table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.registry.session.PAUSES", ())
    pinned = {"3.11": f"127.0.0.1:9/python:3.11@{OTHER}"}
    said: list[str] = []
    bases = Bases(BasePolicy.AUTO, table, pinned=pinned, directory=tmp_path / "bases")
    assert bases.base(CPU, said.append).origin == bootstrap.origin("bookworm")
    assert any("using Debian's mirror instead" in line for line in said)
    assert bases.is_current(CPU, f"registry:127.0.0.1:9/python:3.11@{OTHER}")
    with pytest.raises(MissingError):
        Bases(BasePolicy.REGISTRY, table, pinned=pinned).base(CPU, said.append)


def test_a_python_that_debian_does_not_have(debian: list[str], table: LayerTable) -> None:
    bases = Bases(BasePolicy.BOOTSTRAP, table)
    assert bases.provides("3.11") is None
    assert bases.provides("3.12") == (
        "no supported Debian release has Python 3.12: bases can be bootstrapped for"
        " Python 3.11 (Debian bookworm) and Python 3.13 (Debian trixie)"
    )
    with pytest.raises(MissingError, match=r"no supported Debian release has Python 3\.12"):
        bases.base(replace(CPU, python="3.12"), lambda _: None)
    assert debian == []


# --- an archive of an engine --------------------------------------------------------------------------


def saved(path: Path, layers: list[bytes], diff_ids: list[str], oci: bool = False, padding: int = 0) -> None:
    """Write an archive as `docker image save` does, or as Podman does in OCI's format."""
    configuration = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"User": "7"},
        "rootfs": {"diff_ids": diff_ids},
        "comment": " " * padding,
    }
    config = json.dumps(configuration).encode()
    files: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    if oci:
        manifest = {"schemaVersion": 2, "config": blob(config), "layers": [blob(one) for one in layers]}
        index = {"schemaVersion": 2, "manifests": [blob(json.dumps(manifest).encode())]}
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        files["index.json"] = json.dumps(index).encode()
    else:
        names = [f"{number}/layer.tar" for number in range(len(layers))]
        files["config.json"] = config
        files["manifest.json"] = json.dumps([{"Config": "config.json", "Layers": names}]).encode()
        files.update(zip(names, layers, strict=True))
    with tarfile.open(path, "w") as archived:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archived.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("oci", [False, True])
def test_an_image_of_an_engine(oci: bool, table: LayerTable, tmp_path: Path) -> None:
    # One layer as the older image store has it, and one that is compressed.
    plain, other = archive({"etc/motd": b"x"}), layer(FILES)
    written: list[bytes] = []
    compressed = other.compress(written.append)
    diff_ids = [f"sha256:{hashlib.sha256(plain).hexdigest()}", other.diff_id]
    saved(tmp_path / "saved.tar", [plain, b"".join(written)], diff_ids, oci)
    base = saved_image(tmp_path / "saved.tar", "registry:ours:1", "ours:1", None, "3.11", table)
    assert base.settings == {"User": "7"} and base.files.interpreter.version == "3.11.2"
    assert base.layers[0].blob is None and base.layers[1].blob == compressed
    assert [b"".join(one.archive()) for one in base.layers] == [plain, archive(FILES)]


def test_a_large_configuration_is_refused(table: LayerTable, tmp_path: Path) -> None:
    path, plain = tmp_path / "saved.tar", archive(FILES)
    saved(path, [plain], [f"sha256:{hashlib.sha256(plain).hexdigest()}"], padding=8 << 20)
    with pytest.raises(ValidatorError, match=r"the configuration of .*saved\.tar"):
        saved_image(path, "x", "x", None, "3.11", table)


@pytest.mark.parametrize(
    "content",
    [b"", b"x" * 5000, archive({"manifest.json": b"[]"}), archive({"index.json": b'{"manifests": []}'})],
)
def test_what_is_not_an_image_is_rejected(content: bytes, table: LayerTable, tmp_path: Path) -> None:
    path = tmp_path / "saved.tar"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"saved\.tar"):
        saved_image(path, "x", "x", None, "3.11", table)


def test_layers_are_compressed_and_checked() -> None:
    one = layer(FILES)
    written: list[bytes] = []
    blob = one.compress(written.append)
    data = b"".join(written)
    assert (blob.size, blob.digest) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    assert b"".join(decompressed(iter([data]), blob.media_type)) == archive(FILES)

    def changed() -> Iterator[bytes]:
        yield archive(FILES).replace(b"profile", b"PROFILE")

    with pytest.raises(Exception, match="no longer has the content"):
        replace(one, read=changed).compress(written.append)


#: Nothing, compressed, which changes the bytes of an archive but not its content.
EMPTY = zstandard.compress(b"")


def test_a_base_is_compressed_again_by_another_version_of_the_library(
    table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the layer table is about one version: another one may give other bytes."""
    base = base_of(table, layer(FILES))
    before = put_base(base, OciLayout(tmp_path / "before", "x"), table)
    monkeypatch.setattr(zstandard, "ZSTD_VERSION", (9, 9, 9))
    compressed = base_module.compressed
    monkeypatch.setattr(base_module, "compressed", lambda parts: iter([*compressed(parts), EMPTY]))
    after = put_base(base, OciLayout(tmp_path / "after", "x"), table)
    assert after != before
    assert put_base(base, OciLayout(tmp_path / "again", "x"), table) == after
