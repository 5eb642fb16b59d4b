"""The archive: the same bytes everywhere, one version on both sides, and it runs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from validator.engines.protocol import local_host_facts, probe_archive, probe_checks, probe_version
from validator.model.report import read_report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "probe.pyz"
    path.write_bytes(probe_archive())
    return path


@pytest.mark.slow
def test_the_same_bytes_in_another_process_time_zone_and_locale() -> None:
    program = (
        "import sys; from validator.engines.protocol import probe_archive;"
        "sys.stdout.buffer.write(probe_archive())"
    )
    environment = {
        **os.environ,
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(ROOT),
    }
    other = subprocess.run(
        [sys.executable, "-c", program], cwd="/", env=environment, capture_output=True, check=True
    )
    assert other.stdout == probe_archive()


def test_the_archive_has_only_the_sources() -> None:
    with zipfile.ZipFile(io.BytesIO(probe_archive())) as archive:
        names = archive.namelist()
    probe, vendored = ROOT / "validator" / "probe", ROOT / "validator" / "_vendor"
    sources = [*probe.rglob("*.py"), *(probe / "data").glob("*.json"), *vendored.rglob("*.py")]
    packed = {path.relative_to(ROOT).as_posix() for path in sources}
    assert "validator/probe/data/variables.json" in packed
    packed |= {
        f"validator/{name}" for name in ("__init__.py", "problems.py", "problems.json", "version_numbers.py")
    }
    packed |= {f"validator/_vendor/packaging/LICENSE{suffix}" for suffix in ("", ".APACHE", ".BSD")}
    assert set(names) == packed | {"__main__.py", "validator/probe/VERSION"}
    assert names == sorted(names)


@pytest.mark.parametrize("name", ["validator/probe/cli.py", "validator/problems.json"])
def test_a_changed_source_changes_the_version(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from validator.engines import protocol as module

    before = probe_version()
    sources = module._sources()
    monkeypatch.setattr(module, "_sources", lambda: {**sources, name: sources[name] + b"\n"})
    assert probe_version() != before
    assert probe_version().partition("+")[0] == before.partition("+")[0]


@pytest.mark.slow
def test_the_report_has_the_version_that_the_host_side_computes(archive: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(archive), "--only", "driver"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert read_report(done.stdout).probe.version == probe_version()


@pytest.mark.slow
def test_the_archive_runs_by_a_relative_path_next_to_other_modules(archive: Path, tmp_path: Path) -> None:
    """The current folder must not be on the path: a `tensorflow.py` in it is not TensorFlow."""
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")
    relative = os.path.relpath(archive, tmp_path)
    done = subprocess.run(
        [sys.executable, relative, "--only", "tensorflow_build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    check = read_report(done.stdout).checks[0]
    assert check.sentence.startswith("TensorFlow is not installed")


@pytest.mark.slow
def test_this_machine_is_asked_about_next_to_other_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "ctypes", "platform"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert local_host_facts()["os"]
    assert {"driver", "environment"} <= {check.id for check in probe_checks()}


@pytest.mark.slow
def test_the_archive_writes_no_files_next_to_itself(archive: Path) -> None:
    subprocess.run([sys.executable, str(archive), "--list"], capture_output=True, check=True)
    assert list(archive.parent.iterdir()) == [archive]
