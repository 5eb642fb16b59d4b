"""The child runner: starts processes, reads what they answer and print, and says how they ended.

A library that crashes or hangs affects only the child. There are three kinds of children:

    forked    a function in a forked child: milliseconds, and only where no other thread runs
    fresh     a function in a new interpreter with its own TensorFlow, of which nothing is configured yet
    a worker  runs the checks of a stage (`stages`)

Each leads a process group of its own, which ends with it, and dies with its parent. It answers with one JSON
object a line, on a pipe that nothing else uses: TensorFlow and the libraries under it print to standard
output.

`forked` and `fresh` send `{event: value, value}` and `{event: raised, raised, in_tensorflow}`. A worker gets
`{checks: [id], facts, lock}` on its standard input and sends `{event: imported, duration_s}` or `{event:
import_failed, missing, error, traceback}` where the stage needs TensorFlow, then `{event: begin, check}` and
`{event: end, check, outcome, statement, problems, evidence, duration_s}` for each check, then `{event:
done}`. In between, a check may send `{event: doing, statement}`, which is shown to people, and `{event:
settled, outcome, statement, problems, evidence, limit}`: its result whatever happens from here on, and the
limit that the end of the process would be.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from ..problems import problem, statement
from .check import CRASH, ERROR, FAIL, TIMEOUT, Result
from .tensorflow_devices import telling_line

IMPORTED, IMPORT_FAILED, BEGIN, END, DONE = "imported", "import_failed", "begin", "end", "done"
DOING, SETTLED = "doing", "settled"
_VALUE, _RAISED = "value", "raised"

#: How a child ended before its function did. STOPPED: the caller ended it before its time was up.
TIMED_OUT, SIGNAL, STATUS, EXCEPTION, STOPPED = "timeout", "signal", "status", "exception", "stopped"

#: Bytes kept of what a child printed, and lines of it that go into the evidence.
OUTPUT_LIMIT = 65536
LAST_LINES = 30
#: Characters kept of such a line, and of an exception's message.
_WIDTH = 600
#: Seconds that a hanging process has to report where it hangs (faulthandler, on SIGABRT) before it is killed.
LAST_WORDS_S = 2.0
#: Seconds between two calls of the function that attends to a child.
_ATTEND_S = 0.25
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Failure:
    """The way a child ended before its function did.

    kind: TIMED_OUT, SIGNAL, STATUS, EXCEPTION or STOPPED. detail: the signal's name, the exit status, or the
    exception's type and message. in_tensorflow: whether TensorFlow raised it; known only for `fresh`.
    """

    kind: str
    detail: str = ""
    in_tensorflow: bool = False

    def __str__(self) -> str:
        words = {TIMED_OUT: "timeout", STOPPED: "stopped", STATUS: f"exit status {self.detail}"}
        return words.get(self.kind, self.detail)


@dataclass(frozen=True)
class Answer:
    """A child's answer: what its function yielded, in order; its failure, or None; the end of its output."""

    values: list[Any]
    failure: Failure | None
    stderr: str

    @property
    def last_lines(self) -> list[str]:
        return tail(self.stderr, lines=LAST_LINES).splitlines()


#: Takes the values that a child has given so far; True ends the child.
Attend = Callable[[list[Any]], bool]


def forked(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: dict[str, str] | None = None,
) -> Answer:
    """Run the generator `function(*arguments)` in a forked child; each value it yields must be JSON.

    The dynamic loader still uses the `LD_LIBRARY_PATH` that this process was started with.
    """
    log = anonymous_file()
    reader, writer = os.pipe()
    child = os.fork()
    # In both processes, so that the group exists before either goes on.
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    if child == 0:
        status = 1
        try:
            os.close(reader)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(environment or {})
            for value in function(*arguments):
                send(writer, _VALUE, value=value)
            status = 0
        except BaseException as error:  # the parent reports it; nothing here could
            send(writer, _RAISED, raised=f"{type(error).__name__}: {tail(str(error))}", in_tensorflow=False)
        finally:
            # The parent's clean-up must not run twice.
            os._exit(status)
    os.close(writer)

    def wait() -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    # No Python handler would print where it hangs: it is killed at once.
    return _answer(child, wait, reader, log, limit_s, None, last_words_s=0.0)


