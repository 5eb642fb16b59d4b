"""The installed tool in an empty directory, with no checkout anywhere."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from validator.locks import lock_files

from ..commands import ROOT
from ..corpus.reader import REPORTS
from ..probe.environments import UNOPTIMIZED
from .conftest import Installed

LOG = "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver\n"
#: An index that can't be reached, so that nothing is resolved by accident.
OFFLINE = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_OFFLINE": "1"}


def tree(directory: Path) -> dict[str, int]:
    """Return the files below a directory with their times, without what Python compiles."""
    return {
        str(path): os.stat(path).st_mtime_ns
        for path in sorted(directory.rglob("*"))
        if "__pycache__" not in path.parts and path.is_file()
    }


@pytest.fixture(autouse=True)
def nothing_is_written_into_the_package(installed: Installed) -> object:
    before = tree(installed.site_packages / "validator")
    yield
    assert tree(installed.site_packages / "validator") == before


def test_help_and_version(installed: Installed) -> None:
    assert "build-matrix" in installed.run("--help").stdout
    assert installed.run("--version").stdout.startswith("validator, version ")
    assert list(installed.directory.iterdir()) == []


def test_plan_has_the_cells_of_the_shipped_matrix_and_its_locks(installed: Installed) -> None:
    done = installed.run("plan", "--profile", "nightly", "--json")
    assert done.returncode == 0, done.stderr
    assert "Using the matrix that comes with this tool." in done.stderr
    cells = json.loads(done.stdout)
    here = installed.run("plan", "--profile", "nightly", "--json", "--matrix", ROOT / "matrix.yaml")
    # Predictions for floating versions depend on the locks.
    assert any("latest" in cell["image"] for cell in cells)
    assert cells == json.loads(here.stdout)


def test_a_matrix_in_the_directory_comes_first(installed: Installed) -> None:
    (installed.directory / "matrix.yaml").write_text(
        'images: [{tensorflow: "2.19.1", python: "3.11"}]\nhosts: [{driver: "580", gpu: h100}]\n'
        "profiles: {quick: {description: all of it}}\n"
    )
    done = installed.run("plan", "--json")
    assert [cell["image"] for cell in json.loads(done.stdout)] == ["tf2.19.1-cuda12.5-cudnn9.3-py311"]
    assert "comes with this tool" not in done.stderr
    # The locks of the shipped matrix belong to it only.
    done = installed.run("lock", "--check")
    assert (done.returncode, "there is no lock yet" in done.stderr) == (2, True)


def test_shipped_locks_are_found_and_own_ones_come_first(installed: Installed) -> None:
    done = installed.run("lock", "--check", "--profile", "nightly")
    assert done.returncode == 0, done.stderr
    identifier = "tf2.21.0-cuda12.9-cudnn9.28-py312"
    own = installed.directory / lock_files.DIRECTORY / f"{identifier}.txt"
    own.parent.mkdir(parents=True)
    shutil.copy(ROOT / lock_files.DIRECTORY / "tf2.21.0-cpu-py312.txt", own)
    done = installed.run("lock", "--check")
    assert done.returncode == 2
    assert f"{own.relative_to(installed.directory)} contains the lock of tf2.21.0-cpu-py312" in done.stderr


def test_lock_keeps_what_is_locked_without_an_index(installed: Installed) -> None:
    done = installed.run("lock", "--profile", "cpu", environment=OFFLINE)
    assert "0 locks written, 1 unchanged" in done.stderr, done.stderr
    assert list(installed.directory.iterdir()) == []


def test_predict_and_doctor(installed: Installed) -> None:
    arguments = "--tensorflow 2.21.0 --driver 580 --gpu h100"
    done = installed.run("predict", *arguments.split())
    assert (done.returncode, "works" in done.stdout) == (0, True), done.stderr
    (installed.directory / "train.log").write_text(LOG)
    done = installed.run("doctor", "train.log")
    assert (done.returncode, "driver" in done.stdout) == (1, True), done.stderr


def test_init_writes_a_project_that_plans(installed: Installed) -> None:
    done = installed.run("init", environment={"PATH": "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert (installed.directory / ".github/workflows/gpu-images.yml").exists()
    assert installed.run("lock", "--check", "--profile", "full").returncode == 0
    done = installed.run("plan", "--profile", "full", "--json")
    assert len(json.loads(done.stdout)) == 2
    assert "comes with this tool" not in done.stderr


def test_records_are_in_the_current_directory(installed: Installed) -> None:
    report = min(REPORTS.iterdir())
    done = installed.run("records", "import", "--report", report)
    assert done.returncode == 0, done.stderr
    assert (installed.directory / ".validator" / "records.db").exists()
    assert len(json.loads(installed.run("records", "list", "--json").stdout)) == 1


@pytest.mark.engine
def test_an_image_without_cuda_is_built_and_proven_without_an_engine(installed: Installed) -> None:
    command = ("build-matrix", "--profile", "cpu", "--engine", "venv", "--json")
    done = installed.run(*command, environment={"XLA_FLAGS": UNOPTIMIZED}, timeout_s=600)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)
    assert result["record"]["verdict"] == "works-on-cpu"
    assert (installed.directory / ".validator" / "records.db").exists()
