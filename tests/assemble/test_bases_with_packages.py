"""Bases with more packages of their distribution."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from validator.assemble import base_finder, bootstrap
from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.bootstrap import read_lock
from validator.assemble.layer_table import LayerTable
from validator.errors import MissingError
from validator.model.record import digest_of_packages
from validator.model.spec import Additions, ImageSpec, Variant
from validator.system.processes import Progress

from .bases import FILES, archive

NAME = "registry.invalid/ours/base:1"
PLAIN = ImageSpec("2.21.0", "3.11", Variant.CPU, base=NAME)
OURS = replace(PLAIN, additions=Additions(system_packages=("git", "tini")))


def quiet(_: str) -> None:
    """Ignore progress."""


def status_of(installed: Mapping[str, str]) -> dict[str, bytes]:
    """Return the database of dpkg with these packages and versions."""
    entries = [
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n"
        for name, version in installed.items()
    ]
    return {"var/lib/dpkg/status": "\n".join(entries).encode()}


class FakeEngine:
    """An engine whose images are the base, and the base with packages."""

    def __init__(self, version: str = "1:2.39.5-0+deb12u2") -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.renewed: list[bool] = []
        self.version = version

    def save(self, name: str, directory: Path) -> tuple[Path, str | None] | None:
        directory.mkdir(parents=True, exist_ok=True)
        with_packages = name == "with-packages:1"
        installed = {"base-files": "12.4", **({"git": self.version} if with_packages else {})}
        files = {**FILES, **({"usr/bin/git": b"git"} if with_packages else {}), **status_of(installed)}
        layer = archive(files)
        config = {
            "os": "linux",
            "architecture": "amd64",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        manifest = [{"Config": "config.json", "Layers": ["layer.tar"], "RepoTags": None}]
        path = directory / f"{'with' if with_packages else 'plain'}.tar"
        path.write_bytes(
            archive(
                {
                    "manifest.json": json.dumps(manifest).encode(),
                    "config.json": json.dumps(config).encode(),
                    "layer.tar": layer,
                }
            )
        )
        return path, None

    def with_system_packages(
        self, base: str, packages: Sequence[str], progress: Progress, *, renew: bool = False
    ) -> str:
        self.renewed.append(renew)
        self.asked.append((base, tuple(packages)))
        return "with-packages:1"


@pytest.fixture(autouse=True)
def _no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise MissingError("the image registry can't be reached")

    monkeypatch.setattr(base_finder, "registry_base", unreachable)


@pytest.fixture
def table(tmp_path: Path) -> LayerTable:
    return LayerTable(tmp_path / "table")


def test_the_engine_installs_them_in_a_base_of_a_registry_once(table: LayerTable, tmp_path: Path) -> None:
    engine = FakeEngine()
    bases = Bases(BasePolicy.REGISTRY, table, engine, directory=tmp_path)
    plain, ours = bases.base(PLAIN, quiet), bases.base(OURS, quiet)
    assert engine.asked == [(NAME, ("git", "tini"))]
    assert bases.base(OURS, quiet) is ours
    assert ours.layers != plain.layers
    assert ours.added == ("git:amd64=1:2.39.5-0+deb12u2",)
    assert ours.origin == f"{plain.origin}+packages:git,tini@{digest_of_packages(ours.added)}"
    assert engine.renewed == [False]
    assert bases.is_current(OURS, ours.origin)
    assert bases.is_current(PLAIN, plain.origin)
    assert not bases.is_current(OURS, plain.origin)
    assert not bases.is_current(PLAIN, ours.origin)


def test_other_versions_of_the_packages_are_another_base(table: LayerTable, tmp_path: Path) -> None:
    found = []
    for number, version in enumerate(("1:2.39.5-0+deb12u2", "1:2.39.5-0+deb12u3")):
        bases = Bases(BasePolicy.REGISTRY, table, FakeEngine(version), directory=tmp_path / str(number))
        found.append(bases.base(OURS, quiet).origin)
    assert found[0] != found[1]
    # What an older image has need not be replaced, unless that is asked for.
    assert all(bases.is_current(OURS, origin) for origin in found)


def test_packages_are_renewed_once_on_request(table: LayerTable, tmp_path: Path) -> None:
    older = Bases(BasePolicy.REGISTRY, table, FakeEngine("1:1"), directory=tmp_path / "older")
    old = older.base(OURS, quiet).origin
    engine = FakeEngine()
    bases = Bases(BasePolicy.REGISTRY, table, engine, directory=tmp_path, renew=True)
    assert not bases.is_current(OURS, old)
    new = bases.base(OURS, quiet).origin
    assert bases.base(OURS, quiet).origin == new and engine.renewed == [True]
    assert bases.is_current(OURS, new) and not bases.is_current(OURS, old)
    plain = bases.base(PLAIN, quiet)
    assert bases.is_current(PLAIN, plain.origin)


def test_without_an_engine_a_base_of_a_registry_can_not_have_them(
    table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Bases(BasePolicy.REGISTRY, table, FakeEngine(), directory=tmp_path).base(PLAIN, quiet)
    bases = Bases(BasePolicy.REGISTRY, table, directory=tmp_path)
    monkeypatch.setattr(bases, "_named", lambda *_: plain)
    with pytest.raises(MissingError, match=r"installing git, tini in .* needs a Docker engine") as caught:
        bases.base(OURS, quiet)
    assert "use a base in which they are" in str(caught.value.hint)


def test_a_bootstrapped_base_is_another_one_with_packages() -> None:
    digests = {bootstrap.digest("bookworm", names) for names in ((), ("git",), ("git", "tini"))}
    assert len(digests) == 3
    assert bootstrap.digest("bookworm", ("tini", "git")) in digests


def test_debootstrap_can_not_add_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "tool", lambda: "debootstrap")
    with pytest.raises(MissingError, match="mmdebstrap is not installed"):
        bootstrap.root_file_system("bookworm", tmp_path, quiet, ("git",))


@pytest.mark.engine
@pytest.mark.skipif(bootstrap.tool() != "mmdebstrap", reason="mmdebstrap is not installed")
def test_mmdebstrap_adds_packages_and_keeps_the_locked_ones(tmp_path: Path) -> None:
    made = bootstrap.root_file_system("bookworm", tmp_path, quiet, ("tini",))
    with tarfile.open(made) as opened:
        names = set(opened.getnames())
        status = opened.extractfile("./var/lib/dpkg/status")
        assert status is not None
        text = status.read().decode()
    assert "./usr/bin/tini" in names
    left = {name for name in names if name.startswith(("./etc/apt/sources", "./etc/apt/preferences"))}
    assert left == {"./etc/apt/sources.list.d", "./etc/apt/preferences.d"}
    # Bytecode from Debian's own scripts differs each time; that of `py3compile` does not.
    assert not any(re.search(r"usr/share/python3/.*\.pyc", name) for name in names)
    assert any(name.startswith("./usr/lib/python3.11/__pycache__/") for name in names)
    for package in read_lock("bookworm").packages:
        assert f"Package: {package.name}\n" in text
        assert f"Version: {package.version}\n" in text
