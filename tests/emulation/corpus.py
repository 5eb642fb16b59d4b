"""The logs that were made: `tests/data/logs/<tensorflow>/<fault>.log`, and `index.yaml` over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from .faults import Fault, faults

LOGS = Path(__file__).parents[1] / "data" / "logs"
INDEX = LOGS / "index.yaml"
#: Rows of logs that no fault here makes: `file`, `tensorflow`, `fault`, `cause`, `made`.
BY_HAND = LOGS / "by-hand.yaml"


@dataclass(frozen=True)
class Row:
    """One log: its file below `tests/data/logs`, the cause to be named first, and how it was made."""

    file: str
    tensorflow: str | None
    fault: str
    cause: str
    made: str


def path(fault: Fault, tensorflow: str) -> Path:
    """Where the log of a fault in a release lies."""
    return LOGS / tensorflow / f"{fault.id}.log"


def write(fault: Fault, tensorflow: str, log: str) -> None:
    """Keep a log."""
    target = path(fault, tensorflow)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(log, encoding="utf-8")


def rows() -> list[Row]:
    """The index, as it is committed."""
    return [Row(**row) for row in yaml.safe_load(INDEX.read_text(encoding="utf-8"))]


def write_index() -> None:
    """Write the index over what is there."""
    found = [
        Row(
            str(path(fault, release).relative_to(LOGS)),
            release,
            fault.id,
            fault.cause_in(release),
            _made(fault),
        )
        for fault in faults().values()
        for release in fault.releases
        if path(fault, release).exists()
    ]
    if BY_HAND.exists():
        found += [Row(**row) for row in yaml.safe_load(BY_HAND.read_text(encoding="utf-8"))]
    head = "# Written by `python -m tests.emulation --write`; rows of other logs come from by-hand.yaml.\n"
    body = yaml.safe_dump(
        [vars(row) for row in sorted(found, key=lambda row: row.file)], sort_keys=False, width=110
    )
    INDEX.write_text(head + body, encoding="utf-8")


def _made(fault: Fault) -> str:
    """How, in a few words."""
    if fault.command:
        return "the command really run"
    under = f"under our {', '.join(fault.stubs)}" if fault.stubs else "without a driver"
    return f"the wheel really run, {under}: {fault.title}"
