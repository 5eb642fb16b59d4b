"""The errors that a user can see, with their exit codes.

Every error says what happened, where, and what to do next. Code outside `validator.cli` neither exits nor
prints: it raises one of these errors, and `validator.__main__` turns it into a message and an exit code.
"""

from __future__ import annotations

#: Everything succeeded.
EXIT_OK = 0
#: A cell, a check or a prediction failed, or a problem was found.
EXIT_FAILED = 1
#: The input is wrong: the command line, the matrix or a lock.
EXIT_INPUT = 2
#: Something that is needed is not available: engine, registry, network, disk space.
EXIT_MISSING = 3
#: Interrupted by Ctrl-C (128 + SIGINT, as shells report it).
EXIT_INTERRUPTED = 130
#: The reader of the output is gone, as in `| head` (128 + SIGPIPE, as shells report it).
EXIT_PIPE = 141


class ValidatorError(Exception):
    """An error whose message is meant for the user.

    hint: what to do next, printed on a line of its own.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class InputError(ValidatorError):
    """The input is wrong: the command line, the matrix, a lock or an imported file. Nothing was changed."""

    exit_code = EXIT_INPUT


class MissingError(ValidatorError):
    """Something that is needed is not available: engine, registry, network, disk space."""

    exit_code = EXIT_MISSING


class BuildError(ValidatorError):
    """An environment or image could not be built. `log` holds the last lines of the builder's output."""

    def __init__(self, message: str, *, hint: str | None = None, log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log
