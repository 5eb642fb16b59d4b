"""The functions that the page calls. Questions and answers are JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..compat.facts import UnknownNameError
from ..errors import InputError, ValidatorError
from ..reports.printable import printable

# Errors that name the field of a question that somebody has to change.


class RejectedField(InputError):
    """The value of a field can't be used.

    field: the name of the field. nearest: known names near the one that was written.
    """

    def __init__(self, field: str, error: InputError) -> None:
        super().__init__(str(error), hint=error.hint)
        self.field = field
        self.nearest = error.nearest if isinstance(error, UnknownNameError) else ()


@contextlib.contextmanager
def rejecting(field: str) -> Iterator[None]:
    """Name the field in the InputError that its text causes."""
    try:
        yield
    except InputError as error:
        raise RejectedField(field, error) from error


def ask(
    question: str, first: bytes | memoryview = b"", last: bytes | memoryview = b"", total: int = 0
) -> str:
    """Return the answer to a question, or `{"error": {"message": …, "hint": …, "field": …, "nearest": […]}}`.

    question: an object whose `kind` is `works` or `why`; see the two modules for its other members.
    first, last, total: the text that `why` is about; see `diagnosis.text.Ends`.
    """
    asked = json.loads(question)
    try:
        if asked["kind"] == "works":
            from .what_works import what_works

            answer = what_works(asked)
        else:
            from ..diagnosis.text import Ends
            from .why import why

            answer = why(Ends(bytes(first), bytes(last), total), asked["name"])
    except ValidatorError as error:
        rejected = error if isinstance(error, RejectedField) else None
        answer = {
            "error": {
                "message": str(error),
                "hint": error.hint or "",
                "field": rejected.field if rejected else "",
                "nearest": list(rejected.nearest) if rejected else [],
            }
        }
    return json.dumps(cleaned(answer))


def cleaned(value: Any) -> Any:
    """Return a value in whose texts controls, and characters that change the text direction, are codes."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value


def limits() -> str:
    """Return how many bytes of a text are read at most, from each end of a longer one."""
    from ..diagnosis.text import LIMIT

    return json.dumps({"whole": LIMIT, "each": LIMIT // 2})
