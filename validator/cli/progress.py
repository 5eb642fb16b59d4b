"""Show a run of `build-matrix`: its progress on stderr while it runs, and its results afterwards.

A terminal shows one live line per image. Other outputs get plain lines.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..fleet.submitter import WORDS
from ..model.record import Verdict
from ..model.spec import ImageSpec
from ..pipeline.run import Event, Phase, Result, Status
from ..reports.printable import one_line, printable
from ..reports.terminal import rows_table, styled

# A table on standard error that is drawn again while work goes on, with plain lines above it.


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

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    def say(self, line: str) -> None:
        """Print a line with the time since the beginning."""
        self._console.print(Text(printable(f"{self._label}[{self.clock()}] {line}")), soft_wrap=True)

    def clock(self) -> str:
        """Return the time since the beginning, as `MM:SS`."""
        return clock(time.monotonic() - self._started)


def clock(seconds: float) -> str:
    """Return a duration as `MM:SS`."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


#: The seconds between two plain lines about the same phase of an image. With -v, every line is shown.
_INTERVAL_S = 20.0


@dataclass
class _State:
    """since, changed, printed: when the phase began, the detail came, and a line was last printed."""

    phase: Phase
    since: float
    detail: str = ""
    changed: float = 0.0
    printed: float = 0.0


class Progress(LiveTable):
    """Show the events of a run. Use it as a context manager.

    total: the number of images. label: the beginning of each line.
    """

    def __init__(self, total: int, label: str = "") -> None:
        self._total = total
        self._finished: set[ImageSpec] = set()
        self._states: dict[ImageSpec, _State] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._verbose = logging.getLogger().isEnabledFor(logging.INFO)
        super().__init__(self._table, 4, label)

    def __call__(self, event: Event) -> None:
        """Show an event. May be called from any thread."""
        with self._lock:
            if event.phase is Phase.DONE:
                self._states.pop(event.spec, None)
                self._finished.add(event.spec)
                if event.result:
                    self.say(f"{event.spec}: {sentence(event.result)}")
                return
            now = time.monotonic()
            state = self._states.get(event.spec)
            new = state is None or state.phase is not event.phase
            if state is None or new:
                state = self._states[event.spec] = _State(event.phase, now)
            state.detail, state.changed = event.detail, now
            if not self.is_shown and (new or self._verbose or now - state.printed >= _INTERVAL_S):
                self._say_state(event.spec, state, now)

    def __enter__(self) -> Progress:
        if not self.is_shown:
            self._thread.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        super().__exit__(*error)

    def _run(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            while not self._ended.wait(1.0):
                self.beat()

    def beat(self) -> None:
        """Say again what is being done, if there was nothing new to say for some time."""
        with self._lock:
            now = time.monotonic()
            for spec, state in self._states.items():
                if now - state.printed >= _INTERVAL_S:
                    self._say_state(spec, state, now)

    def _say_state(self, spec: ImageSpec, state: _State, now: float) -> None:
        lasting = f" (for {clock(now - state.changed)})" if now - state.changed >= 1 else ""
        state.printed = now
        self.say(f"{spec}: {state.phase.value} {state.detail}".rstrip() + lasting)

    def _table(self) -> Table:
        now = time.monotonic()
        table = Table.grid(padding=(0, 1))
        header = f"{len(self._finished)} of {self._total} done, {self.clock()}"
        table.add_row(Text(header, style="bold"), "", "", "")
        with self._lock:
            for spec, state in self._states.items():
                detail = Text(one_line(state.detail), no_wrap=True, overflow="ellipsis", style="dim")
                table.add_row(spec.identifier, state.phase.value, clock(now - state.since), detail)
        return table


def sentence(result: Result) -> str:
    """Return a phrase such as `unproven: no GPU` or `unchanged: unproven: no GPU`."""
    if result.record is not None:
        verdict = f"{result.record.verdict.value}: {result.record.reason}"
        return verdict if result.status is Status.MEASURED else f"{result.status.value}: {verdict}"
    return f"{result.status.value}: {result.detail}" if result.detail else result.status.value


def results_table(results: Sequence[Result]) -> Table:
    """Return a table with one row per image."""
    rows: list[tuple[str, str | Text, str]] = []
    for result in results:
        record = result.record
        if record is None:
            rows.append((result.spec.identifier, result.status.value, result.detail))
        else:
            note = "" if result.status is Status.MEASURED else f" ({result.detail})"
            rows.append((result.spec.identifier, styled(record.verdict.value), record.reason + note))
    return rows_table(("image", "result", "why"), rows, whole=True)


def totals(results: Sequence[Result]) -> str:
    """Return `1 built, 1 validated, 0 unchanged`, followed by other results that occurred."""

    counts = Counter(result.status for result in results)
    measured = [result.record for result in results if result.record and result.status is Status.MEASURED]
    always = {
        "built": sum(result.built for result in results),
        "validated": sum(record.verdict is not Verdict.BROKEN for record in measured),
        "unchanged": counts[Status.UNCHANGED],
    }
    others = {
        "pushed": sum(result.published is not None and result.published.sent for result in results),
        "failed": sum(result.failed for result in results),
        "refused": counts[Status.REFUSED],
        "skipped": counts[Status.SKIPPED],
        "missing": counts[Status.MISSING],
        "stopped": counts[Status.STOPPED],
    }
    shown = [*always.items(), *((name, number) for name, number in others.items() if number)]
    return ", ".join(f"{number} {name}" for name, number in shown)


# Show a run of a fleet: how many cells of each host class are waiting, running, done, failed, lost, missing.
#
# A terminal shows a live table. Other outputs get a line when the numbers change, at most every few seconds.


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
        line = "; ".join(
            f"{name}: {', '.join(f'{counts[word]} {word}' for word in WORDS if counts[word])}"
            for name, counts in sorted(tally.items())
        )
        if line != self._last:
            self._last, self._printed = line, now
            self.say(line)


def tally_table(tally: Mapping[str, Counter[str]], title: str = "host class") -> Table:
    """Return a table with one row per host class and one column per state that occurs."""
    words = [word for word in WORDS if any(counts[word] for counts in tally.values())]
    rows = [(name, *(str(tally[name][word] or "") for word in words)) for name in sorted(tally)]
    return rows_table((title, *words), rows)
