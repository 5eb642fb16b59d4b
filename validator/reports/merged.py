"""Render what a merge of artifacts refused, for the summary of a workflow's run and for its issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.diagnosis import shortened
from ..records.artifacts import Merged, Refused
from .markdown import code, table
from .printable import counted

#: Rows of a table. More is counted.
_ARTIFACTS = 100
#: The characters of a name or reason that are shown.
_LENGTH = 300


def summary(merged: Merged, planned: Sequence[str]) -> str:
    """Return Markdown: the cells of the plan without a record, and the artifacts that were refused."""
    missing = [f"- {code(cell)}" for cell in planned if cell not in merged.cells]
    lines = ["### Cells without a record from tonight", "", *(missing or ["None."]), ""]
    if merged.refused:
        lines += ["### Artifacts that were refused", "", *_rows(merged.refused), ""]
    return "\n".join(lines) + "\n"


def refused_part(refused: Sequence[Refused]) -> str:
    """Return the part of an issue about the artifacts that were refused."""
    artifacts = "1 artifact was" if len(refused) == 1 else f"{len(refused)} artifacts were"
    first = f"{artifacts} refused tonight, so the records in it were not merged."
    return "\n".join(["## Refused", "", first, "", *_rows(refused)]) + "\n"


def _rows(refused: Sequence[Refused]) -> Iterator[str]:
    yield from table(
        ("artifact", "why it was refused"),
        (
            (code(shortened(each.artifact, _LENGTH)), code(shortened(each.reason, _LENGTH)))
            for each in refused[:_ARTIFACTS]
        ),
    )
    if len(refused) > _ARTIFACTS:
        yield ""
        yield f"And {counted(len(refused) - _ARTIFACTS, 'artifact')} more."
