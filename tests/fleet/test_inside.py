"""The script that runs in the container, run as a node runs it."""

from __future__ import annotations

import ast
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from validator.fleet import inside
from validator.fleet.protocol import Answer, CutError, Ending, read_answer, read_ending, read_frames
from validator.model.record import Unread
from validator.probe import workers

KNOWN = Answer(Unread.NOT_ASKED, "podman", True)
REPORT = '{"checks": [{"id": "driver", "outcome": "pass"}]}'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with the script, as it is in a container."""
    (tmp_path / "inside.py").write_bytes(Path(inside.__file__).read_bytes())
    return tmp_path


def run(place: Path, probe: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the script with a probe that executes `probe`, isolated from this project."""
    (place / "probe.pyz").write_text(f"import os, sys, time\n{probe}\n")
    command = [sys.executable, "-I", str(place / "inside.py"), *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, cwd="/")


def ending(done: subprocess.CompletedProcess[bytes]) -> Ending:
    return read_ending(read_frames(done.stdout, "ending")["ending"])


@pytest.mark.slow
def test_a_report_comes_back_whole(place: Path) -> None:
    done = run(place, f"print({REPORT!r}); print('progress', file=sys.stderr)")
    assert done.returncode == 0
    answer = read_answer(done.stdout, KNOWN)
    assert answer.report == REPORT.encode() + b"\n"
    assert answer.failure == ""
    assert answer.started <= answer.finished
    assert done.stderr == b"progress\n"


@pytest.mark.slow
def test_a_report_of_megabytes_comes_back_whole(place: Path) -> None:
    done = run(place, "sys.stdout.write('x' * 5_000_000)")
    assert read_frames(done.stdout, "report")["report"] == b"x" * 5_000_000
    assert max(map(len, done.stdout.splitlines(keepends=True))) <= 4096


@pytest.mark.slow
def test_the_probe_gets_its_arguments_and_its_files(place: Path) -> None:
    (place / "lock.txt").write_text("numpy==2.0.0")
    done = run(
        place,
        "print(sys.argv[1:], open('lock.txt').read())",
        "--limit",
        "50",
        "--",
        "--lock",
        "lock.txt",
        "--",
    )
    assert read_frames(done.stdout)["report"] == b"['--lock', 'lock.txt', '--'] numpy==2.0.0\n"


@pytest.mark.slow
def test_the_termination_message_survives_the_log(place: Path, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    done = run(place, f"print({REPORT!r})", "--termination", str(message))
    found = read_ending(message.read_bytes())
    assert found == ending(done)
    assert found.report == hashlib.sha256(REPORT.encode() + b"\n").hexdigest()
    assert len(message.read_bytes()) <= inside.LARGEST_MESSAGE


@pytest.mark.slow
def test_a_termination_message_fits_whatever_the_probe_writes(place: Path, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    run(place, "print('x' * 99_000); sys.stderr.write('\\u00e9' * 9000)", "--termination", str(message))
    assert read_ending(message.read_bytes()).length > 9000


@pytest.mark.slow
def test_a_termination_message_that_can_not_be_written_costs_nothing(place: Path) -> None:
    done = run(place, f"print({REPORT!r})", "--termination", "/nowhere/message")
    assert done.returncode == 0
    assert "report" in read_frames(done.stdout)


@pytest.mark.slow
def test_no_report_is_an_answer_too(place: Path) -> None:
    done = run(place, "print('no TensorFlow', file=sys.stderr); sys.exit(3)")
    assert done.returncode == 1
    answer = read_answer(done.stdout, KNOWN)
    assert answer.report is None
    assert answer.failure == "the probe exited with status 3 without a report: no TensorFlow"


@pytest.mark.slow
def test_the_limit_ends_the_probe_and_its_children(place: Path, tmp_path: Path) -> None:
    pid = tmp_path / "child"
    child = f"import time, os; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    # Long enough for two Pythons to start on a machine with much to do.
    done = run(
        place,
        f"import subprocess; subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print('half a report', flush=True); time.sleep(600)",
        "--limit", "6",
    )  # fmt: skip
    assert done.returncode == 1
    answer = read_answer(done.stdout, KNOWN)
    assert answer.report is None
    assert answer.failure == "the probe exceeded its time limit of 6 s and was stopped"
    assert _has_ended(int(pid.read_text()))


def _has_ended(pid: int) -> bool:
    """Return True as soon as a process has ended, and False if it runs for another ten seconds."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_probe_that_was_told_to_stop_frames_nothing(place: Path) -> None:
    started = place / "started"
    (place / "probe.pyz").write_text(
        f"import time\nprint('x', flush=True)\nopen({str(started)!r}, 'w').close()\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-I", place / "inside.py"], stdout=subprocess.PIPE) as process:
        while not started.exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    with pytest.raises(CutError):
        read_frames(output, "ending")


@pytest.mark.slow
def test_more_output_than_a_report_is_cut_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = place / "inside.py"
    script.write_text(script.read_text().replace("LARGEST = 64 << 20", "LARGEST = 1000"))
    done = run(place, "sys.stdout.write('x' * 300_000)")
    assert done.returncode == 1
    answer = read_answer(done.stdout, KNOWN)
    assert answer.failure == "the probe's output is too large for a report"


@pytest.mark.slow
def test_other_tasks_have_frames_of_their_own(place: Path) -> None:
    first = run(place, "print('first')")
    second = run(place, "print('second')", "--task", "1")
    frames = read_frames(first.stdout + second.stdout, "ending", "ending.1")
    assert (frames["report"], frames["report.1"]) == (b"first\n", b"second\n")


@pytest.mark.slow
def test_the_tasks_of_a_unit_find_each_other_and_only_the_first_measures(place: Path) -> None:
    addresses = ("node1:29500", "node2:29500")
    shown = (
        "print(sys.argv[1:],"
        " {name: os.environ[name] for name in os.environ if name.startswith('VALIDATOR_')})"
    )
    given = ("--workers", ",".join(addresses), "--", "--depth", "full")
    frames = b"".join(run(place, shown, "--task", task, *given).stdout for task in ("0", "1"))
    found = read_frames(frames, "report", "report.1")
    for rank, (name, more) in enumerate((("report", []), ("report.1", ["--only", "multi_worker"]))):
        variables = {
            workers.WORKERS: ",".join(addresses),
            workers.RANK: str(rank),
            workers.WAIT: f"{workers.LONGEST_WAIT_S:g}",
        }
        assert workers.settings(variables) == workers.Settings(addresses, rank, workers.LONGEST_WAIT_S)
        arguments, _, environment = found[name].decode().partition("] ")
        assert ast.literal_eval(f"{arguments}]") == ["--depth", "full", *more]
        assert ast.literal_eval(environment) == variables


@pytest.mark.slow
def test_a_unit_of_one_task_has_no_workers(place: Path) -> None:
    done = run(place, "print([name for name in os.environ if name.startswith('VALIDATOR_')])")
    assert read_frames(done.stdout)["report"] == b"[]\n"


@pytest.mark.slow
def test_a_report_that_is_not_the_one_of_the_ending_is_refused(place: Path) -> None:
    first, second = run(place, "print('first')"), run(place, "print('second')")
    ends = first.stdout.index(b"tfm-frame ending")
    mixed = first.stdout[:ends] + second.stdout[second.stdout.index(b"tfm-frame ending") :]
    with pytest.raises(CutError, match="not the one that the ending names"):
        read_answer(mixed, KNOWN)


def test_it_needs_only_python_3_9() -> None:
    tree = ast.parse(Path(inside.__file__).read_text(), feature_version=(3, 9))
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= sys.stdlib_module_names
