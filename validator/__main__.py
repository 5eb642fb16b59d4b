"""`python -m validator`: turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import FrameType

from .errors import EXIT_INTERRUPTED, EXIT_MISSING, ValidatorError


def main() -> None:
    """Run the command line and exit."""
    # A runner that ends a job sends SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    from .cli import run

    try:
        code = run()
        sys.stdout.flush()
    except ValidatorError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
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
