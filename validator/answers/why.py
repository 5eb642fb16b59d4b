"""Answer "Why is my GPU not used?" with the diagnosis that `doctor` gives for the same text."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..diagnosis import diagnose_ends
from ..diagnosis.notebook import is_notebook
from ..diagnosis.text import Ends
from ..model.diagnosis import WAYS, Diagnosis, Remedy
from ..reports.diagnosis_words import environment_facts, headline, missing_facts
from .errors import rejecting

#: The bytes that are read at each end of a long text. Python's own regular expressions take 5 to 15 seconds
#: for that many in a browser, which does not have RE2.
_EACH = 1 << 20


def why(ends: Ends, name: str) -> dict[str, Any]:
    """Return the diagnosis of a text, and the words in which the page shows it.

    Of a text of more than 2 MiB, only the first and the last MiB are read, which the answer says.

    name: of the file, for errors. Raises RejectedField if it is empty or not text.
    """
    with rejecting("text"):
        diagnosis = diagnose_ends(_within_reach(ends), name)
    return {"diagnosis": dataclasses.asdict(diagnosis), "words": _words(diagnosis)}


def _within_reach(ends: Ends) -> Ends:
    """Return the first and the last part of a long text. Most of a notebook is pictures, so it is kept."""
    if ends.total <= 2 * _EACH or (not ends.last and is_notebook(ends.first)):
        return ends
    return Ends(ends.first[:_EACH], (ends.last or ends.first)[-_EACH:], ends.total)


def _words(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "headline": "" if diagnosis.causes else headline(diagnosis),
        "headlines": [cause.headline for cause in diagnosis.causes],
        "ways": [[_way(remedy) for remedy in cause.remedies] for cause in diagnosis.causes],
        "facts": list(environment_facts(diagnosis)),
        "missing": list(missing_facts(diagnosis)),
    }


def _way(remedy: Remedy) -> str:
    way = WAYS.get(remedy.way, remedy.way)
    return f"{way[:1].upper()}{way[1:]}"
