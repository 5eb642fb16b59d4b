"""A run removes what a killed run left behind, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from validator.errors import MissingError
from validator.system import orphans, runs
from validator.system.files import machine_directory

from .test_processes import gone, wait_until_gone

#: Makes a temporary directory with a file, starts a child with a grandchild in a session of its own, which
#: starts another with an empty environment, prints the directory and the three process ids, and waits.
BUSY = """
import sys
from validator.system import processes, runs
GREAT_GRANDCHILD = "import time; time.sleep(600)"
GRANDCHILD = f'''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {GREAT_GRANDCHILD!r}], env={{}})
print(child.pid, file=sys.stderr, flush=True)
time.sleep(600)
'''
CHILD = f'''
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}], start_new_session=True)
print(os.getpid(), child.pid, file=sys.stderr, flush=True)
time.sleep(600)
'''
with runs.temporary_directory("busy") as directory:
    (directory / "file").write_text("something")
    print(directory, flush=True)
    processes.run([sys.executable, "-c", CHILD], on_line=lambda line: print(line, flush=True))
"""
START = "from validator.system import runs; runs.current()"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the runs of a separate machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return machine_directory() / "runs"


@contextmanager
def busy_run() -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        directory = Path(process.stdout.readline().strip())
        pids = [int(word) for _ in range(2) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        yield process, directory, pids
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def start() -> None:
    subprocess.run([sys.executable, "-c", START], check=True, timeout=60)


def kill_watcher_of(process: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    watchers = [pid for pid in pids if b"orphans.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(watchers) == 1
    os.kill(watchers[0], signal.SIGKILL)


@pytest.mark.slow
def test_all_descendants_of_a_killed_run_die_with_it(state: Path) -> None:
    with busy_run() as (process, _, pids):
        assert not any(map(gone, pids))
        process.kill()
        process.wait()
        for pid in pids:
            wait_until_gone(pid)


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_one_left(state: Path) -> None:
    with busy_run() as (process, directory, pids):
        kill_watcher_of(process)
        process.kill()
        process.wait()
        assert not any(map(gone, pids))
        assert (directory / "file").exists()
        start()
        assert all(map(gone, pids))
        assert not directory.exists()
        assert list(state.glob("[!.]*")) == []


@pytest.mark.slow
def test_a_run_that_is_alive_keeps_everything(state: Path) -> None:
    with busy_run() as (_, directory, pids):
        start()
        assert (directory / "file").exists()
        assert not any(map(gone, pids))
        assert len(list(state.glob("*/lock"))) == 1


@pytest.mark.slow
def test_a_run_that_ends_by_itself_leaves_nothing(state: Path) -> None:
    program = (
        "import sys; from validator.system import processes, runs\n"
        "with runs.temporary_directory('short') as directory:\n"
        "    processes.run([sys.executable, '-c', ''], cwd=directory)\n"
        "print(directory)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()
    assert list(state.glob("[!.]*")) == []


@pytest.mark.slow
def test_a_process_that_a_finished_run_started_on_purpose_is_not_ended(state: Path) -> None:
    program = (
        "import sys; from validator.system import processes\n"
        "sleep = 'import time; time.sleep(600)'\n"
        "start = f'import subprocess, sys;"
        ' child = subprocess.Popen([sys.executable, "-c", {sleep!r}], start_new_session=True,'
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(child.pid)'\n"
        "print(processes.run([sys.executable, '-c', start]).stdout.decode())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    try:
        time.sleep(0.3)
        assert not gone(int(done.stdout))
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def dead_run(state: Path, **owner: str) -> Path:
    """Return a run whose lock is free."""
    directory = state / "0123456789abcdef"
    directory.mkdir(parents=True)
    (directory / "lock").touch()
    (directory / "owner").write_text(json.dumps({"identifier": "0" * 32, **owner}))
    return directory


@pytest.mark.slow
def test_a_lock_that_the_file_system_does_not_keep_does_not_make_a_living_run_dead(state: Path) -> None:
    directory = dead_run(state, **runs._owner(os.getpid()))
    start()
    assert directory.exists()


@pytest.mark.slow
def test_the_same_process_id_with_another_start_time_is_another_process(state: Path) -> None:
    directory = dead_run(state, **{**runs._owner(os.getpid()), "started": "1"})
    start()
    assert not directory.exists()


@pytest.mark.slow
def test_a_run_in_another_pid_namespace_lives_as_long_as_its_lock(state: Path) -> None:
    directory = dead_run(state, **{**runs._owner(1), "pid_namespace": "pid:[1]"})
    with open(directory / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start()
        assert directory.exists()
    start()
    assert not directory.exists()


@pytest.mark.slow
def test_a_note_that_names_something_else_removes_nothing(state: Path, tmp_path: Path) -> None:
    directory = dead_run(state)
    target = tmp_path / "precious"
    target.mkdir()
    link = tmp_path / "temporary" / "validator-link"
    link.symlink_to(target)
    for number, path in enumerate((target, link, tmp_path / "temporary" / "absent")):
        (directory / f"directory-{number}.json").write_text(json.dumps({"path": str(path)}))
    (directory / "directory-broken.json").write_text("[1")
    start()
    assert target.exists()
    assert link.is_symlink()
    assert not directory.exists()


@pytest.mark.slow
def test_notes_that_are_not_dealt_with_are_handed_on(state: Path) -> None:
    directory = dead_run(state)
    (directory / "container-1.json").write_text(json.dumps({"container": "abc", "engine": "elsewhere"}))
    for _ in range(2):
        start()
        assert not directory.exists()
        (note,) = state.glob("*/container-1.json")
        assert json.loads(note.read_text())["container"] == "abc"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's directory")
def test_a_place_that_somebody_else_prepared_is_rejected(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a state directory, the notes are in the shared directory for temporary files.
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    place = tmp_path / "temporary" / f"validator-runs-{os.geteuid()}"
    with runs.temporary_directory("mine"):
        assert place.is_dir()
    place.chmod(0o777)
    with pytest.raises(MissingError, match="other users may write to it"):
        runs._runs_directory()
    os.chown(place, 12345, 12345)
    with pytest.raises(MissingError, match="belongs to another user"):
        runs._runs_directory()


@pytest.mark.slow
def test_only_marked_processes_are_found() -> None:
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    plain = subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.PIPE)
    marked = subprocess.Popen(
        sleep, start_new_session=True, stdout=subprocess.PIPE, env={**os.environ, orphans.VARIABLE: "f" * 32}
    )
    try:
        for process in (plain, marked):
            assert process.stdout is not None
            process.stdout.readline()
        assert orphans.end_processes({"e" * 32}) == 0
        assert orphans.end_processes({"f" * 32}) == 1
        assert marked.wait(10) == -signal.SIGTERM
        assert plain.poll() is None
    finally:
        for process in (plain, marked):
            process.kill()
            process.communicate()
