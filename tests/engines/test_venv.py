"""The venv engine, with small locks that install within a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from validator.engines import venv
from validator.engines.protocol import ProbeRequest, probe_archive, run_probe
from validator.engines.venv import VenvEngine, library_path, remove_leftovers
from validator.errors import InputError, MissingError, ValidatorError
from validator.locks.resolve import resolve
from validator.model.report import read_report
from validator.model.spec import ImageSpec, Lock, Variant, Wheel
from validator.system.package_sources import PackageSources, host_sources

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SPEC = ImageSpec("2.21.0", PYTHON, Variant.CPU)


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def lock() -> Lock:
    return resolve(SPEC, ["six==1.16.0"], host_sources())


def lock_of(*wheels: Wheel) -> Lock:
    return Lock(SPEC.identifier, PYTHON, "x", (), wheels)


@pytest.mark.engine
def test_an_environment_is_built_once_and_then_reused(lock: Lock, tmp_path: Path) -> None:
    engine = VenvEngine(host_sources(), tmp_path)
    assert engine.existing(SPEC, lock) is None
    built = engine.build(SPEC, lock, quiet)
    assert engine.existing(SPEC, lock) == built
    assert (built.digest, built.lock_digest) == (None, lock.digest)
    done = subprocess.run(
        [f"{built.reference}/bin/python", "-c", "import six; print(six.__version__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "1.16.0"
    made = Path(built.reference).stat().st_ino
    engine.build(SPEC, lock, quiet)
    assert Path(built.reference).stat().st_ino == made
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".partial")] == []


@pytest.mark.engine
def test_the_probe_runs_in_the_environment_and_compares_the_lock(lock: Lock, tmp_path: Path) -> None:
    from validator.locks.lock_files import render

    engine = VenvEngine(host_sources(), tmp_path)
    built = engine.build(SPEC, lock, quiet)
    request = ProbeRequest(probe_archive(), ("--lock", "lock.txt"), {"lock.txt": render(lock).encode()}, 120)
    report = read_report(engine.probe(built, request, quiet))
    match = report.check("lock_match")
    assert match is not None and match.outcome.value == "pass", match
    assert str(report.environment.executable).startswith(built.reference)


@pytest.mark.engine
def test_a_file_that_differs_from_the_lock_is_rejected_by_name(tmp_path: Path) -> None:
    wrong = lock_of(Wheel("six", "1.16.0", "0" * 64, "six-1.16.0-py2.py3-none-any.whl"))
    with pytest.raises(InputError, match=r"file for six==1\.16\.0 has a different hash than the lock"):
        VenvEngine(host_sources(), tmp_path).build(SPEC, wrong, quiet)
    assert [path for path in tmp_path.iterdir() if path.name != ".lock"] == []


@pytest.mark.engine
def test_a_pin_that_the_index_no_longer_has_is_named(tmp_path: Path) -> None:
    gone = lock_of(Wheel("six", "1.16.99", "0" * 64, "six-1.16.99-py2.py3-none-any.whl"))
    with pytest.raises(InputError, match=r"does not have six==1\.16\.99"):
        VenvEngine(host_sources(), tmp_path).build(SPEC, gone, quiet)


@pytest.mark.engine
@pytest.mark.parametrize("path", ["wheels/six-1.16.0-py2.py3-none-any.whl", "https://host.test/six.whl"])
def test_a_wheel_that_is_not_on_the_index_is_refused(path: str, tmp_path: Path) -> None:
    own = lock_of(Wheel("six", "1.16.0", "0" * 64, "six-1.16.0-py2.py3-none-any.whl", 1, path))
    with pytest.raises(MissingError, match="has only wheels of the package index, and six-1"):
        VenvEngine(host_sources(), tmp_path).build(SPEC, own, quiet)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
def test_an_index_that_does_not_respond_is_missing_and_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    nowhere = PackageSources(index_url="http://user:secret@127.0.0.1:9/simple")
    wheel = Wheel("six", "1.16.0", "0" * 64, "six-1.16.0-py2.py3-none-any.whl")
    said: list[str] = []
    with pytest.raises(MissingError, match="the package index can't be reached") as caught:
        VenvEngine(nowhere, tmp_path / "environments").build(SPEC, lock_of(wheel), said.append)
    assert "secret" not in f"{caught.value}{caught.value.hint}{said}"
    assert "127.0.0.1" not in f"{caught.value}{caught.value.hint}{said}"


@pytest.mark.engine
def test_a_missing_python_is_reported(tmp_path: Path) -> None:
    engine = VenvEngine(PackageSources(), tmp_path)
    assert engine.provides("3.1") == "Python 3.1 is not installed"
    assert engine.provides(PYTHON) is None
    with pytest.raises(MissingError, match=r"Python 3\.1 is not installed"):
        engine.build(ImageSpec("2.21.0", "3.1", Variant.CPU), lock_of(), quiet)


def test_leftovers_of_dead_processes_are_removed_and_work_in_progress_stays(tmp_path: Path) -> None:
    dead, living = tmp_path / ".partial-dead", tmp_path / ".partial-living"
    for directory in (dead, living):
        (directory / "environment").mkdir(parents=True)
    with venv._locked(living / "in-use"):
        remove_leftovers(tmp_path)
        assert not dead.exists()
        assert (living / "environment").exists()
    remove_leftovers(tmp_path)
    assert not living.exists()


def test_all_nvidia_directories_are_on_the_library_path(tmp_path: Path) -> None:
    nvidia = tmp_path / "lib" / "python3.11" / "site-packages" / "nvidia"
    for name in ("cusolver", "cudnn"):
        (nvidia / name / "lib").mkdir(parents=True)
    (nvidia / "cuda_nvcc" / "bin").mkdir(parents=True)
    assert library_path(tmp_path) == (nvidia / "cudnn" / "lib", nvidia / "cusolver" / "lib")


def request(program: str, timeout_s: float = 20) -> ProbeRequest:
    return ProbeRequest(program.encode(), timeout_s=timeout_s)


@pytest.mark.slow
def test_the_callers_environment_does_not_leak_into_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/given")
    program = "import os; print(os.environ.get('PYTHONPATH'), os.environ.get('LD_LIBRARY_PATH'))"
    answer = run_probe(Path(sys.executable), request(program), quiet, (Path("/ours"),))
    assert answer == b"None /ours:/given\n"


@pytest.mark.slow
def test_a_probe_that_hangs_is_stopped() -> None:
    sleep = "import time; time.sleep(3600)"
    program = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {sleep!r}])\n{sleep}"
    with pytest.raises(ValidatorError, match="exceeded its time limit of 1 s"):
        run_probe(Path(sys.executable), request(program, timeout_s=1), quiet)


@pytest.mark.slow
def test_the_error_for_a_crashed_probe_contains_its_last_line() -> None:
    program = "import os, sys; print('last words', file=sys.stderr, flush=True); os.abort()"
    with pytest.raises(ValidatorError, match=r"status -6 without a report: last words"):
        run_probe(Path(sys.executable), request(program), quiet)


@pytest.mark.slow
def test_a_program_that_is_not_a_python_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="can't be run"):
        run_probe(tmp_path / "python", request(""), quiet)


@pytest.mark.slow
def test_the_engine_describes_itself(tmp_path: Path) -> None:
    engine = VenvEngine(PackageSources(), tmp_path)
    assert engine.name == "venv"
    assert "uv" in engine.describe()
    assert engine.host_facts()["kernel"] == os.uname().release
