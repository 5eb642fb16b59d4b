"""Show a run of a fleet: how many cells of each host class are waiting, running, done, failed, lost, missing.

A terminal shows a live table. Other outputs get a line when the numbers change, at most every few seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..fleet.submitter import WORDS
from ..reports.printable import printable

#: Seconds between two plain lines.
_INTERVAL_S = 20.0


class FleetProgress:
    """Show the tallies of a run. Use it as a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._tally: Mapping[str, Counter[str]] = {}
        self._started = time.monotonic()
        self._printed = 0.0
        self._last = ""
        self._live = (
            Live(get_renderable=self._table, console=self._console, refresh_per_second=2, transient=True)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> FleetProgress:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        """Print a separate line."""
        self._console.print(Text(printable(f"[{self._clock()}] {line}")), soft_wrap=True)

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        """Show the numbers of cells by host class and state."""
        self._tally = tally
        now = time.monotonic()
        if self._live or now - self._printed < _INTERVAL_S:
            return
        line = "; ".join(f"{name}: {_numbers(tally[name])}" for name in sorted(tally))
        if line != self._last:
            self._last, self._printed = line, now
            self.say(line)

    def _table(self) -> Table:
        return tally_table(self._tally, self._clock())

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 60:02d}:{seconds % 60:02d}"


def tally_table(tally: Mapping[str, Counter[str]], title: str = "host class") -> Table:
    """Return a table with one row per host class and one column per state that occurs."""
    words = [word for word in WORDS if any(counts[word] for counts in tally.values())]
    table = Table(title, *words, box=None, pad_edge=False)
    for name in sorted(tally):
        table.add_row(name, *(str(tally[name][word] or "") for word in words))
    return table


def _numbers(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
