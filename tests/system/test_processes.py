"""Child processes never outlive this one, whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from validator.system import processes


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def gone(pid: int) -> bool:
    """Return True if the process has ended, even if nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.mark.slow
def test_output_and_status_are_returned() -> None:
    lines: list[str] = []
    program = "import sys; print('out'); print('one\\ntwo', file=sys.stderr); sys.exit(3)"
    done = processes.run(python(program), on_line=lines.append)
    assert (done.returncode, done.stdout, done.stderr_tail) == (3, b"out\n", "one\ntwo")
    assert lines == ["one", "two"]
    assert not done.ok


@pytest.mark.slow
def test_the_child_gets_the_input_and_only_the_given_environment() -> None:
    program = "import os, sys; print(sys.stdin.read(), dict(os.environ).get('ONLY'), 'HOME' in os.environ)"
    done = processes.run(python(program), input=b"given", env={"ONLY": "this"})
    assert done.stdout == b"given this False\n"


@pytest.mark.slow
def test_output_is_passed_on_as_it_arrives() -> None:
    parts: list[bytes] = []
    program = "import sys; sys.stdout.write('x' * 300_000); print('end', file=sys.stderr)"
    done = processes.run(python(program), on_output=parts.append, timeout_s=60, silence_s=60)
    assert (b"".join(parts), len(parts) > 1) == (b"x" * 300_000, True)
    assert (done.ok, done.stdout, done.stderr_tail) == (True, b"", "end")


@pytest.mark.slow
def test_an_error_about_the_output_ends_the_child() -> None:
    """The child writes without an end; only a little is taken."""
    taken = 0

    def take(part: bytes) -> None:
        nonlocal taken
        taken += len(part)
        if taken > 1_000_000:
            raise OverflowError

    started = time.monotonic()
    with pytest.raises(OverflowError):
        processes.run(python("while True: print('x' * 10_000)"), on_output=take)
    assert taken < 1_200_000
    assert time.monotonic() - started < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "limits"),
    [
        ("import time; time.sleep(60)", {"silence_s": 0.5}),
        ("import sys, time; sys.stdout.close(); time.sleep(60)", {"silence_s": 0.5}),
        ("import time\nwhile True: print(1, flush=True); time.sleep(0.05)", {"timeout_s": 1.0}),
        (
            "import time\nwhile True: print(1, flush=True); time.sleep(0.05)",
            {"timeout_s": 1.0, "silence_s": 60},
        ),
    ],
)
def test_a_child_that_is_silent_or_slow_is_ended(program: str, limits: dict[str, float]) -> None:
    started = time.monotonic()
    done = processes.run(python(program), on_output=lambda part: None, **limits)  # type: ignore[arg-type]
    assert done.timed_out and not done.ok
    assert time.monotonic() - started < 20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a running process")
def test_the_memory_of_a_child_has_a_limit() -> None:
    program = "import time; time.sleep(0.5); x = bytearray(400 << 20); print(len(x))"
    done = processes.run(python(program), memory_bytes=200 << 20)
    assert not done.ok and "MemoryError" in done.stderr_tail
    assert processes.run(python(program), memory_bytes=800 << 20).ok


@pytest.mark.slow
def test_flooding_both_pipes_causes_no_deadlock_and_the_tail_is_bounded() -> None:
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


@pytest.mark.slow
def test_the_time_limit_ends_the_whole_group() -> None:
    done = processes.run(python(GRANDCHILD + "time.sleep(600)"), timeout_s=2)
    assert done.timed_out
    assert not done.ok
    wait_until_gone(int(done.stdout))


@pytest.mark.slow
def test_a_child_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.5)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    done = processes.run(python(program), timeout_s=1)
    assert (done.timed_out, done.returncode) == (True, -9)


@pytest.mark.slow
def test_a_command_that_can_not_be_started_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.run([tmp_path / "absent"])


@pytest.mark.slow
def test_a_long_line_is_split() -> None:
    lines: list[str] = []
    size = 2 * processes.LINE_LIMIT + 10
    program = f"import sys; sys.stderr.write('x' * {size} + '\\nnext\\n')"
    processes.run(python(program), on_line=lines.append)
    assert [len(line) for line in lines] == [processes.LINE_LIMIT, processes.LINE_LIMIT, 10, 4]


