"""The answers of the diagnosis to the entries of the corpus."""

from __future__ import annotations

import functools
import io

from validator.diagnosis import diagnose_file, diagnose_report
from validator.model.diagnosis import Diagnosis
from validator.model.report import read_report

from ..corpus import reader


@functools.cache
def diagnosed(name: str) -> Diagnosis:
    """Return the diagnosis of an entry, made once however many tests ask for it."""
    entry = reader.entry(name)
    if entry.kind == "reports":
        return diagnose_report(read_report(entry.content()))
    return diagnose_file(io.BytesIO(entry.content()), name)


def answer(diagnosis: Diagnosis) -> str:
    """Return the code of the first cause, or what else `Entry.cause` may be."""
    if diagnosis.causes:
        return diagnosis.causes[0].code
    return reader.UNKNOWN if diagnosis.unknown else reader.BENIGN
