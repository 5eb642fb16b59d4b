"""Calls a function in a fresh interpreter that has imported TensorFlow and configured nothing yet.

Memory growth, logical devices, allocator limits and XLA's flags can be set only before TensorFlow's first
operation, which has already run in the worker. A check that needs one of them puts its work into a generator
`def _trial(tf, ...)` at the top of its module and calls it here. The trial doesn't touch the worker's own
TensorFlow, except that both share the memory of the GPU.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..problems import problem, statement
from . import pipes
from .check import CRASH, ERROR, FAIL, TIMEOUT, Result
from .hlo import telling_line
from .isolate import (
    EXCEPTION,
    SIGNAL,
    STATUS,
    STOPPED,
    Answer,
    Failure,
    anonymous_file,
    failure,
    last_part,
    read,
)
from .pipes import tail
from .worker import die_with_parent, from_tensorflow, interpreter, load_tensorflow

_VALUE, _RAISED = "value", "raised"
#: Seconds that a hanging child has to report where it hangs (faulthandler, on SIGABRT) before it is killed.
_LAST_WORDS_S = 2.0
_LAST_LINES = 30

#: Takes the values that a child has given so far; True ends the child.
Attend = Callable[[List[Any]], bool]


def call(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: Optional[Dict[str, Optional[str]]] = None,
    attend: Optional[Attend] = None,
) -> Answer:
    """Run the generator `function(tensorflow, *arguments)` in a fresh interpreter.

    function: at the top level of a module; in the child the module is imported by its name.
    arguments, and each value the generator yields: JSON.
    limit_s: seconds for the interpreter's start and TensorFlow's import too (3 to 60 s, the disk decides).
    environment: variables to set, or with None to remove, before TensorFlow is imported.
    attend: called several times a second with the values so far; True ends the interpreter (`STOPPED`).
    """

    def command(writer: int) -> List[str]:
        return interpreter(
            "fresh", writer, os.getpid(), function.__module__, function.__name__, json.dumps(arguments)
        )

    return ask(command, limit_s=limit_s, environment=environment, attend=attend)


def ask(
    command: Callable[[int], List[str]],
    *,
    limit_s: float,
    environment: Optional[Dict[str, Optional[str]]] = None,
    attend: Optional[Attend] = None,
) -> Answer:
    """Run a command that writes its messages to a pipe, as `main` does.

    command: takes the descriptor of the pipe. The other arguments are those of `call`.
    """
    stopped = False

    def attended(text: bytes) -> bool:
        nonlocal stopped
        stopped = attend is not None and attend(_values(text))
        return stopped

    variables = {**os.environ, **(environment or {})}
    log = anonymous_file()
    reader, writer = os.pipe()
    child = subprocess.Popen(
        command(writer),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(writer,),
        start_new_session=True,
        env={name: value for name, value in variables.items() if value is not None},
    )
    os.close(writer)
    try:
        text, cut_off = read(reader, limit_s, attended if attend is not None else None)
        if cut_off and not stopped:
            _ask_where(child)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
    messages = pipes.Lines().feed(text)
    raised = next(
        (
            Failure(EXCEPTION, message["raised"], message["in_tensorflow"])
            for message in messages
            if message["event"] == _RAISED
        ),
        None,
    )
    ended = Failure(STOPPED) if stopped else failure(cut_off, status, raised)
    return Answer(_values(text), ended, last_part(log))


def _values(text: bytes) -> List[Any]:
    return [message["value"] for message in pipes.Lines().feed(text) if message["event"] == _VALUE]


def last_lines(answer: Answer) -> List[str]:
    """Return what the child printed last, for the evidence."""
    return tail(answer.stderr, lines=_LAST_LINES).splitlines()


def broken_off(trial: str, answer: Answer, evidence: Dict[str, Any]) -> Result:
    """Return the result of a check whose child failed. trial: a word of the vocabulary `trial`."""
    ended = answer.failure
    assert ended is not None
    seen = {**evidence, "failure": str(ended), "last_lines": last_lines(answer)}
    if ended.kind == SIGNAL:
        return Result(CRASH, statement("trial_killed", trial=trial, signal=ended.detail), [], seen)
    if ended.kind == STATUS:
        return Result(CRASH, statement("trial_exited", trial=trial, status=int(ended.detail)), [], seen)
    if ended.kind != EXCEPTION:
        return Result(TIMEOUT, statement("trial_timed_out", trial=trial), [], seen)
    if ended.in_tensorflow:
        return Result(FAIL, None, [problem("trial_failed", trial=trial, error=ended.detail)], seen)
    return Result(ERROR, statement("trial_raised", trial=trial, error=ended.detail), [], seen)


def main(descriptor: int, parent: int, module: str, name: str, arguments: str) -> None:
    """Run in the child process."""
    os.set_inheritable(descriptor, False)
    faulthandler.enable(all_threads=False)
    die_with_parent()
    if os.getppid() != parent:
        # The parent died before this process could ask the kernel to be killed with it.
        os._exit(1)
    try:
        tensorflow = load_tensorflow()
        function = getattr(importlib.import_module(module), name)
        for value in function(tensorflow, *json.loads(arguments)):
            pipes.send(descriptor, _VALUE, value=value)
    except BaseException as error:  # the parent reports it; nothing here could
        pipes.send(descriptor, _RAISED, raised=_described(error), in_tensorflow=_in_tensorflow(error))
    sys.stdout.flush()
    sys.stderr.flush()
    # Without running destructors, as the worker does.
    os._exit(0)


def _described(error: BaseException) -> str:
    """Return the exception's type and the first line that says what happened.

    TensorFlow's messages go on with tracebacks, and those of graphs also begin with one.
    """
    return f"{type(error).__name__}: {telling_line(error)[:600]}"


def _in_tensorflow(error: BaseException) -> bool:
    """Return whether TensorFlow raised it. A failed import of TensorFlow counts, wherever it was raised."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is None or from_tensorflow(error, tensorflow)


def _ask_where(child: "subprocess.Popen[bytes]") -> None:
    child.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WORDS_S)
