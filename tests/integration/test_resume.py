"""`build-matrix` killed in the middle and started again, with a real TensorFlow; run twice at once, and run
on a full disk, with a tiny one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..probe.environments import UNOPTIMIZED
from ..support import small_disk
from .docker.package_index import Index, TinyWheel, running_index

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIMIT_S = 300

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a matrix of two small images, whose locks are resolved by the run itself."""
    (tmp_path / "matrix.yaml").write_text(
        f"""\
images:
  - tensorflow: ["2.21.0", "2.20.0"]
    python: "{PYTHON}"
    variant: cpu
hosts:
  - gpu: none
profiles:
  quick:
    select: variant=cpu
"""
    )
    return tmp_path


def command(project: Path, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "validator", "build-matrix", "--engine", "venv", "--jobs", "1",
        "--matrix", str(project / "matrix.yaml"), *arguments,
    ]  # fmt: skip


def environment(caches: Path) -> dict[str, str]:
    return {**os.environ, "VALIDATOR_CACHE": str(caches), "XLA_FLAGS": UNOPTIMIZED}


def run(project: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(project, *arguments), env=variables, cwd=ROOT, text=True, capture_output=True, timeout=LIMIT_S
    )


@pytest.fixture
def index() -> Iterator[Index]:
    """Yield a package index whose TensorFlow can't be imported, and is larger than the small disk."""
    zeros = {"tensorflow/__init__.py": b"raise ImportError\n", "tensorflow/zeros": bytes(16 * 2**20)}
    wheels = (
        TinyWheel.make("tensorflow-cpu", "2.21.0", zeros),
        TinyWheel.make("tensorflow-cpu", "2.20.0", zeros),
        TinyWheel.make("pip", "25.0", {"pip/__init__.py": b""}),
    )
    with running_index(*wheels) as index:
        yield index


def tiny(caches: Path, index: Index) -> dict[str, str]:
    """Return the variables of a run whose packages come only from that index."""
    return {
        **environment(caches),
        "UV_DEFAULT_INDEX": index.url, "UV_INDEX": "", "UV_NO_CONFIG": "1", "PIP_CONFIG_FILE": os.devnull,
    }  # fmt: skip


def recorded(project: Path) -> int:
    """Return how many complete records another process would see right now."""
    path = project / ".validator" / "records.db"
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the table is not there yet


def wait_for_a_record(process: subprocess.Popen[bytes], project: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not recorded(project):
        assert process.poll() is None, "build-matrix ended before it recorded anything"
        assert time.monotonic() < deadline, "build-matrix recorded nothing"
        time.sleep(0.02)


def ended(
    project: Path,
    variables: dict[str, str],
    number: signal.Signals,
    wait: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    """Start a run, and end it while it works on the second image."""
    with subprocess.Popen(
        command(project), env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        wait(run)
        run.send_signal(number)
        printed, said = run.communicate(timeout=60)
    output = f"{printed.decode()}\n{said.decode()}"
    assert run.returncode == (-number if number == signal.SIGKILL else 130), output
    # What was measured is kept, and not measured again.
    assert recorded(project) == 1
    if number != signal.SIGKILL:
        assert "1 of 2 images not finished. Finished images are kept." in output
        assert "validator build-matrix" in output


def continued(project: Path, variables: dict[str, str]) -> None:
    """Run to the end, and then again, when nothing is left to do."""
    last = run(project, variables, "--json")
    assert last.returncode == 0, last.stderr
    assert sorted(result["status"] for result in json.loads(last.stdout)) == ["measured", "unchanged"]
    assert recorded(project) == 2
    again = run(project, variables)
    assert again.stdout.splitlines()[-1] == "0 built, 0 validated, 2 unchanged"


def test_an_ended_run_continues_where_it_stopped(project: Path, caches: Path) -> None:
    variables = environment(caches)
    ended(project, variables, signal.SIGKILL, lambda run: wait_for_a_record(run, project))
    for number, step in ((signal.SIGINT, b"build"), (signal.SIGTERM, b"probe")):
        ended(project, variables, number, lambda run, step=step: wait_for_the_step(run, step))  # type: ignore[misc]
    continued(project, variables)
    assert [path.name for path in (caches / "environments").glob(".partial*")] == []


def test_a_run_that_is_ended_while_it_waits_for_the_index_is_continued(
    project: Path, index: Index, tmp_path: Path
) -> None:
    caches = tmp_path / "caches"
    variables, second = tiny(caches, index), f"tf2.20.0-cpu-py{PYTHON.replace('.', '')}"
    first = run(project, variables, "--select", "tensorflow=2.21.0")
    assert recorded(project) == 1, first.stderr
    index.open.clear()
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        ended(project, variables, number, lambda run: wait_for_the_step(run, b"lock", of=second.encode()))
    index.open.set()
    continued(project, variables)
    assert [path.name for path in (caches / "environments").glob(".partial*")] == []


def wait_for_the_step(process: subprocess.Popen[bytes], step: bytes, of: bytes = b"") -> None:
    """Read the progress of a run until this step of an image that is not recorded yet, or of this image."""
    assert process.stderr is not None
    for line in process.stderr:
        # "[00:02] tf2.20.0-cpu-py311: probe"
        if line.rstrip().endswith(of + b": " + step):
            return
    pytest.fail(f"build-matrix ended before the step {step.decode()}")


def test_two_runs_at_once_share_the_store_and_the_environments(
    project: Path, index: Index, tmp_path: Path
) -> None:
    caches = tmp_path / "caches"
    # The index does not answer before both have begun.
    index.open.clear()
    both = [
        subprocess.Popen(
            command(project, "--force", "--select", "tensorflow=2.21.0", "--json"),
            env=tiny(caches, index),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in both:
        wait_for_the_step(process, b"lock")
    index.open.set()
    for process in both:
        printed, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said.decode()
        [result] = json.loads(printed)
        assert result["status"] == "measured"
    assert recorded(project) == 2
    # Both used the same environment.
    assert len(list((caches / "environments").glob("tf*"))) == 1
    assert [path.name for path in (caches / "environments").glob(".partial*")] == []


def test_a_full_disk_is_reported_and_no_record_is_lost(project: Path, index: Index) -> None:
    with small_disk("8m") as place:
        full = run(project, tiny(place, index), "--select", "tensorflow=2.21.0")
    assert full.returncode == 3, full.stderr
    assert "no space left on the disk" in full.stderr
    assert "Traceback" not in full.stderr
    assert recorded(project) == 0
