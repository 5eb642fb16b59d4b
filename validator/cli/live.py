"""A table on standard error that is drawn again while work goes on, with plain lines above it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..reports.printable import printable

_Table = TypeVar("_Table", bound="LiveTable")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError again. rich would raise SystemExit in the thread that prints."""
        raise


class LiveTable:
    """Use it as a context manager. Only a terminal shows the table.

    table: returns its present state, and is called at once. per_second: how often it is drawn.
    label: the beginning of each line.
    """

    def __init__(self, table: Callable[[], Table], per_second: int, label: str = "") -> None:
        self._label = label
        self._console = _Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._live = (
            Live(get_renderable=table, console=self._console, refresh_per_second=per_second, transient=True)
            if self._console.is_terminal
            else None
        )

    @property
    def is_shown(self) -> bool:
        """True on a terminal."""
        return self._live is not None

    def __enter__(self: _Table) -> _Table:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        """Print a line with the time since the beginning."""
        self._console.print(Text(printable(f"{self._label}[{self.clock()}] {line}")), soft_wrap=True)

    def clock(self) -> str:
        """Return the time since the beginning, as `MM:SS`."""
        return clock(time.monotonic() - self._started)


def clock(seconds: float) -> str:
    """Return a duration as `MM:SS`."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