def fresh(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: dict[str, str | None] | None = None,
    attend: Attend | None = None,
) -> Answer:
    """Run the generator `function(tensorflow, *arguments)` in a fresh interpreter.

    Memory growth, logical devices, allocator limits and XLA's flags can be set only before TensorFlow's first
    operation, which has already run in the worker. Both share the memory of the GPU.

    function: at the top level of a module; in the child the module is imported by its name.
    arguments, and each value the generator yields: JSON.
    limit_s: seconds for the interpreter's start and TensorFlow's import too (3 to 60 s, the disk decides).
    environment: variables to set, or with None to remove, before TensorFlow is imported.
    attend: called several times a second with the values so far; True ends the interpreter (`STOPPED`).
    """
    called = (function.__module__, function.__name__, json.dumps(arguments))
    return ask(interpreter("child", os.getpid(), *called), limit_s, environment, attend)


def ask(
    command: list[str],
    limit_s: float,
    environment: dict[str, str | None] | None = None,
    attend: Attend | None = None,
) -> Answer:
    """Run a command that sends its values as `main` does. The other arguments are those of `fresh`."""
    variables = {**os.environ, **(environment or {})}
    log = anonymous_file()
    given = {name: value for name, value in variables.items() if value is not None}
    process, reader = started(command, log, given, subprocess.DEVNULL)
    return _answer(process.pid, process.wait, reader, log, limit_s, attend, LAST_WORDS_S)


def started(
    command: list[str], output: int, environment: dict[str, str] | None, stdin: int
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command with a pipe for its messages; return the process and the descriptor to read from.

    The command gets the descriptor to write to as a further argument.
    """
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*command, str(writer)],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=(writer,),
            start_new_session=True,
            env=environment,
        )
    finally:
        os.close(writer)
    return process, reader


def signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def _answer(
    child: int,
    wait: Callable[[], int],
    reader: int,
    log: int,
    limit_s: float,
    attend: Attend | None,
    last_words_s: float,
) -> Answer:
    """Read what a child sends until it ends or its time is up, and end whatever it left running."""
    values: list[Any] = []
    failure: Failure | None = None
    lines = Lines()

    def read(limit_s: float, attend: Attend | None) -> str | None:
        """Return None at the end of the pipe, TIMED_OUT, or STOPPED by `attend`."""
        nonlocal failure
        deadline = time.monotonic() + limit_s
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return TIMED_OUT
            if attend is not None:
                if attend([*values]):
                    return STOPPED
                remaining = min(remaining, _ATTEND_S)
            if select.select([reader], [], [], remaining)[0]:
                chunk = os.read(reader, 65536)
                if not chunk:
                    return None
                for message in lines.feed(chunk):
                    if message["event"] == _VALUE:
                        values.append(message["value"])
                    elif message["event"] == _RAISED:
                        failure = Failure(EXCEPTION, message["raised"], message["in_tensorflow"])

    try:
        cut_off = read(limit_s, attend)
        if cut_off == TIMED_OUT and last_words_s:
            signal_group(child, signal.SIGABRT)
            read(last_words_s, None)
    finally:
        os.close(reader)
        signal_group(child, signal.SIGKILL)
        code = wait()
    if cut_off is not None:
        failure = Failure(cut_off)
    elif failure is None and code:
        failure = Failure(SIGNAL, signal.Signals(-code).name) if code < 0 else Failure(STATUS, str(code))
    size = os.fstat(log).st_size
    printed = os.pread(log, OUTPUT_LIMIT, max(0, size - OUTPUT_LIMIT)).decode(errors="replace")
    os.close(log)
    return Answer(values, failure, printed)


def broken_off(trial: str, answer: Answer, evidence: dict[str, Any]) -> Result:
    """Return the result of a check whose child failed. trial: a word of the vocabulary `trial`."""
    ended = answer.failure
    assert ended is not None
    seen = {**evidence, "failure": str(ended), "last_lines": answer.last_lines}
    if ended.kind == SIGNAL:
        return Result(CRASH, statement("trial_killed", trial=trial, signal=ended.detail), [], seen)
    if ended.kind == STATUS:
        return Result(CRASH, statement("trial_exited", trial=trial, status=int(ended.detail)), [], seen)
    if ended.kind != EXCEPTION:
        return Result(TIMEOUT, statement("trial_timed_out", trial=trial), [], seen)
    if ended.in_tensorflow:
        return Result(FAIL, None, [problem("trial_failed", trial=trial, error=ended.detail)], seen)
    return Result(ERROR, statement("trial_raised", trial=trial, error=ended.detail), [], seen)


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """Write a line to the log before and after the `with` block (docs/reference/report.md).

    name: `check ID`, or `provoked by ID` for what a check makes TensorFlow print on purpose, which `doctor`
    leaves out. The lines bypass Python's buffer, as those of TensorFlow's libraries do.
    """

    def mark(text: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(2, f"[probe {text}: {name}]\n".encode())

    mark("begin")
    try:
        yield
    finally:
        mark("end")


def anonymous_file() -> int:
    """Open a file without a name, in memory where possible: a container may have no writable disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("probe", 0)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def tail(text: str, lines: int = 1) -> str:
    """Return the last `lines` lines that are not empty, each cut at `_WIDTH` characters."""
    kept: list[str] = [line.rstrip()[:_WIDTH] for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])


