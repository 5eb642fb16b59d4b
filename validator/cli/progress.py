"""Shows a run as it goes: one live line an image on a terminal, plain lines elsewhere. All to stderr."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..model.spec import ImageSpec
from ..pipeline.run import Event, Phase, Result
from ..reports.printable import one_line, printable

#: Between two plain lines about the same phase of the same image, in seconds; -v shows every line.
_QUIET_S = 20.0


@dataclass
class _State:
    phase: Phase
    since: float
    detail: str = ""
    said: float = 0.0


class Progress:
    """Listens to a run's events. Use as a context manager."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._states: dict[ImageSpec, _State] = {}
        self._guard = threading.Lock()
        self._live = (
            Live(get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True)
            if self._console.is_terminal
            else None
        )
        self._chatty = logging.getLogger().isEnabledFor(logging.INFO)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        """Called from any thread."""
        with self._guard:
            if event.phase is Phase.DONE:
                self._states.pop(event.spec, None)
                self._done += 1
                if event.result:
                    self._say(f"{event.spec}: {sentence(event.result)}")
                return
            now = time.monotonic()
            state = self._states.get(event.spec)
            new = state is None or state.phase is not event.phase
            if state is None or new:
                state = self._states[event.spec] = _State(event.phase, now)
            state.detail = event.detail
            if self._live is None and (new or self._chatty or now - state.said >= _QUIET_S):
                state.said = now
                self._say(f"{event.spec}: {event.phase.value} {event.detail}".rstrip())

    def _say(self, line: str) -> None:
        clock = _clock(time.monotonic() - self._started)
        self._console.print(Text(printable(f"[{clock}] {line}")), soft_wrap=True)

    def _table(self) -> Table:
        now = time.monotonic()
        table = Table.grid(padding=(0, 1))
        header = f"{self._done} of {self._total} done, {_clock(now - self._started)}"
        table.add_row(Text(header, style="bold"), "", "", "")
        with self._guard:
            for spec, state in self._states.items():
                detail = Text(one_line(state.detail), no_wrap=True, overflow="ellipsis", style="dim")
                table.add_row(spec.identifier, state.phase.value, _clock(now - state.since), detail)
        return table


def sentence(result: Result) -> str:
    """`unproven: no GPU`, `skipped: no python3.12 here`, `unchanged: unproven: no GPU`…"""
    if result.record is not None:
        verdict = f"{result.record.verdict.value}: {result.record.reason}"
        return verdict if result.status.value == "measured" else f"{result.status.value}: {verdict}"
    return f"{result.status.value}: {result.detail}" if result.detail else result.status.value


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
