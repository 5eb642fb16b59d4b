"""Calls a function in a forked child, so that a library that crashes or hangs affects only the child."""

import json
import os
import select
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .pipes import tail

#: Bytes kept of what a child printed.
STDERR_LIMIT = 65536


TIMED_OUT, SIGNAL, STATUS, EXCEPTION = "timeout", "signal", "status", "exception"
#: The caller ended the child before its time was up.
STOPPED = "stopped"
#: Seconds between two calls of what attends to a child.
_ATTEND_S = 0.25


@dataclass(frozen=True)
class Failure:
    """The way a child ended before its function did.

    kind: TIMED_OUT, SIGNAL, STATUS, EXCEPTION or STOPPED. detail: the signal's name, the exit status, or the
    exception's type and message. in_tensorflow: whether TensorFlow raised it; known only for `fresh`
    children.
    """

    kind: str
    detail: str = ""
    in_tensorflow: bool = False

    def __str__(self) -> str:
        words = {TIMED_OUT: "timeout", STOPPED: "stopped", STATUS: f"exit status {self.detail}"}
        return words.get(self.kind, self.detail)


@dataclass(frozen=True)
class Answer:
    """A child's answer.

    values: what the function yielded, in order.
    failure: None when the function came to its end.
    stderr: the last part of what the child and its libraries printed.
    """

    values: List[Any]
    failure: Optional[Failure]
    stderr: str


def call(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: Optional[Dict[str, str]] = None,
) -> Answer:
    """Run the generator `function(*arguments)` in a forked child; each value it yields must be JSON.

    A fork costs only a few milliseconds, and the dynamic loader still uses the `LD_LIBRARY_PATH` that this
    process was started with. Call it only where no other thread runs.
    """
    log = anonymous_file()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(function, arguments, writer, log, environment or {})
    os.close(writer)
    text, timed_out = read(reader, limit_s)
    os.close(reader)
    if timed_out:
        _kill_group(child)
    status = os.waitpid(child, 0)[1]
    printed = last_part(log)
    values, raised = _parse(text)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Answer(values, failure(timed_out, code, raised), printed)


def failure(timed_out: bool, code: int, raised: Optional[Failure]) -> Optional[Failure]:
    """Return why a child failed, or None. code: as `subprocess` gives it, negative for a signal."""
    if timed_out:
        return Failure(TIMED_OUT)
    if raised is not None:
        return raised
    if code < 0:
        return Failure(SIGNAL, signal.Signals(-code).name)
    return Failure(STATUS, str(code)) if code else None


def anonymous_file() -> int:
    """Open a file without a name, in memory where possible: a container may have no writable disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("probe", 0)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def last_part(log: int) -> str:
    """Return the last part of the file's text, and close the file."""
    size = os.fstat(log).st_size
    printed = os.pread(log, STDERR_LIMIT, max(0, size - STDERR_LIMIT)).decode(errors="replace")
    os.close(log)
    return printed


def _run(
    function: Callable[..., Iterator[Any]],
    arguments: Tuple[Any, ...],
    writer: int,
    log: int,
    environment: Dict[str, str],
) -> None:
    """Run in the child process. Exit with `os._exit`: the parent's clean-up must not run twice."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(environment)
        for value in function(*arguments):
            os.write(writer, json.dumps({"value": value}).encode() + b"\n")
        status = 0
    except BaseException as error:  # the parent reports it; nothing here could
        raised = f"{type(error).__name__}: {tail(str(error))}"
        os.write(writer, json.dumps({"raised": raised}).encode() + b"\n")
    finally:
        os._exit(status)


def read(reader: int, limit_s: float, attend: Optional[Callable[[bytes], bool]] = None) -> Tuple[bytes, bool]:
    """Return what comes through the pipe until it ends, and whether that was cut off.

    limit_s: seconds after which it is cut off. attend: called several times a second with what came so far;
    True cuts it off.
    """
    deadline = time.monotonic() + limit_s
    chunks: List[bytes] = []
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or (attend is not None and attend(b"".join(chunks))):
            return b"".join(chunks), True
        pause = remaining if attend is None else min(remaining, _ATTEND_S)
        if not select.select([reader], [], [], pause)[0]:
            continue
        chunk = os.read(reader, 65536)
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)


def _parse(text: bytes) -> Tuple[List[Any], Optional[Failure]]:
    values: List[Any] = []
    raised = None
    # A line that a crash cut short has no line end, and is dropped.
    for line in text.split(b"\n")[:-1]:
        message = json.loads(line)
        if "raised" in message:
            raised = Failure(EXCEPTION, message["raised"])
        else:
            values.append(message["value"])
    return values, raised


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            # The child has not created its process group yet, or has already ended.
            continue
