"""A layer made from real wheels has the files that `uv pip install` writes, as tar and zstd unpack it."""

from __future__ import annotations

import csv
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from uv import find_uv_bin

from validator.assemble import layers
from validator.assemble.install import Environment, entries, merged
from validator.assemble.wheel import open_wheel
from validator.assemble.wheels import Wheelhouse
from validator.locks import lock_files
from validator.model.spec import Wheel
from validator.resources import images_directory
from validator.system.files import cache_directory
from validator.system.package_sources import host_sources

pytestmark = pytest.mark.engine

IDENTIFIER = "tf2.21.0-cuda12.5-cudnn9.3-py311"
PYTHON = "3.11"
#: Bytes. The larger ones have nothing that these don't have.
LARGEST = 18_000_000
#: uv also writes down where packages came from, and makes a script of pip for this version of Python only.
NOTES = ("/uv_cache.json", "/direct_url.json", "venv/.lock", f"bin/pip{PYTHON}")
Tree = dict[str, tuple[int, bytes | str]]


@pytest.fixture(scope="module")
def wheels() -> dict[Path, Wheel]:
    text = (images_directory() / "locks" / f"{IDENTIFIER}.txt").read_text(encoding="utf-8")
    chosen = [wheel for wheel in lock_files.parse(text).wheels if (wheel.size or LARGEST) < LARGEST]
    house = Wheelhouse(host_sources(), cache_directory() / "tests" / "wheels")
    return {house.path(wheel): wheel for wheel in chosen}


@pytest.fixture(scope="module")
def expected(wheels: Mapping[Path, Wheel], tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return what uv installs, as if it were in `/opt/venv` with packages in `lib/python3`."""
    root = tmp_path_factory.mktemp("uv")
    named = root / "wheels"
    named.mkdir()
    for path, wheel in wheels.items():
        (named / wheel.filename).symlink_to(path)
    environment = root / "opt/venv"
    uv = [find_uv_bin(), "--quiet", "--no-config", "--offline"]
    subprocess.run([*uv, "venv", "--python", PYTHON, environment], check=True)
    made = set(environment.rglob("*"))
    python = environment / "bin/python"
    command: list[str | Path] = [*uv, "pip", "install", "--python", python, "--no-deps", "--no-cache"]
    command += ["--no-compile-bytecode", "--no-index", "--find-links", named]
    subprocess.run([*command, *map(str, wheels.values())], check=True)
    tree = {}
    for path in set(environment.rglob("*")) - made:
        name = str(path.relative_to(root)).replace(f"/lib/python{PYTHON}/", "/lib/python3/")
        tree[name] = described(path, os.fsencode(environment))
    return tree


def described(path: Path, environment: bytes = b"/opt/venv") -> tuple[int, bytes | str]:
    """Return mode and content of a path, with the environment's own path replaced."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
        if path.parent.name == "bin":
            content = script(content.replace(environment, b"/opt/venv"))
        if path.parent.name.endswith(".dist-info") and path.name == "RECORD":
            return status.st_mode, "\n".join(rows(content.decode()))
        return status.st_mode, content
    if stat.S_ISLNK(status.st_mode):
        return status.st_mode, os.readlink(path)
    return status.st_mode, ""


def script(content: bytes) -> bytes:
    """Return of a script made for an entry point only its interpreter and what it calls."""
    text = content.decode("latin-1")
    called = re.search(r"^    sys\.exit\((\S+)\(\)\)$", text, re.MULTILINE)
    imported = re.search(r"^from \S+ import \S+$", text, re.MULTILINE)
    if called and imported:
        return f"{text.splitlines()[0]}\n{imported[0]}\n{called[1]}".encode()
    return content


def rows(text: str) -> list[str]:
    """Return the rows of a RECORD; of the scripts and notes that differ by installer, only the paths."""
    return sorted(
        row[0] if "/bin/" in row[0] or row[0].endswith(("/INSTALLER", "/RECORD")) else ",".join(row)
        for row in csv.reader(text.splitlines())
        if not row[0].endswith(NOTES)
    )


def test_the_layer_is_what_uv_installs(wheels: Mapping[Path, Wheel], expected: Tree, tmp_path: Path) -> None:
    environment = Environment(PYTHON, (2, 36))
    blob = tmp_path / "layer"
    with ExitStack() as stack, blob.open("wb") as file:
        opened = [stack.enter_context(open_wheel(path, wheel)) for path, wheel in wheels.items()]
        parts = [(wheel.wheel.filename, entries(wheel, environment)) for wheel in opened]
        layers.encode(merged(parts), file.write)
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-x", "--use-compress-program=zstd", "-f", blob, "-C", root], check=True)
    found = {str(path.relative_to(root)): described(path) for path in (root / "opt/venv").rglob("*")}

    expected = {path: value for path, value in expected.items() if not path.endswith(NOTES)}
    for side in (found, expected):
        side.update({path: (mode, "") for path, (mode, _) in side.items() if path.endswith("/INSTALLER")})
    own = {"opt/venv/bin", "opt/venv/lib", "opt/venv/lib/python3", "opt/venv/lib/python3/site-packages"}
    assert found.keys() - own == expected.keys()
    for path, (mode, content) in expected.items():
        if path.endswith("/RECORD"):
            # uv keeps the permissions that the archive gives it, pip makes a new file.
            assert found[path][0] == 0o100644
            assert str(found[path][1]).splitlines() == str(content).splitlines(), path
            continue
        assert (path, found[path][0]) == (path, mode)
        assert found[path][1] == content, path
    assert len(expected) > 3000
