"""Show a run of a fleet: how many cells of each host class are waiting, running, done, failed, lost, missing.

A terminal shows a live table. Other outputs get a line when the numbers change, at most every few seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from rich.table import Table

from ..fleet.submitter import WORDS
from .live import LiveTable

#: Seconds between two plain lines.
_INTERVAL_S = 20.0


class FleetProgress(LiveTable):
    """Show the tallies of a run. Use it as a context manager."""

    def __init__(self) -> None:
        self._tally: Mapping[str, Counter[str]] = {}
        self._printed = 0.0
        self._last = ""
        super().__init__(lambda: tally_table(self._tally, self.clock()), 2)

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        """Show the numbers of cells by host class and state."""
        self._tally = tally
        now = time.monotonic()
        if self.is_shown or now - self._printed < _INTERVAL_S:
            return
        line = "; ".join(f"{name}: {_numbers(tally[name])}" for name in sorted(tally))
        if line != self._last:
            self._last, self._printed = line, now
            self.say(line)


def tally_table(tally: Mapping[str, Counter[str]], title: str = "host class") -> Table:
    """Return a table with one row per host class and one column per state that occurs."""
    words = [word for word in WORDS if any(counts[word] for counts in tally.values())]
    table = Table(title, *words, box=None, pad_edge=False)
    for name in sorted(tally):
        table.add_row(name, *(str(tally[name][word] or "") for word in words))
    return table


def _numbers(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
