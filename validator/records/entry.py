"""What a store's index knows of a record: enough to search by, without its report."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.record import Record, Verdict


@dataclass(frozen=True)
class Entry:
    """One record, in short.

    finished: UTC, ISO 8601, as in the record.
    keyed: whether the record answers for a key. A report that was brought from elsewhere answers for none.
    """

    id: str
    cell: str
    verdict: Verdict
    finished: str
    keyed: bool

    @classmethod
    def of(cls, record: Record) -> Entry:
        return cls(record.id, record.cell, record.verdict, record.finished, bool(record.key))
