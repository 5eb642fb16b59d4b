"""Child processes that never outlive us.

Each child leads a process group of its own, so that ending it ends what it started too. The group is
ended on a timeout and on any exception. Ctrl-C reaches only the main thread, so `stop_all` is there for
it: it ends the children of all threads, and none can start after it.
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

logger = logging.getLogger(__name__)

#: How long a group may take to end by itself after SIGTERM, in seconds.
GRACE_S = 5.0
#: How many of the last lines of stderr are kept.
TAIL_LINES = 200
#: The longest line handed on or kept, in bytes; the rest of a longer one follows as further lines.
LINE_LIMIT = 8192


_live: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class Completed:
    """How a child ended.

    returncode: as the shell's, negative for the signal that ended it.
    stdout: all of it. stderr_tail: its last lines. timed_out: it was ended at its limit.
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
    """Run a command to its end.

    env: the whole environment of the child (None: ours).
    on_line: called with each line of stderr, from another thread, as it comes.
    timeout_s: wall-clock limit; at the limit the whole process group is ended.

    Raises OSError when the command can't be started; a non-zero exit is not an exception. Raises
    KeyboardInterrupt, in whatever thread, once `stop_all` was called.
    """
    check_stopping()
    command = [str(part) for part in argv]
    logger.info("run: %s", shlex.join(command))
    child = subprocess.Popen(
        command,
        env=None if env is None else dict(env),
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
        # `stop_all` may have come between the start and the listing of this child, and missed it.
        check_stopping()
        stdout = _communicate(child, input, timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(child)
        stdout = _what_is_left(child)
    except BaseException:
        end_group(child)
        raise
    finally:
        with _guard:
            _live.discard(child)
    check_stopping()
    # A grandchild that left the group may still hold stderr open; what it says later is not ours.
    reader.join(timeout=GRACE_S)
    return Completed(child.wait(), stdout, "\n".join(tail), timed_out)


def stop_all() -> None:
    """End every child that runs in any thread. From here on `run` and `check_stopping` raise."""
    _stopping.set()
    with _guard:
        children = list(_live)
    for child in children:
        end_group(child)


def check_stopping() -> None:
    """Raise KeyboardInterrupt when `stop_all` was called. For loops that wait for something else."""
    if _stopping.is_set():
        raise KeyboardInterrupt


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child that leads its own process group, and all that it started: SIGTERM, then SIGKILL."""
    for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=patience)
            if number == signal.SIGKILL:
                return


def _communicate(child: subprocess.Popen[bytes], data: bytes | None, timeout_s: float | None) -> bytes:
    # stderr has a reader of its own; communicate() must not touch it.
    child.stderr, kept = None, child.stderr
    try:
        stdout, _ = child.communicate(data, timeout=timeout_s)
    finally:
        child.stderr = kept
    return stdout


def _what_is_left(child: subprocess.Popen[bytes]) -> bytes:
    """What an ended child wrote to stdout and nobody has read yet."""
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