class Capture:
    """Keeps the first and the last half of `limit` bytes of output, and counts the bytes between."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.limit // 2 - len(self._head)
        self._head += data[: max(room, 0)]
        self._tail += data[max(room, 0) :]
        del self._tail[: max(0, len(self._tail) - (self.limit - self.limit // 2))]

    @property
    def dropped(self) -> int:
        return self.total - len(self._head) - len(self._tail)

    @property
    def text(self) -> str:
        """Return what was kept, with a line in the middle that says how much is missing."""
        cut = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return bytes(self._head + cut + self._tail).decode(errors="replace")

    def recent(self, size: int) -> str:
        """Return the last `size` bytes that came in, as far as they were kept."""
        return bytes((self._head + self._tail)[-size:] if size else b"").decode(errors="replace")


def send(descriptor: int, event: str, **fields: Any) -> None:
    # Evidence may hold values that JSON can't (a NumPy scalar): text is better than an error.
    line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


class Lines:
    """Assembles messages from what comes through a pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete now. Drop any line that is not a message."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        messages: list[dict[str, Any]] = []
        for line in whole:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict) and "event" in message:
                    messages.append(message)
        return messages


# In the child.


def main(descriptor: int, parent: int, module: str, name: str, arguments: str) -> None:
    """Run in the process that `fresh` starts."""
    prepare(descriptor)
    if os.getppid() != parent:
        # The parent died before this process could ask the kernel to be killed with it.
        os._exit(1)
    try:
        tensorflow = load_tensorflow()
        function = getattr(importlib.import_module(module), name)
        for value in function(tensorflow, *json.loads(arguments)):
            send(descriptor, _VALUE, value=value)
    except BaseException as error:  # the parent reports it; nothing here could
        tensorflow = sys.modules.get("tensorflow")
        # A failed import of TensorFlow is TensorFlow's fault, wherever it was raised.
        at_fault = tensorflow is None or from_tensorflow(error, tensorflow)
        raised = f"{type(error).__name__}: {telling_line(error)[:_WIDTH]}"
        send(descriptor, _RAISED, raised=raised, in_tensorflow=at_fault)
    leave()


def prepare(descriptor: int) -> None:
    """Keep the pipe from this process's own children, and report on SIGABRT where it hangs."""
    os.set_inheritable(descriptor, False)
    faulthandler.enable(all_threads=False)
    # The kernel kills this process when the one that started it ends, however it ends (prctl(2)).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def leave() -> None:
    """End without running destructors: TensorFlow's take time, and may crash after everything was sent."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def load_tensorflow() -> Any:
    """Import TensorFlow without the garbage collector, which would take a fifth of the time."""
    gc.disable()
    try:
        return importlib.import_module("tensorflow")
    finally:
        gc.enable()


def from_tensorflow(error: BaseException, tensorflow: Any) -> bool:
    """Return whether the frame that raised belongs to TensorFlow or to Keras, however that is packaged."""
    frames = traceback.extract_tb(error.__traceback__)
    for module in (tensorflow, sys.modules.get("keras"), sys.modules.get("tf_keras")):
        directory = os.path.dirname(getattr(module, "__file__", None) or "")
        if directory and frames and frames[-1].filename.startswith(directory + os.sep):
            return True
    return False


def interpreter(module: str, *arguments: Any) -> list[str]:
    """Return a command for `started` that calls `main(descriptor, *arguments)` of a module of this package.

    It uses the same interpreter, and works from the archive and from a source tree. The arguments are strings
    and numbers.
    """
    package = __name__.rpartition(".")[0]
    root = str(Path(os.path.abspath(__file__)).parents[__name__.count(".")])
    program = (
        f"import sys; sys.path[:] = [{root!r}] + [entry for entry in sys.path if entry];"
        f" from {package}.{module} import main; main(int(sys.argv.pop()), *{arguments!r})"
    )
    return [sys.executable, "-u", "-c", program]
