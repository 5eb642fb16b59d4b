"""Test unusual surroundings of the process: closed streams, missing packages, a closed pipe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import tomli

from validator.__main__ import NEEDED
from validator._vendor.packaging.requirements import Requirement
from validator.errors import EXIT_PIPE

ROOT = Path(__file__).parents[2]
FAULT = "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver\n"
NOISE = re.compile("Traceback|Exception|Error:")


def in_shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = " ".join([sys.executable, "-m", "validator", *arguments, redirected])
    # With unbuffered output, Python would not notice that the reader is gone.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(FAULT)
    return path


@pytest.mark.service
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_causes_no_error(log: Path, closed: str) -> None:
    done = in_shell(closed, "doctor", str(log))
    assert done.returncode == 1
    assert not NOISE.search(done.stderr)
    assert ("driver_library_mismatch" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.service
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan", "--select", "gpu=t4"), 0),
        (("plan", "--frobnicate"), 2),
        (("plan", "--matrix", "absent.yaml"), 2),
        (("--help",), 0),
        (("check", "--only", "driver"), None),
    ],
)
def test_every_command_works_with_a_closed_stream(
    closed: str, arguments: tuple[str, ...], code: int | None
) -> None:
    done = in_shell(closed, *arguments)
    assert code in (None, done.returncode)
    assert not re.search("Traceback|Exception", done.stderr + done.stdout)


@pytest.mark.service
def test_a_closed_stdin_reads_as_empty() -> None:
    done = in_shell("<&-", "doctor", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdin is empty" in done.stderr


@pytest.mark.service
def test_a_file_opened_later_does_not_replace_a_closed_stream() -> None:
    program = (
        "import os; from validator.__main__ import _hold_streams; _hold_streams();"
        " os._exit(10 + os.open(os.devnull, os.O_RDONLY))"
    )
    command = f'{sys.executable} -c "{program}" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", command], cwd=ROOT, timeout=60).returncode == 10 + 3


@pytest.mark.slow
def test_a_python_without_the_packages_gets_instructions() -> None:
    # -S: without the directories of installed packages.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "validator", "doctor"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {sys.executable} lacks these packages: click, ")
    assert "re2" in first
    assert "./scripts/environment" in second
    assert f"--python {sys.executable}" in second


@pytest.mark.slow
def test_an_old_python_gets_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys\nfrom validator import __main__\nsys.version_info = (3, 9, 18)\n__main__.main()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert "is Python 3.9, but Python 3.10 or newer is needed" in done.stderr


@pytest.mark.slow
def test_needed_lists_every_dependency() -> None:
    """The dependencies in pyproject.toml are compared by their import names."""
    # On Python 3.10, packages_distributions() leaves out a distribution without top_level.txt.
    provides = {
        each.name.lower(): {file.parts[0].partition(".")[0] for file in each.files or ()}
        for each in metadata.distributions()
    }
    names = {name: {each for each, modules in provides.items() if name in modules} for name in NEEDED}
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # Backports for older Pythons have a marker and are only imported there.
    asked = [each for each in map(Requirement, project["dependencies"]) if each.marker is None]
    wanted = {each.name for each in asked}
    assert len(wanted) > 8
    assert {next(iter(found)) for found in names.values()} == wanted


@pytest.mark.service
@pytest.mark.parametrize("format_", ["table", "json"])
def test_a_closed_pipe_gives_the_exit_code_of_shells(format_: str) -> None:
    arguments = ("plan", "--profile", "nightly", "--format", format_)
    done = in_shell("| head -n 1; exit ${PIPESTATUS[0]}", *arguments)
    assert done.returncode == EXIT_PIPE == 128 + signal.SIGPIPE
    assert not NOISE.search(done.stderr)


@pytest.mark.slow
def test_an_error_that_an_interrupt_caused_is_an_interrupt() -> None:
    program = """
import threading
from validator import __main__, cli
condition = threading.Condition(threading.Lock())
def run():
    with condition:
        condition.release()
        raise KeyboardInterrupt
cli.run = run
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")
