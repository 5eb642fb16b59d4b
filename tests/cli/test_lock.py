"""`lock` and `plan` for images with additions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.pylock import Pylock
from uv import find_uv_bin

from validator.assemble import layers
from validator.assemble.layer_table import SharedRow, read_rows
from validator.cli import project as command
from validator.compat.policies import requirements
from validator.locks import lock_files
from validator.locks.resolve import PLATFORM
from validator.matrix.load import load_matrix
from validator.model.spec import Lock, Wheel
from validator.system.files import parse_toml

from ..commands import run
from ..integration.docker.package_index import TinyWheel
from ..locks.local_index import LocalIndex

MATRIX = """\
images:
  - name: ours
    tensorflow: "2.21.0"
    python: ["3.12"]
    packages: [torch]
    environment: {OUR_TOKEN: abcdefgh12345678}
hosts:
  - driver: "580"
    gpu: h100
profiles:
  quick: {description: All.}
"""


def write_lock(directory: Path, **other: str) -> None:
    """Write a matrix and a lock that satisfies it, with these wheels as well."""
    path = directory / "matrix.yaml"
    path.write_text(MATRIX)
    [spec] = load_matrix(path).images
    assert spec.additions is not None
    pins = dict(line.split("==") for line in requirements(spec) if "==" in line)
    pins |= {"pip": "26.3", "torch": "2.15.0"}
    pins |= {name.replace("_", "-"): version for name, version in other.items()}
    wheels = tuple(
        Wheel(name, version, "0" * 64, f"{name.replace('-', '_')}-{version}-py3-none-any.whl")
        for name, version in sorted(pins.items())
    )
    lock = Lock(spec.identifier, "3.12", "x", requirements(spec), wheels, spec.additions.notes)
    lock_files.write(directory / lock_files.DIRECTORY, lock)


def test_a_package_that_breaks_the_gpu_is_a_warning_and_fails_in_the_plan(tmp_path: Path) -> None:
    write_lock(tmp_path, nvidia_cudnn_cu13="9.28.1.4")
    matrix = str(tmp_path / "matrix.yaml")
    locked = run("lock", "--matrix", matrix)
    assert locked.returncode == 0
    why = "nvidia-cudnn-cu12 9.3.0.75 and nvidia-cudnn-cu13 9.28.1.4 overwrite each other's files"
    assert f"Warning: {why}" in locked.stderr
    planned = run("plan", "--matrix", matrix)
    assert why in planned.stdout
    assert "0 works, 0 eager-only, 1 fails" in planned.stderr


def test_without_such_a_package_there_is_no_such_warning(tmp_path: Path) -> None:
    write_lock(tmp_path)
    matrix = str(tmp_path / "matrix.yaml")
    assert "overwrite" not in run("lock", "--matrix", matrix).stderr
    assert "1 cell: 1 works, 0 eager-only, 0 fails, 0 unknown" in run("plan", "--matrix", matrix).stderr


def test_a_secret_in_the_matrix_is_a_warning(tmp_path: Path) -> None:
    write_lock(tmp_path)
    found = run("plan", "--matrix", str(tmp_path / "matrix.yaml")).stderr
    assert "matrix.yaml:6:19: images[0].environment.OUR_TOKEN: looks like a secret" in found


def test_a_changed_addition_makes_the_lock_stale(tmp_path: Path) -> None:
    write_lock(tmp_path)
    path = tmp_path / "matrix.yaml"
    path.write_text(MATRIX.replace("environment", "system_packages: [git]\n    environment"))
    found = run("lock", "--check", "--matrix", str(path))
    assert found.returncode == 2
    assert "the matrix adds the system package git, but the lock was written without it" in found.stderr


TINY = """\
images: [{tensorflow: "2.18.1", python: "3.11", variant: cpu}]
hosts: [{gpu: none}]
profiles: {quick: {description: All.}}
"""


def lock_with_numpy(directory: Path, index: LocalIndex, content: bytes, *local: Wheel) -> None:
    """Write the lock of TINY: TensorFlow in one layer, and all else with this NumPy in another one."""
    [spec] = load_matrix(directory / "matrix.yaml").images
    pins = [line.partition("==") for line in requirements(spec) if " @ " not in line]
    tiny = [
        *(TinyWheel.make(name, version or "1.0", {f"{name}.py": b""}) for name, _, version in pins),
        TinyWheel.make("numpy", "1.0", {"numpy/__init__.py": content}),
    ]
    for one in tiny:
        index.add(one.wheel.filename, content=one.content)
    wheels = tuple(sorted((*(one.wheel for one in tiny), *local), key=lambda wheel: wheel.name))
    lock_files.write(
        directory / lock_files.DIRECTORY, Lock(spec.identifier, "3.11", PLATFORM, requirements(spec), wheels)
    )


def test_the_layers_of_locks_get_rows_once(
    tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "host_sources", lambda: index.sources)
    (tmp_path / "matrix.yaml").write_text(TINY)
    table = tmp_path / "images/layers.json"

    def written(machine: str) -> tuple[str, dict[str, SharedRow]]:
        monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / machine))
        index.asked.clear()
        done = run("lock", "--layers", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stderr, {row.name: row for row in read_rows(table)}

    lock_with_numpy(tmp_path, index, b"X = 1\n")
    said, first = written("one")
    assert "tf2.18.1-cpu-py311: 2 layers, 2 new" in said and "2 rows added, 0 removed" in said
    assert first.keys() == {"tensorflow-cpu 2.18.1", "2 small wheels (Python)"}
    assert {row.recipe for row in first.values()} == {layers.RECIPE}
    for row in first.values():
        digests = {hashlib.sha256(content).hexdigest() for content in index.files.values()}
        assert set(row.wheels) <= digests
    # Another machine needs no wheel to see that nothing is missing.
    said, second = written("two")
    assert "all layers have a row" in said and "0 rows added, 0 removed" in said
    assert second == first and index.asked == []
    # With another NumPy, only its layer is made. The wheel of TensorFlow tells which layers there are.
    lock_with_numpy(tmp_path, index, b"X = 2\n")
    said, third = written("two")
    assert "2 layers, 1 new" in said and "1 row added, 1 removed" in said
    assert third["tensorflow-cpu 2.18.1"] == first["tensorflow-cpu 2.18.1"]
    assert third["2 small wheels (Python)"] != first["2 small wheels (Python)"]


def installed(directory: Path, index: LocalIndex, *words: str) -> dict[str, str]:
    """Run an installer for Python 3.11 on Linux with nothing but this index, and return what it installed."""
    target = directory / f"installed{len(list(directory.iterdir()))}"
    environment = index.sources.uv_environment() | {"PATH": os.environ["PATH"], "HOME": str(directory)}
    environment |= {"PIP_INDEX_URL": index.sources.index_url or "", "PIP_CONFIG_FILE": os.devnull}
    line = [*words, "--target", str(target), "--python-version", "3.11"]
    done = subprocess.run(line, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {one.name: one.version for one in importlib.metadata.distributions(path=[str(target)])}


@pytest.mark.engine
@pytest.mark.parametrize("to_file", [True, False])
def test_pip_and_uv_install_exactly_the_lock(
    tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch, to_file: bool
) -> None:
    monkeypatch.setattr(command, "host_sources", lambda: index.sources)
    ours = TinyWheel.make("ours", "1.0", {"ours.py": b""})
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / ours.wheel.filename).write_bytes(ours.content)
    added = f'variant: cpu, name: ours, packages: ["./wheels/{ours.wheel.filename}"]'
    (tmp_path / "matrix.yaml").write_text(TINY.replace("variant: cpu", added))
    lock_with_numpy(tmp_path, index, b"x = 1", replace(ours.wheel, path=f"wheels/{ours.wheel.filename}"))
    [lock] = [lock_files.parse(path.read_text()) for path in (tmp_path / lock_files.DIRECTORY).iterdir()]
    expected = {wheel.name: wheel.version for wheel in lock.wheels}
    assert {"numpy", "ours", "tensorflow-cpu"} <= expected.keys()

    uv = find_uv_bin()
    pip = [sys.executable, "-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "-r"]
    for format_, name, installers in (
        ("pylock", "out/pylock.toml", [[uv, "pip", "sync"], [uv, "pip", "install", "-r"]]),
        (
            "requirements",
            "out/requirements.txt",
            [
                [uv, "pip", "sync", "--require-hashes"],
                pip,
            ],
        ),
    ):
        words = ["lock", "--matrix", "matrix.yaml", "--format", format_]
        (tmp_path / "out").mkdir(exist_ok=True)
        if to_file:
            done = run(*words, "--output", name, cwd=tmp_path)
            assert (done.stdout, done.stderr) == ("", f"Wrote {name}\n")
        else:
            name = Path(name).name
            (tmp_path / name).write_text(run(*words, cwd=tmp_path).stdout)
        for installer in installers:
            assert installed(tmp_path, index, *installer, name) == expected
    written = (tmp_path / ("out/pylock.toml" if to_file else "pylock.toml")).read_text()
    read = Pylock.from_dict(parse_toml(written))
    assert {str(one.name): str(one.version) for one in read.packages} == expected
    assert str(read.requires_python) == "==3.11.*"
    assert read.tool == {"tensorflow-gpu-matrix": {"image": lock.identifier, "lock": lock.digest}}

    # Another file under the same name is not installed.
    index.add("numpy-1.0-py3-none-any.whl", content=b"replaced")
    with pytest.raises(AssertionError, match=r"(?i)hash"):
        installed(tmp_path, index, *pip, "out/requirements.txt" if to_file else "requirements.txt")
    again = run("lock", "--matrix", "matrix.yaml", "--format", "pylock", cwd=tmp_path)
    assert "the package index has another file under the name numpy-1.0-py3-none-any.whl" in again.stderr


def test_the_format_is_for_one_image_with_a_valid_lock(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(TINY)
    words = ["lock", "--matrix", str(tmp_path / "matrix.yaml"), "--format", "requirements"]
    found = run(*words)
    assert (found.returncode, found.stdout) == (2, "")
    assert "tf2.18.1-cpu-py311: there is no lock yet" in found.stderr
    assert not (tmp_path / lock_files.DIRECTORY).exists()
    (tmp_path / "matrix.yaml").write_text(TINY.replace('"3.11"', '["3.11", "3.12"]'))
    found = run(*words)
    assert (found.returncode, found.stdout) == (2, "")
    assert "one image, and 2 are selected" in found.stderr
    for other in ("--check", "--upgrade", "--layers"):
        assert f"{other} has no effect with --format" in run(*words, other).stderr
    assert "--output has no effect without --format" in run(*words[:3], "--output", "x").stderr
