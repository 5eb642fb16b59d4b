"""Calls a function in a child process, so that a library that crashes or hangs takes only the child along."""

import json
import os
import select
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .text import tail

#: Bytes kept of what a child printed.
STDERR_LIMIT = 65536


@dataclass(frozen=True)
class Answer:
    """What a child said before it ended.

    values: what the function yielded, in order.
    failure: None when it came to its end; else a signal's name, `timeout`, or the exception.
    stderr: what it and its libraries printed, the last part of it.
    in_tensorflow: whether it was TensorFlow that raised the exception (known of `fresh` children only).
    """

    values: List[Any]
    failure: Optional[str]
    stderr: str
    in_tensorflow: bool = False


def call(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: Optional[Dict[str, str]] = None,
) -> Answer:
    """Run the generator `function(*arguments)` in a forked child; each value it yields must be JSON.

    A fork and not a fresh interpreter: it costs a few milliseconds, and the dynamic loader still reads
    `LD_LIBRARY_PATH` as this process was started with it. Only to be called where no thread runs.
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
    values, failure = _parse(text)
    if timed_out:
        failure = "timeout"
    elif os.WIFSIGNALED(status):
        failure = signal.Signals(os.WTERMSIG(status)).name
    elif failure is None and os.WEXITSTATUS(status) != 0:
        failure = f"exit status {os.WEXITSTATUS(status)}"
    return Answer(values, failure, printed)


def anonymous_file() -> int:
    """A file without a name; in memory where it can be, since a container may have no writable disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("probe", 0)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def last_part(log: int) -> str:
    """The last part of what stands in the file, which is closed."""
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
    """The child. Leaves by `os._exit`: the parent's clean-up must not run twice."""
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
        failure = f"{type(error).__name__}: {tail(str(error))}"
        os.write(writer, json.dumps({"failure": failure}).encode() + b"\n")
    finally:
        os._exit(status)


def read(reader: int, limit_s: float) -> Tuple[bytes, bool]:
    """What comes through the pipe until it ends, and whether the time ran out before."""
    deadline = time.monotonic() + limit_s
    chunks: List[bytes] = []
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([reader], [], [], remaining)[0]:
            return b"".join(chunks), True
        chunk = os.read(reader, 65536)
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)


def _parse(text: bytes) -> Tuple[List[Any], Optional[str]]:
    values: List[Any] = []
    failure = None
    # A line that a crash cut short has no line end, and is dropped.
    for line in text.split(b"\n")[:-1]:
        message = json.loads(line)
        if "failure" in message:
            failure = message["failure"]
        else:
            values.append(message["value"])
    return values, failure


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            # The child has not made its group yet, or is gone already.
            continue
