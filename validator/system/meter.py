"""Count the bytes of a transfer from several threads, and report amount, rate and time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds between two reports.
_INTERVAL_S = 0.5


class Meter:
    """The progress of one transfer.

    doing: begins each report, such as `downloading 3 wheels`. total: bytes, or None if unknown.
    report: receives the reports, at most two a second.
    """

    def __init__(self, doing: str, total: int | None, report: Callable[[str], object]) -> None:
        self._doing, self._total, self._report = doing, total, report
        self._done = self._skipped = 0
        self._started = time.monotonic()
        self._reported = 0.0
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Count bytes that were transferred, or take some back with a negative number."""
        self._count(size, 0)

    def skip(self, size: int) -> None:
        """Count bytes that were there already. They don't count for the rate."""
        self._count(size, size)

    def _count(self, size: int, skipped: int) -> None:
        with self._guard:
            self._done += size
            self._skipped += skipped
            now = time.monotonic()
            if now - self._reported < _INTERVAL_S:
                return
            self._reported = now
            text = self.text(now - self._started)
        self._report(text)

    def text(self, seconds: float) -> str:
        """Return the report after this many seconds: `…: 1.2 of 2.6 GB, 95 MB/s, 15 s left`."""
        known = self._total is not None and self._total >= self._done
        amount = f"{self._done / 1e9:.2f}" + (
            f" of {self._total / 1e9:.2f} GB" if known and self._total else " GB"
        )
        rate = (self._done - self._skipped) / seconds if seconds > 0 else 0.0
        if rate <= 0:
            return f"{self._doing}: {amount}"
        left = f", {_duration((self._total - self._done) / rate)} left" if known and self._total else ""
        return f"{self._doing}: {amount}, {rate / 1e6:.0f} MB/s{left}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
