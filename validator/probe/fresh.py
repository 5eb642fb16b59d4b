"""Calls a function in a fresh interpreter that has imported TensorFlow and configured nothing yet.

Memory growth, logical devices, allocator limits and XLA's flags can be set only before TensorFlow's first
operation, which in the worker has long run. A check that needs one of them puts what it does into a generator
`def _trial(tf, ...)` at the top of its module and asks for it here. Nothing of it touches the worker's own
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

from . import protocol
from .check import CRASH, ERROR, FAIL, TIMEOUT, Result
from .isolate import Answer, anonymous_file, last_part, read
from .text import tail
from .worker import die_with_parent, interpreter, raised_by

_VALUE, _FAILURE = "value", "failure"
#: Keras is part of TensorFlow, however it is packaged.
_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
#: Seconds for a child that hangs to say where (faulthandler, on SIGABRT) before it is killed.
_LAST_WORDS_S = 2.0
_LAST_LINES = 30


def call(
    function: Callable[..., Iterator[Any]],
    *arguments: Any,
    limit_s: float,
    environment: Optional[Dict[str, Optional[str]]] = None,
) -> Answer:
    """Run the generator `function(tensorflow, *arguments)` in a fresh interpreter.

    function: at the top level of a module; in the child the module is imported by its name.
    arguments, and each value the generator yields: JSON.
    limit_s: seconds for the interpreter's start and TensorFlow's import too (3 to 60 s, the disk decides).
    environment: variables to set, or with None to remove, before TensorFlow is imported.
    """
    variables = {**os.environ, **(environment or {})}
    log = anonymous_file()
    reader, writer = os.pipe()
    child = subprocess.Popen(
        interpreter(
            "fresh", writer, os.getpid(), function.__module__, function.__name__, json.dumps(arguments)
        ),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(writer,),
        start_new_session=True,
        env={name: value for name, value in variables.items() if value is not None},
    )
    os.close(writer)
    try:
        text, timed_out = read(reader, limit_s)
        if timed_out:
            _ask_where(child)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
    messages = protocol.Lines().feed(text)
    failed = next((message for message in messages if message["event"] == _FAILURE), None)
    failure, in_tensorflow = _failure(timed_out, status, failed), bool(failed and failed["in_tensorflow"])
    values = [message["value"] for message in messages if message["event"] == _VALUE]
    return Answer(values, failure, last_part(log), in_tensorflow)


def fault(answer: Answer, what: str) -> Result:
    """The result of a check whose child did not come to its end. `what`: what it was at, as a noun."""
    failure = answer.failure or "no answer"
    if failure == "timeout":
        outcome = TIMEOUT
    elif failure.startswith(("SIG", "exit status")):
        outcome = CRASH
    else:
        outcome = FAIL if answer.in_tensorflow else ERROR
    lines = tail(answer.stderr, lines=_LAST_LINES).splitlines()
    return Result(outcome, f"{what}: {failure}", {"failure": failure, "last_lines": lines})


def main(descriptor: int, parent: int, module: str, name: str, arguments: str) -> None:
    """The child."""
    os.set_inheritable(descriptor, False)
    faulthandler.enable(all_threads=False)
    die_with_parent()
    if os.getppid() != parent:
        # It died before it could be asked to take this process along.
        os._exit(1)
    try:
        tensorflow = importlib.import_module("tensorflow")
        function = getattr(importlib.import_module(module), name)
        for value in function(tensorflow, *json.loads(arguments)):
            protocol.send(descriptor, _VALUE, value=value)
    except BaseException as error:  # the parent reports it; nothing here could
        protocol.send(descriptor, _FAILURE, failure=_sentence(error), in_tensorflow=_in_tensorflow(error))
    sys.stdout.flush()
    sys.stderr.flush()
    # Without running destructors, as the worker does.
    os._exit(0)


def _sentence(error: BaseException) -> str:
    """The exception's type and the first line that says something; TensorFlow's go on with tracebacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:600] if lines else 'no message'}"


def _in_tensorflow(error: BaseException) -> bool:
    """An import of TensorFlow that fails is its fault too, wherever it was raised."""
    modules: List[Any] = [sys.modules.get(name) for name in _TENSORFLOW]
    return modules[0] is None or any(raised_by(error, module) for module in modules)


def _failure(timed_out: bool, status: int, failed: Optional[Dict[str, Any]]) -> Optional[str]:
    if timed_out:
        return "timeout"
    if failed is not None:
        return str(failed["failure"])
    if status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}" if status else None


def _ask_where(child: "subprocess.Popen[bytes]") -> None:
    child.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WORDS_S)
