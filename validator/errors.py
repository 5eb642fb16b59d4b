"""The errors that a user can see, with their exit codes.

Every error says what happened, where, and what to do next. Code outside `validator.cli` neither exits nor
prints: it raises one of these errors, and `validator.__main__` turns it into a message and an exit code.
"""

from __future__ import annotations

#: Everything succeeded.
EXIT_OK = 0
#: A cell, a check or a prediction failed, or `doctor` or `lint` found a problem.
EXIT_FAILED = 1
#: The input is wrong: the command line, the matrix or a lock.
EXIT_INPUT = 2
#: Something that is needed is not available: engine, registry, network, disk space.
EXIT_MISSING = 3
#: Interrupted by Ctrl-C (128 + SIGINT, as shells report it).
EXIT_INTERRUPTED = 130
#: The reader of the output is gone, as in `| head` (128 + SIGPIPE, as shells report it).
EXIT_PIPE = 141
#: What each means to a user, as Markdown. The documentation shows this table.
EXIT_CODES = {
    EXIT_OK: "all is well",
    EXIT_FAILED: "a cell, a check or a prediction failed (`unknown` is not a failure); or `doctor` saw a "
    "fault, whether or not it could name the cause",
    EXIT_INPUT: "the input is wrong: usage, matrix, lock, log, report, or the file given as `--python`",
    EXIT_MISSING: "something that was needed is missing: an engine, a registry, the network, disk space, a "
    "store that was named, or the libraries of this package; or every image that was asked for had to be "
    "skipped",
    EXIT_INTERRUPTED: "Ctrl-C: the command ended what was running, kept what was finished, and said how to "
    "go on",
    EXIT_PIPE: "the reader of the output closed the pipe, as `head` does",
}


class ValidatorError(Exception):
    """An error whose message is meant for the user. hint: what to do next, printed on a line of its own."""

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
