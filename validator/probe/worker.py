"""The process that runs the checks of one stage and streams their outcomes.

In the `tensorflow` stage it imports TensorFlow first, before it is told what to do: the import takes seconds,
and the supervisor collects the facts in the meantime.
"""

import ctypes
import faulthandler
import functools
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Tuple

from ..problems import problem, statement
from . import pipes
from .check import ERROR, FAIL, TENSORFLOW, Check, Context, Result, skipped
from .hlo import telling_line
from .pipes import tail

_PR_SET_PDEATHSIG = 1
#: Characters of an exception's message that a problem quotes.
_MESSAGE = 300


def main(stage: str, descriptor: int, registry: str) -> None:
    """Run the stage and exit. registry: the module that holds `CHECKS`."""
    os.set_inheritable(descriptor, False)
    faulthandler.enable(all_threads=False)
    die_with_parent()
    module = _import_tensorflow(descriptor) if stage == TENSORFLOW else None
    message = json.loads(sys.stdin.readline())
    checks = {check.id: check for check in importlib.import_module(registry).CHECKS}
    tell = functools.partial(pipes.send, descriptor)
    context = Context(message["facts"], message["lock"], module, tuple(message["added"]), tell)
    for identifier in message["checks"]:
        pipes.send(descriptor, pipes.BEGIN, check=identifier)
        start = time.monotonic()
        with pipes.section(f"check {identifier}"):
            result = answer(checks[identifier], context)
        pipes.send(
            descriptor,
            pipes.END,
            check=identifier,
            outcome=result.outcome,
            statement=result.statement,
            problems=result.problems,
            evidence=result.evidence,
            duration_s=time.monotonic() - start,
        )
    pipes.send(descriptor, pipes.DONE)
    # Without running destructors: TensorFlow's destructors take time, and may crash after everything was
    # reported.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however it ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def answer(check: Check, context: Context) -> Result:
    """Return the check's result. An exception that TensorFlow raised is a failure, any other an error."""
    reason = check.unmet(context)
    if reason is not None:
        return skipped(reason)
    try:
        return check.run(context)
    except Exception as error:  # whatever a check raises must not affect the others
        fields = {"exception": type(error).__name__, "message": telling_line(error)[:_MESSAGE]}
        evidence = {"traceback": traceback.format_exc().splitlines()[-30:]}
        # A check of the user's own imports TensorFlow itself.
        tensorflow = context.tensorflow or sys.modules.get("tensorflow")
        if from_tensorflow(error, tensorflow):
            return Result(FAIL, None, [problem("tensorflow_raised", **fields)], evidence)
        return Result(ERROR, statement("check_raised", **fields), [], evidence)


def from_tensorflow(error: BaseException, tensorflow: Any) -> bool:
    """Return whether TensorFlow raised it, or Keras, which is part of it, however it is packaged."""
    keras = (sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules)
    return any(raised_by(error, module) for module in (tensorflow, *keras))


def raised_by(error: BaseException, module: Any) -> bool:
    """Return whether the frame that raised belongs to the package `module`."""
    directory = os.path.dirname(getattr(module, "__file__", None) or "")
    frames = traceback.extract_tb(error.__traceback__)
    return bool(directory and frames and frames[-1].filename.startswith(directory + os.sep))


def load_tensorflow() -> Any:
    """Import TensorFlow without the garbage collector, which would take a fifth of the time."""
    gc.disable()
    try:
        return importlib.import_module("tensorflow")
    finally:
        gc.enable()


def _import_tensorflow(descriptor: int) -> Any:
    start = time.monotonic()
    try:
        module = load_tensorflow()
    except BaseException as error:  # an import may raise anything, SystemExit included
        pipes.send(descriptor, pipes.IMPORT_FAILED, **_import_fault(error))
        os._exit(0)
    pipes.send(descriptor, pipes.IMPORTED, duration_s=time.monotonic() - start)
    return module


def _import_fault(error: BaseException) -> Dict[str, Any]:
    return {
        "missing": isinstance(error, ModuleNotFoundError) and error.name == "tensorflow",
        "error": tail(f"{type(error).__name__}: {error}"),
        "traceback": traceback.format_exc().splitlines()[-30:],
    }


def command(stage: str, descriptor: int, registry: str) -> List[str]:
    """Return the command line that starts a worker."""
    return interpreter("worker", stage, descriptor, registry)


def interpreter(module: str, *arguments: Any) -> List[str]:
    """Return the command line that calls `main(*arguments)` of a module of this package.

    It uses the same interpreter, and works from the archive and from a source tree. The arguments are strings
    and numbers.
    """
    root, package = _origin()
    program = (
        f"import sys; sys.path[:] = [{root!r}] + [entry for entry in sys.path if entry];"
        f" from {package}.{module} import main; main(*{arguments!r})"
    )
    return [sys.executable, "-u", "-c", program]


def _origin() -> Tuple[str, str]:
    """Return where this package was imported from (a directory or the archive) and its name there."""
    package = __name__.rpartition(".")[0]
    root = os.path.abspath(__file__)
    for _ in __name__.split("."):
        root = os.path.dirname(root)
    return root, package
