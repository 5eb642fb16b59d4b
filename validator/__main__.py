"""`python -m validator`: turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import importlib.util
import io
import os
import shlex
import signal
import sys
from types import FrameType

from .errors import EXIT_INTERRUPTED, EXIT_MISSING, EXIT_PIPE, MissingError, ValidatorError
from .reports.printable import printable

#: The oldest Python that runs this; the probe runs on older ones.
_PYTHON = (3, 10)
#: New objects after which garbage is looked for.
_GARBAGE = 200_000
#: What the dependencies in pyproject.toml are imported as.
NEEDED = (
    "click",
    "docker",
    "re2",
    "jinja2",
    "packaging",
    "pydantic",
    "yaml",
    "requests",
    "rich",
    "sqlalchemy",
    "alembic",
    "psycopg",
    "pynvml",
    "uv",
)


def main() -> None:
    """Run the command line and exit."""
    # By default it looks for garbage after every 700 objects, a twentieth of the time of a short command.
    gc.set_threshold(_GARBAGE)
    _hold_streams()
    # A runner that ends a job sends SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    # A terminal of another encoding than the text's is no reason to end without an answer.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

    try:
        _refuse_bare_python()
        from .cli import run

        code = run()
        sys.stdout.flush()
    except ValidatorError as error:
        # What went wrong may be told with words of a log, a container or a file.
        print(f"error: {printable(str(error))}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {printable(error.hint)}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`).
        _drop_output()
        code = EXIT_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print(
            f"error: no space left on the disk that holds {error.filename or 'the output'}", file=sys.stderr
        )
        code = EXIT_MISSING
    sys.exit(code)


def _hold_streams() -> None:
    """Put /dev/null where a standard stream is closed (`>&-`).

    Python then has None for the stream, and the next file that is opened would get its number: what a child
    process prints would land in that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _refuse_bare_python() -> None:
    """The Python that trains seldom has what this needs, and should not get it: that would change it."""
    if sys.version_info < _PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        lack = f"is Python {found}; this needs {'.'.join(map(str, _PYTHON))} or newer"
    else:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if not missing:
            return
        lack = f"lacks what this needs: {', '.join(missing)}"
    raise MissingError(
        f"{sys.executable} {lack}",
        hint="run ./scripts/environment once, then use .venv/bin/python; to look at this Python's TensorFlow:"
        f" .venv/bin/python -m validator doctor --python {shlex.quote(sys.executable)}",
    )


def _drop_output() -> None:
    # Python writes at exit what stdout still holds, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