@pytest.mark.slow
def test_a_child_that_closes_its_output_early_is_still_waited_for() -> None:
    program = "import os, sys; os.write(1, b'said'); os.close(1); os.close(2); {}"
    done = processes.run(python(program.format("os._exit(7)")), timeout_s=60)
    assert (done.returncode, done.stdout, done.timed_out) == (7, b"said", False)
    done = processes.run(python(program.format("import time; time.sleep(600)")), timeout_s=1)
    assert (done.timed_out, done.stdout) == (True, b"said")


@pytest.mark.slow
def test_a_grandchild_that_left_the_group_and_holds_the_pipes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.5)
    lines: list[str] = []
    program = (
        "import subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "time.sleep(600)"
    )
    done = processes.run(python(program), timeout_s=2, on_line=lines.append)
    os.kill(int(lines[0]), signal.SIGKILL)
    assert done.timed_out


#: Runs in its own process, because `stop_all` is final. Prints how many threads ended, and the ids of their
#: children.
STOPPED = f"""
import sys, threading
from validator.system import processes
ended, started, enough = [], [], threading.Event()
def heard(line):
    started.append(line)
    if len(started) == 2: enough.set()
def work():
    try:
        processes.run([sys.executable, "-c", {GRANDCHILD.replace("flush", "file=sys.stderr, flush") + "time.sleep(600)"!r}], on_line=heard)
    except KeyboardInterrupt:
        ended.append(1)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
enough.wait()
started += [str(child.pid) for child in processes._live]
processes.stop_all()
for thread in threads: thread.join()
try:
    processes.run(["true"])
except KeyboardInterrupt:
    print(len(ended), *started)
"""  # noqa: E501


@pytest.mark.slow
def test_stop_all_ends_the_children_of_all_threads_and_no_more_can_start() -> None:
    done = subprocess.run(python(STOPPED), capture_output=True, text=True, timeout=60, check=True)
    count, *pids = done.stdout.split()
    assert (count, len(pids)) == ("2", 4)
    for pid in pids:
        wait_until_gone(int(pid))


@pytest.mark.slow
def test_a_child_that_starts_during_stop_all_is_ended_too() -> None:
    program = """
import subprocess, sys
from validator.system import processes
start = subprocess.Popen
def start_late(*arguments, **options):
    child = start(*arguments, **options)
    if "-c" in arguments[0]:
        print(child.pid, flush=True)
        processes.stop_all()
    return child
subprocess.Popen = start_late
try:
    processes.run([sys.executable, "-c", "import time; time.sleep(600)"])
except KeyboardInterrupt:
    print("raised")
"""
    done = subprocess.run(python(program), capture_output=True, text=True, timeout=60, check=True)
    pid, raised = done.stdout.split()
    assert raised == "raised"
    assert gone(int(pid))


@pytest.mark.slow
def test_ctrl_c_while_a_child_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            raise KeyboardInterrupt

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(start(*arguments, **options))
        return children[-1]

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        patch.setattr(subprocess, "Popen", started)
        with pytest.raises(KeyboardInterrupt):
            processes.run(python("import time; time.sleep(600)"))
    child = children[-1]
    assert child.stdout is not None
    with child.stdout:
        ended = child.poll() is not None
        child.kill()
    assert ended


@pytest.mark.slow
def test_ctrl_c_ends_the_running_child() -> None:
    program = f"""
import os, signal, sys
from validator.system import processes
def interrupt(line):
    print(line, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
command = {GRANDCHILD.replace("flush", "file=sys.stderr, flush") + "time.sleep(600)"!r}
try:
    processes.run([sys.executable, "-c", command], on_line=interrupt)
except KeyboardInterrupt:
    print("raised")
"""
    done = subprocess.run(python(program), capture_output=True, text=True, timeout=60, check=True)
    pid, raised = done.stdout.split()
    assert raised == "raised"
    wait_until_gone(int(pid))
