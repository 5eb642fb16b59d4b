"""The logs that the faults made: files and entries of kind `captured` in `tests/corpus/`."""

from __future__ import annotations

from pathlib import Path

from ..corpus import reader
from ..corpus.reader import Entry
from .faults import Fault, faults


def name(fault: Fault, tensorflow: str) -> str:
    """Return the name of the entry for a fault in a release."""
    return f"captured/{tensorflow}/{fault.id}.log"


def path(fault: Fault, tensorflow: str) -> Path:
    """Return the file for the log of a fault in a release."""
    return reader.HERE / name(fault, tensorflow)


def write(fault: Fault, tensorflow: str, log: str) -> None:
    """Keep a log."""
    target = path(fault, tensorflow)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(log, encoding="utf-8")


def write_index() -> None:
    """Write the rows of the logs that are there into the index of the corpus, and keep all other rows."""
    found = [
        Entry(
            name(fault, release),
            fault.cause_in(release),
            tensorflow=release,
            fault=fault.id,
            made=_made(fault),
        )
        for fault in faults().values()
        for release in fault.releases
        if path(fault, release).exists()
    ]
    others = [entry for entry in reader.entries() if entry.fault not in faults()]
    reader.write([*found, *others])


def _made(fault: Fault) -> str:
    """Return a short description of how the log was made."""
    if fault.command:
        return "the command really run"
    under = f"under our {', '.join(fault.stubs)}" if fault.stubs else "without a driver"
    return f"the wheel really run, {under}: {fault.title}"
