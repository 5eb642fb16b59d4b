"""`python -m validator`: turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType

from .errors import EXIT_INTERRUPTED, EXIT_MISSING, ValidatorError
from .reports.printable import printable


def main() -> None:
    """Run the command line and exit."""
    # A runner that ends a job sends SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    # A terminal of another encoding than the text's is no reason to end without an answer.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    from .cli import run

    try:
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
        code = EXIT_INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print(
            f"error: no space left on the disk that holds {error.filename or 'the output'}", file=sys.stderr
        )
        code = EXIT_MISSING
    sys.exit(code)


def _drop_output() -> None:
    # Python writes at exit what stdout still holds, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
