"""The facts and their sources as rows."""

from __future__ import annotations

from collections.abc import Iterator

from ..compat import builds, facts
from .tables import Fact, Source

#: The columns of a fact of their own. Everything else is its content.
_COLUMNS = ("id", "status", "sources")
#: The file whose rows were read in wheels. The source of such a fact has the id of the fact.
_BUILDS = "builds"


def fact_rows() -> Iterator[Fact]:
    """Yield every fact, in the order of the data files."""
    for file, section, row in facts.all_rows():
        known = builds.fact_of(row) if file == _BUILDS else facts.fact(row)
        yield Fact(
            id=known.id,
            file=file,
            section=section,
            status=row["status"],
            sources=(known.id,) if file == _BUILDS else tuple(row["sources"]),
            content={name: value for name, value in row.items() if name not in _COLUMNS},
        )


def source_rows() -> Iterator[Source]:
    """Yield every source that a fact names, sorted by id."""
    texts: dict[str, str] = {}
    for file, _, row in facts.all_rows():
        if file == _BUILDS:
            read = builds.fact_of(row)
            texts[read.id] = read.source
        else:
            texts |= {source: facts.source_line(source) for source in row["sources"]}
    for source, text in sorted(texts.items()):
        is_address = text.startswith("https://") and " " not in text
        yield Source(source, text, text if is_address else None)
