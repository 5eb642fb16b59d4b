"""The one function that the page calls. Questions and answers are JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..compat.errors import UnknownNameError
from ..diagnosis.text import LIMIT, Ends
from ..errors import ValidatorError
from ..reports.printable import printable
from .what_works import what_works
from .why import why

#: Bytes, or a view of an array of the browser.
Buffer = bytes | memoryview


def ask(question: str, first: Buffer = b"", last: Buffer = b"", total: int = 0) -> str:
    """Return the answer to a question, or `{"error": {"message": …, "hint": …, "nearest": […]}}`.

    question: an object whose `kind` is `works` or `why`; see the two modules for its other members.
    first, last, total: the text that `why` is about; see `diagnosis.text.Ends`.
    """
    asked = json.loads(question)
    answers: Mapping[str, Callable[[], dict[str, Any]]] = {
        "works": lambda: what_works(asked),
        "why": lambda: why(Ends(bytes(first), bytes(last), total), asked["name"]),
    }
    try:
        answer = answers[asked["kind"]]()
    except ValidatorError as error:
        nearest = list(error.nearest) if isinstance(error, UnknownNameError) else []
        answer = {"error": {"message": str(error), "hint": error.hint or "", "nearest": nearest}}
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
    return json.dumps({"whole": LIMIT, "each": LIMIT // 2})
