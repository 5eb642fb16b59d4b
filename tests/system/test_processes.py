"""Children never outlive us, whatever they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from validator.system import processes


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_output_and_status() -> None:
    lines: list[str] = []
    program = "import sys; print('out'); print('one\\ntwo', file=sys.stderr); sys.exit(3)"
    done = processes.run(python(program), on_line=lines.append)
    assert (done.returncode, done.stdout, done.stderr_tail) == (3, b"out\n", "one\ntwo")
    assert lines == ["one", "two"]
    assert not done.ok


def test_input_and_environment() -> None:
    program = "import os, sys; print(sys.stdin.read(), dict(os.environ).get('ONLY'), 'HOME' in os.environ)"
    done = processes.run(python(program), input=b"given", env={"ONLY": "this"})
    assert done.stdout == b"given this False\n"


def test_both_pipes_flooded_is_no_deadlock_and_the_tail_is_bounded() -> None:
    program = (
        "import sys\n"
        "for n in range(20000): print('x' * 50); print(n, file=sys.stderr)\n"
        "sys.stderr.write('y' * 100_000)"
    )
    done = processes.run(python(program), timeout_s=60)
    assert len(done.stdout) == 20000 * 51
    tail = done.stderr_tail.splitlines()
    assert len(tail) == processes.TAIL_LINES
    assert max(map(len, tail)) <= processes.LINE_LIMIT


GRANDCHILD = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
)


def test_the_limit_ends_the_whole_group() -> None:
    done = processes.run(python(GRANDCHILD + "time.sleep(600)"), timeout_s=2)
    assert done.timed_out
    assert not done.ok
    wait_until_gone(int(done.stdout))


def test_one_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.5)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    done = processes.run(python(program), timeout_s=1)
    assert (done.timed_out, done.returncode) == (True, -9)


def test_what_can_not_be_started_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.run([tmp_path / "absent"])


def test_stop_all_ends_the_children_of_all_threads_and_lets_none_begin() -> None:
    # In a process of its own: the flag stays set.
    program = f"""
import sys, threading, time
from validator.system import processes
ended = []
def work():
    try:
        processes.run([sys.executable, "-c", {GRANDCHILD + "time.sleep(600)"!r}], on_line=print)
    except KeyboardInterrupt:
        ended.append(1)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
while len(processes._live) < 2: time.sleep(0.01)
pids = [child.pid for child in processes._live]
processes.stop_all()
for thread in threads: thread.join()
try:
    processes.run(["true"])
except KeyboardInterrupt:
    print(len(ended), *pids)
"""
    done = subprocess.run(python(program), capture_output=True, text=True, timeout=60, check=True)
    count, *pids = done.stdout.split()
    assert count == "2"
    for pid in pids:
        assert gone(int(pid))
        with pytest.raises(ProcessLookupError):
            os.killpg(int(pid), 0)
