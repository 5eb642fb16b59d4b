"""Answer "Why is my GPU not used?" with the diagnosis that `doctor` gives for the same text."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..diagnosis import diagnose_ends
from ..diagnosis.text import PASTE_LINES, Ends, is_notebook
from ..model.diagnosis import WAYS
from ..reports.diagnosis_words import environment_facts, headline, missing_facts
from .browser import rejecting

#: The bytes that are read at each end of a long text, and of one with few lines. A browser does not have RE2.
#: Python's own regular expressions read 0.33 to 0.7 MB/s there, and 0.17 on a machine that is very busy. So
#: this takes less than the 60 seconds after which the page gives up.
_EACH, _EACH_OF_FEW = 4 << 20, 1 << 20


def why(ends: Ends, name: str) -> dict[str, Any]:
    """Return the diagnosis of a text, and the words in which the page shows it.

    If a text is longer than 8 MiB, only its first and its last 4 MiB are read, and the answer says so. If it
    is longer than 2 MiB and has so few lines that it may be a paste, its first and its last MiB are read.

    name: of the file, for errors. Raises RejectedField if it is empty or not text.
    """
    with rejecting("text"):
        diagnosis = diagnose_ends(_within_reach(ends), name)
    ways = [[WAYS.get(one.way, one.way) for one in cause.remedies] for cause in diagnosis.causes]
    words = {
        "headline": "" if diagnosis.causes else headline(diagnosis),
        "headlines": [cause.headline for cause in diagnosis.causes],
        "ways": [[f"{way[:1].upper()}{way[1:]}" for way in of_cause] for of_cause in ways],
        "facts": list(environment_facts(diagnosis)),
        "missing": list(missing_facts(diagnosis)),
    }
    return {"diagnosis": dataclasses.asdict(diagnosis), "words": words}


def _within_reach(ends: Ends) -> Ends:
    """Return the first and the last part of a long text. Most of a notebook is pictures, so it is kept."""
    if ends.total <= 2 * _EACH_OF_FEW or (not ends.last and is_notebook(ends.first)):
        return ends
    each = _EACH
    if ends.total <= 2 * _EACH:
        if ends.first.count(b"\n") > PASTE_LINES:
            return ends
        # The lines of a paste are also read joined, in case something wrapped them, which takes much longer.
        each = _EACH_OF_FEW
    return Ends(ends.first[:each], (ends.last or ends.first)[-each:], ends.total)
