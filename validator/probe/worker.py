"""The process that runs the checks of one stage and streams their outcomes.

In the `tensorflow` stage it imports TensorFlow first, before it is even told what to do: the import takes
seconds, in which the supervisor collects the facts.
"""

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Tuple

from . import protocol
from .check import ERROR, FAIL, SKIP, TENSORFLOW, Check, Context, Result
from .text import tail

_PR_SET_PDEATHSIG = 1


def main(stage: str, descriptor: int, registry: str) -> None:
    """Run the stage and leave. `registry`: the module whose `CHECKS` there are."""
    os.set_inheritable(descriptor, False)
    faulthandler.enable(all_threads=False)
    die_with_parent()
    module = _import_tensorflow(descriptor) if stage == TENSORFLOW else None
    message = json.loads(sys.stdin.readline())
    checks = {check.id: check for check in importlib.import_module(registry).CHECKS}
    context = Context(message["facts"], message["lock"], module)
    for identifier in message["checks"]:
        protocol.send(descriptor, protocol.BEGIN, check=identifier)
        start = time.monotonic()
        result = answer(checks[identifier], context)
        protocol.send(
            descriptor,
            protocol.END,
            check=identifier,
            outcome=result.outcome,
            summary=result.summary,
            evidence=result.evidence,
            duration_s=time.monotonic() - start,
        )
    protocol.send(descriptor, protocol.DONE)
    # Without running destructors: TensorFlow's take time, and may crash after all was said.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def die_with_parent() -> None:
    """However the process that started this one ends, nothing of the probe is left behind (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def answer(check: Check, context: Context) -> Result:
    """The check's result. What TensorFlow raises is a failure of TensorFlow; anything else, of the check."""
    reason = check.unmet(context)
    if reason is not None:
        return Result(SKIP, reason)
    try:
        return check.run(context)
    except Exception as error:  # a check must not take the others along, whatever it raises
        outcome = FAIL if raised_by(error, context.tensorflow) else ERROR
        evidence = {"exception": type(error).__name__, "traceback": traceback.format_exc().splitlines()[-30:]}
        return Result(outcome, f"{type(error).__name__}: {_first_line(error)}", evidence)


def raised_by(error: BaseException, module: Any) -> bool:
    """Whether the frame that raised belongs to the package `module`."""
    directory = os.path.dirname(getattr(module, "__file__", None) or "")
    frames = traceback.extract_tb(error.__traceback__)
    return bool(directory and frames and frames[-1].filename.startswith(directory + os.sep))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"


def _import_tensorflow(descriptor: int) -> Any:
    start = time.monotonic()
    try:
        module = importlib.import_module("tensorflow")
    except BaseException as error:  # an import may raise anything, SystemExit included
        protocol.send(descriptor, protocol.IMPORT_FAILED, **_import_fault(error))
        os._exit(0)
    protocol.send(descriptor, protocol.IMPORTED, duration_s=time.monotonic() - start)
    return module


def _import_fault(error: BaseException) -> Dict[str, Any]:
    return {
        "missing": isinstance(error, ModuleNotFoundError) and error.name == "tensorflow",
        "error": tail(f"{type(error).__name__}: {error}"),
        "traceback": traceback.format_exc().splitlines()[-30:],
    }


def command(stage: str, descriptor: int, registry: str) -> List[str]:
    """The command line that starts this worker."""
    return interpreter("worker", stage, descriptor, registry)


def interpreter(module: str, *arguments: Any) -> List[str]:
    """The command line that calls `main(*arguments)` of a module of this package with the same interpreter,
    from archive or source tree. The arguments are strings and numbers."""
    root, package = _origin()
    program = (
        f"import sys; sys.path[:] = [{root!r}] + [entry for entry in sys.path if entry];"
        f" from {package}.{module} import main; main(*{arguments!r})"
    )
    return [sys.executable, "-u", "-c", program]


def _origin() -> Tuple[str, str]:
    """Where this package was imported from (a directory, or the archive), and its name there."""
    package = __name__.rpartition(".")[0]
    root = os.path.abspath(__file__)
    for _ in __name__.split("."):
        root = os.path.dirname(root)
    return root, package
