"""`lock` and `plan` for images with additions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from validator.assemble import layers
from validator.assemble.layer_table import SharedRow, read_rows
from validator.cli import project as command
from validator.compat.policies import requirements
from validator.locks import lock_files
from validator.locks.resolve import PLATFORM
from validator.matrix.load import load_matrix
from validator.model.lock import Lock, Wheel

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


def lock_with_numpy(directory: Path, index: LocalIndex, content: bytes) -> None:
    """Write the lock of TINY: TensorFlow in one layer, and all else with this NumPy in another one."""
    [spec] = load_matrix(directory / "matrix.yaml").images
    pins = [line.partition("==") for line in requirements(spec)]
    tiny = [
        *(TinyWheel.make(name, version or "1.0", {f"{name}.py": b""}) for name, _, version in pins),
        TinyWheel.make("numpy", "1.0", {"numpy/__init__.py": content}),
    ]
    for one in tiny:
        index.add(one.wheel.filename, content=one.content)
    wheels = tuple(sorted((one.wheel for one in tiny), key=lambda wheel: wheel.name))
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
