"""`python -m validator`: turns errors into messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from .errors import EXIT_INTERRUPTED, ValidatorError


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
        # The reader of our output has gone (`| head`); Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
