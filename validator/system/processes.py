"""Child processes that never outlive this one.

Each child leads its own process group, which is ended as a whole: on a timeout, and on any exception. Ctrl-C
reaches only the main thread, which then calls `stop_all` to end the children of all threads; no child can
start after that. If this process is killed, the watcher of its run ends the children, see `orphans`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import runs

logger = logging.getLogger(__name__)

#: Seconds from SIGTERM to SIGKILL.
GRACE_S = 5.0
#: The number of last lines of stderr to keep.
TAIL_LINES = 200
#: The maximum length of a line in bytes; a longer one is split.
LINE_LIMIT = 8192


_live: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class Completed:
    """The result of a child process.

    returncode: the exit status; negative for the signal that ended the child.
    stdout: everything that it wrote there. stderr_tail: its last lines on stderr.
    timed_out: True if it was ended at its time limit.
    """

    returncode: int
    stdout: bytes
    stderr_tail: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    input: bytes | None = None,
) -> Completed:
    """Run a command and wait for it.

    env: the environment of the child, or None for this process's own. The variable that marks the children of
        this run is added.
    on_line: called with each line of stderr as it arrives, from another thread.
    timeout_s: wall-clock limit, after which the whole process group is ended.

    Raises OSError if the command can't be started, and KeyboardInterrupt, in any thread, once `stop_all` was
    called. A non-zero exit status raises nothing.
    """
    check_stopping()
    command = [str(part) for part in argv]
    logger.info("run: %s", shlex.join(command))
    child = subprocess.Popen(
        command,
        env={**(os.environ if env is None else env), **runs.environment_of_children()},
        cwd=cwd,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with _guard:
        _live.add(child)
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    assert child.stderr is not None
    reader = threading.Thread(target=_follow, args=(child.stderr, tail, on_line), daemon=True)
    reader.start()
    timed_out = False
    try:
        # `stop_all` may have been called after the child started and before it was added to `_live`.
        check_stopping()
        stdout = _communicate(child, input, timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(child)
        stdout = _rest_of_stdout(child)
    except BaseException:
        end_group(child)
        raise
    finally:
        with _guard:
            _live.discard(child)
    check_stopping()
    # A grandchild that left the group may still hold stderr open; don't wait for its output.
    reader.join(timeout=GRACE_S)
    return Completed(child.wait(), stdout, "\n".join(tail), timed_out)


def stop_all() -> None:
    """End the children of all threads. From now on, `run` and `check_stopping` raise KeyboardInterrupt."""
    _stopping.set()
    with _guard:
        children = list(_live)
    for child in children:
        end_group(child)


def check_stopping() -> None:
    """Raise KeyboardInterrupt if `stop_all` was called. For loops that wait for something else."""
    if _stopping.is_set():
        raise KeyboardInterrupt


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child and everything in its process group: with SIGTERM, then SIGKILL."""
    for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=patience)
            if number == signal.SIGKILL:
                return


def _communicate(child: subprocess.Popen[bytes], data: bytes | None, timeout_s: float | None) -> bytes:
    # stderr has its own reader; communicate() must not touch it.
    child.stderr, kept = None, child.stderr
    try:
        stdout, _ = child.communicate(data, timeout=timeout_s)
    finally:
        child.stderr = kept
    return stdout


def _rest_of_stdout(child: subprocess.Popen[bytes]) -> bytes:
    """Return what an ended child wrote to stdout and was not read yet."""
    try:
        return _communicate(child, None, GRACE_S)
    except subprocess.TimeoutExpired:
        # A grandchild that left the group holds the pipe open.
        assert child.stdout is not None
        child.stdout.close()
        return b""


def _follow(stream: IO[bytes], tail: deque[str], on_line: Callable[[str], None] | None) -> None:
    with contextlib.suppress(ValueError, OSError), stream:
        for raw in iter(lambda: stream.readline(LINE_LIMIT), b""):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            tail.append(line)
            if on_line is not None:
                on_line(line)
