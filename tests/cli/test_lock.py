"""`lock` and `plan` for images with additions."""

from __future__ import annotations

from pathlib import Path

from validator.compat.policies import requirements
from validator.locks import files
from validator.matrix.load import load_matrix
from validator.model.lock import Lock, Wheel

from ..commands import run

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
    files.write(directory / files.DIRECTORY, lock)


def test_a_package_that_breaks_the_gpu_is_a_warning_and_fails_in_the_plan(tmp_path: Path) -> None:
    write_lock(tmp_path, nvidia_cudnn_cu13="9.28.1.4")
    matrix = str(tmp_path / "matrix.yaml")
    locked = run("lock", "--matrix", matrix)
    assert locked.returncode == 0
    why = "nvidia-cudnn-cu12 9.3.0.75 and nvidia-cudnn-cu13 9.28.1.4 overwrite each other's files"
    assert f"Warning: {why}" in locked.stderr
    planned = run("plan", "--matrix", matrix)
    assert why in planned.stdout
    assert "0 works, 1 fails" in planned.stderr


def test_without_such_a_package_there_is_no_such_warning(tmp_path: Path) -> None:
    write_lock(tmp_path)
    matrix = str(tmp_path / "matrix.yaml")
    assert "overwrite" not in run("lock", "--matrix", matrix).stderr
    assert "1 works, 0 fails" in run("plan", "--matrix", matrix).stderr


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
