"""Answer the questions of the page: what works on a machine, and why a GPU is not used.

This package runs in the reader's browser, so it imports only the standard library, and parts of this project
that do the same. `predict` gives the first answer too. Questions and answers are JSON. The page's script
inserts the texts of answers and decides nothing.

What a question needs is imported when it is asked: a page starts faster, and `predict` needs only the errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..compat.facts import UnknownNameError
from ..errors import InputError, ValidatorError
from ..reports.printable import clean

if TYPE_CHECKING:
    from ..diagnosis.text import Ends


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

    question: an object whose `kind` is `works` or `why`; see the functions for its other members.
    first, last, total: the text that `why` is about; see `diagnosis.text.Ends`.
    """
    asked = json.loads(question)
    try:
        if asked["kind"] == "works":
            from .what_works import what_works

            answer = what_works(asked)
        else:
            from ..diagnosis.text import Ends

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
    return json.dumps(clean(answer))


def limits() -> str:
    """Return how many bytes of a text are read at most, from each end of a longer one."""
    from ..diagnosis.text import LIMIT

    return json.dumps({"whole": LIMIT, "each": LIMIT // 2})


#: The bytes that are read at each end of a long text, and of one with few lines. A browser does not have RE2.
#: Python's own regular expressions read 0.33 to 0.7 MB/s there, and 0.17 on a machine that is very busy. So
#: this takes less than the 60 seconds after which the page gives up.
_EACH, _EACH_OF_FEW = 4 << 20, 1 << 20


def why(ends: Ends, name: str) -> dict[str, Any]:
    """Return the diagnosis of a text that `doctor` gives too, and the words in which the page shows it.

    If a text is longer than 8 MiB, only its first and its last 4 MiB are read, and the answer says so. If it
    is longer than 2 MiB and has so few lines that it may be a paste, its first and its last MiB are read.

    name: of the file, for errors. Raises RejectedField if it is empty or not text.
    """
    from ..diagnosis import diagnose_ends
    from ..model.diagnosis import WAYS
    from ..reports.printable import environment_facts, fact_names, headline

    with rejecting("text"):
        diagnosis = diagnose_ends(_within_reach(ends), name)
    ways = [[WAYS.get(one.way, one.way) for one in cause.remedies] for cause in diagnosis.causes]
    words = {
        "headline": "" if diagnosis.causes else headline(diagnosis),
        "headlines": [cause.headline for cause in diagnosis.causes],
        "ways": [[f"{way[:1].upper()}{way[1:]}" for way in of_cause] for of_cause in ways],
        "facts": list(environment_facts(diagnosis)),
        "missing": list(fact_names(diagnosis.missing)),
    }
    return {"diagnosis": dataclasses.asdict(diagnosis), "words": words}


def _within_reach(ends: Ends) -> Ends:
    """Return the first and the last part of a long text. Most of a notebook is pictures, so it is kept."""
    from ..diagnosis.text import PASTE_LINES, Ends, is_notebook

    if ends.total <= 2 * _EACH_OF_FEW or (not ends.last and is_notebook(ends.first)):
        return ends
    each = _EACH
    if ends.total <= 2 * _EACH:
        if ends.first.count(b"\n") > PASTE_LINES:
            return ends
        # The lines of a paste are also read joined, in case something wrapped them, which takes much longer.
        each = _EACH_OF_FEW
    return Ends(ends.first[:each], (ends.last or ends.first)[-each:], ends.total)
