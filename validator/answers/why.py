"""Answer "Why is my GPU not used?" with the diagnosis that `doctor` gives for the same text."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..diagnosis import diagnose_ends
from ..diagnosis.text import Ends
from ..model.diagnosis import WAYS, Diagnosis, Remedy
from ..reports.diagnosis_words import environment_facts, headline, missing_facts


def why(ends: Ends, name: str) -> dict[str, Any]:
    """Return the diagnosis of a text, and the words in which the page shows it.

    name: of the file, for errors. Raises InputError if it is empty or not text.
    """
    diagnosis = diagnose_ends(ends, name)
    return {"diagnosis": dataclasses.asdict(diagnosis), "words": _words(diagnosis)}


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
