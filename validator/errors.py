"""The errors a person can meet, and the exit code of each.

Every error says what is wrong, where, and what to do about it. Nothing below `validator.cli` exits or
prints: it raises one of these, and `validator.__main__` turns it into a message and an exit code.
"""

from __future__ import annotations

#: All is well.
EXIT_OK = 0
#: A cell, a check or a prediction failed, or a fault was seen.
EXIT_FAILED = 1
#: The input is wrong: usage, matrix or lock.
EXIT_INPUT = 2
#: What was needed is not there: engine, registry, network, disk space.
EXIT_MISSING = 3
#: Ended by Ctrl-C (128 + SIGINT, as shells report it).
EXIT_INTERRUPTED = 130
#: Whoever read the output has left, as `head` does (128 + SIGPIPE, as shells report it).
EXIT_PIPE = 141


class ValidatorError(Exception):
    """An error whose message is meant for a person.

    `hint` says what to do next; it is printed on a line of its own.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class InputError(ValidatorError):
    """The input is wrong: usage, matrix, lock or an imported file. Nothing was touched."""

    exit_code = EXIT_INPUT


class MissingError(ValidatorError):
    """Something that was needed is not there: engine, registry, network, disk space."""

    exit_code = EXIT_MISSING


class BuildError(ValidatorError):
    """An environment or image did not build. `log` holds the last lines that the builder printed."""

    def __init__(self, message: str, *, hint: str | None = None, log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log
