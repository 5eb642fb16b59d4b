"""Child processes that never outlive this one.

Each child leads its own process group, which is ended as a whole on a timeout or any exception. Ctrl-C
reaches only the main thread, which then calls `stop_all` to end the children of all threads; no child can
start after that. If this process is killed, the watcher of its run ends the children, see `orphans`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import runs

#: Called with one short line about the progress, from any thread.
Progress = Callable[[str], None]

logger = logging.getLogger(__name__)

#: Seconds from SIGTERM to SIGKILL.
GRACE_S = 5.0
#: The same after Ctrl-C, for all children together.
INTERRUPTED_GRACE_S = 1.0
#: The number of last lines of stderr to keep.
TAIL_LINES = 200
#: The maximum length of a line in bytes; a longer one is split.
LINE_LIMIT = 8192
#: Bytes to read from a child at a time.
_CHUNK = 64 * 1024
_GIT_TIMEOUT_S = 30.0

_live: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class Completed:
    """The result of a child process.

    returncode: the exit status; negative for the signal that ended the child.
    stdout: everything that it wrote there. stderr_tail: its last lines on stderr.
    timed_out: True if it was ended at a time limit.
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
    on_output: Callable[[bytes], None] | None = None,
    silence_s: float | None = None,
    memory_bytes: int | None = None,
    stdin: IO[bytes] | None = None,
    grace_s: float = GRACE_S,
) -> Completed:
    """Run a command and wait for it.

    env: the environment of the child, or None for this process's own. The variable that marks the children of
        this run is added.
    on_line: called with each line of stderr as it arrives, from another thread.
    timeout_s: wall-clock limit, after which the whole process group is ended.
    on_output: called with each part of stdout as it arrives, instead of keeping it; an exception that it
        raises ends the child. Not together with `input`.
    silence_s: with `on_output`, the longest wait for the next part of stdout, and for the end after the last
    one.
    memory_bytes: the most memory that the child may use, if the system can limit that (Linux).
    stdin: an open file or pipe that the child reads, instead of `input`.
    grace_s: how long a child may go on after its time limit before it is killed.

    Raises OSError if the command can't be started, and KeyboardInterrupt, in any thread, once `stop_all` was
    called. A non-zero exit status raises nothing.
    """
    check_stopping()
    command = [str(part) for part in argv]
    logger.info("run: %s", shlex.join(command))
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    timed_out = False
    child = subprocess.Popen(
        command,
        env={**(os.environ if env is None else env), **runs.environment_of_children()},
        cwd=cwd,
        stdin=subprocess.PIPE if input is not None else stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with _guard:
            _live.add(child)
        if memory_bytes is not None and hasattr(resource, "prlimit"):
            # A child that has ended needs no limit.
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(child.pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        assert child.stderr is not None
        reader = threading.Thread(target=_follow, args=(child.stderr, tail, on_line), daemon=True)
        reader.start()
        # `stop_all` may have been called after the child started and before it was added to `_live`.
        check_stopping()
        if on_output is None:
            stdout = _communicate(child, input, timeout_s)
        else:
            stdout = b""
            _pass_on(child, on_output, timeout_s, silence_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        stdout = b""
        end_group(child, grace_s)
        if on_output is None:
            try:
                stdout = _communicate(child, None, GRACE_S)
            except subprocess.TimeoutExpired:
                # A grandchild that left the group holds the pipe open.
                assert child.stdout is not None
                child.stdout.close()
    except KeyboardInterrupt:
        end_group(child, INTERRUPTED_GRACE_S)
        raise
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


def git(directory: Path, *arguments: str) -> str | None:
    """Return what git prints about the repository of a directory; None without git, and if it fails.

    The repository may be somebody else's: git runs no hook and no file monitor of its configuration, and
    fetches nothing. Ask nothing that compares files, such as `status`, of a repository that is not our own.
    """
    if shutil.which("git") is None or not directory.is_dir():
        return None
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(directory), *arguments]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    done = run(command, env=environment, timeout_s=_GIT_TIMEOUT_S)
    return done.stdout.decode("utf-8", "replace").strip() if done.ok else None


def last_line(text: str, otherwise: str = "no message") -> str:
    """Return the last line of an output, ignoring blank lines."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), otherwise)


def start(argv: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start a service for this process. End it with `end_group`; otherwise it ends with this process.

    Raises OSError if it can't be started, and KeyboardInterrupt once `stop_all` was called.
    """
    check_stopping()
    child = subprocess.Popen(
        [str(part) for part in argv],
        env={**os.environ, **runs.environment_of_children()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with _guard:
        _live.add(child)
    return child


def stop_all() -> None:
    """End the children of all threads. From now on, `run` and `check_stopping` raise KeyboardInterrupt."""
    _stopping.set()
    with _guard:
        children = list(_live)
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + INTERRUPTED_GRACE_S
    for child in children:
        end_group(child, max(deadline - time.monotonic(), 0))


def check_stopping() -> None:
    """Raise KeyboardInterrupt if `stop_all` was called. For loops that wait for something else."""
    if _stopping.is_set():
        raise KeyboardInterrupt


def end_group(child: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End a child and everything in its process group: with SIGTERM, and after `grace_s` with SIGKILL."""
    for number, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, GRACE_S)):
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=patience)
            if number == signal.SIGKILL:
                return


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _pass_on(
    child: subprocess.Popen[bytes],
    on_output: Callable[[bytes], None],
    timeout_s: float | None,
    silence_s: float | None,
) -> None:
    """Pass stdout on as it arrives, and wait for the child's end. Raises TimeoutExpired at a limit."""
    assert child.stdout is not None
    ends = math.inf if timeout_s is None else time.monotonic() + timeout_s

    def patience() -> float | None:
        left = min(ends - time.monotonic(), math.inf if silence_s is None else silence_s)
        if left <= 0:
            raise subprocess.TimeoutExpired(child.args, timeout_s or 0)
        return None if left == math.inf else left

    with child.stdout as stream, selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            limit = patience()
            if not selector.select(limit):
                raise subprocess.TimeoutExpired(child.args, limit or 0)
            part = os.read(stream.fileno(), _CHUNK)
            if not part:
                break
            on_output(part)
    child.wait(timeout=patience())


def _communicate(child: subprocess.Popen[bytes], data: bytes | None, timeout_s: float | None) -> bytes:
    # stderr has its own reader; communicate() must not touch it.
    child.stderr, kept = None, child.stderr
    try:
        stdout, _ = child.communicate(data, timeout=timeout_s)
    finally:
        child.stderr = kept
    return stdout


def _follow(stream: IO[bytes], tail: deque[str], on_line: Callable[[str], None] | None) -> None:
    with contextlib.suppress(ValueError, OSError), stream:
        for raw in iter(lambda: stream.readline(LINE_LIMIT), b""):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            tail.append(line)
            if on_line is not None:
                on_line(line)
