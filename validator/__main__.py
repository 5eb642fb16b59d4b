"""`python -m validator`: run a command, and turn its errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import importlib.util
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable

from .errors import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_PIPE, MissingError, ValidatorError
from .reports.printable import printable
from .resources import is_installed

#: The oldest Python that this tool runs on. The probe supports older ones.
_PYTHON = (3, 10)
#: The number of new objects that triggers a garbage collection.
_GARBAGE = 200_000
#: The most characters of a path in the message of an OSError.
_LONGEST = 200
#: What is wrong with a path itself. Anything else, such as a missing permission, depends on the machine.
_WRONG_PATH = {
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.EEXIST, errno.EINVAL,
    errno.EFBIG, errno.EILSEQ,
}  # fmt: skip
#: The import names of the dependencies in pyproject.toml.
NEEDED = (
    "click", "cyclonedx", "docker", "isal", "re2", "jinja2", "markupsafe", "msgspec", "yaml", "requests",
    "rich", "sqlalchemy", "psycopg", "urllib3", "packageurl", "pynvml", "uv", "zstandard",
)  # fmt: skip


def main(command: Callable[[], int] | None = None) -> None:
    """Run the command line, or a function that returns an exit code, and exit."""
    # The default, 700 objects, takes 5 % of the time of a short command.
    gc.set_threshold(_GARBAGE)
    _hold_streams()
    # CI runners end a job with SIGTERM; clean up as after Ctrl-C. A shell that started this in the background
    # ignores Ctrl-C for its children, who inherit that.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Don't fail if the terminal's encoding lacks a character.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

    # Without the dependencies, `as_started` can't be imported, so commands are printed unchanged.
    with_commands: Callable[[str], str] = str
    try:
        _refuse_bare_python()
        from .cli import as_started, run

        with_commands = as_started
        code = (command or run)()
        sys.stdout.flush()
    except ValidatorError as error:
        # The message may quote a log, a container or a file.
        print(f"error: {with_commands(printable(str(error)))}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {with_commands(printable(error.hint))}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone (`| head`).
        _drop_output()
        code = EXIT_PIPE
    except OSError as error:
        # Without a path, it is not about a file that a person named, but a fault of this program.
        if error.errno != errno.ENOSPC and not isinstance(error.filename, str | bytes):
            raise
        path = printable(os.fsdecode(error.filename or "the output"))
        path = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
        if error.errno == errno.ENOSPC:
            _drop_output()
            message = f"no space left on the disk that holds {path}"
        else:
            message = f"{path}: {printable(error.strerror or type(error).__name__)}"
        print(f"error: {message}", file=sys.stderr)
        code = EXIT_INPUT if error.errno in _WRONG_PATH else EXIT_MISSING
    except Exception as error:
        if not _is_interruption(error):
            raise
        print("stopped", file=sys.stderr)
        code = EXIT_INTERRUPTED
    _leave_stuck_threads(code)
    sys.exit(code)


def _hold_streams() -> None:
    """Replace a standard stream that is closed (`>&-`) by /dev/null.

    Otherwise the next file to be opened would get the stream's number, and the output of child processes
    would end up in that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _refuse_bare_python() -> None:
    """Raise MissingError if this Python is too old or lacks the dependencies.

    The Python that trains models usually lacks them, and nothing must be installed into it.
    """
    if sys.version_info < _PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        reason = f"is Python {found}, but Python {'.'.join(map(str, _PYTHON))} or newer is needed"
    else:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if not missing:
            return
        reason = f"lacks these packages: {', '.join(missing)}"
    if is_installed():
        made = "install the tool in an environment of its own: pipx install tensorflow-gpu-matrix"
        program = "validator"
    else:
        made = "run ./scripts/environment once, then use .venv/bin/validator"
        program = ".venv/bin/validator"
    raise MissingError(
        f"{sys.executable} {reason}",
        hint=f"{made}. To examine this Python's TensorFlow:"
        f" {program} doctor --python {shlex.quote(sys.executable)}",
    )


def _leave_stuck_threads(code: int) -> None:
    """Exit at once if threads still wait for a network after Ctrl-C: at exit, Python would wait for them."""
    # Most commands have no threads and don't load the module.
    pools = sys.modules.get(f"{__package__}.system.pools")
    if pools is not None and pools.stuck_threads():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _drop_output() -> None:
    # At exit, Python flushes stdout and would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_interruption(error: BaseException | None) -> bool:
    """Return True if an error was raised while a KeyboardInterrupt was handled.

    `with condition: condition.wait()` raises RuntimeError if the signal arrives between its releasing and
    acquiring the lock, because the lock that `with` wants to release is not held then.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


if __name__ == "__main__":
    main()
