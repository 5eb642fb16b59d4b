"""Notice new records and the progress of runs, and tell the open pages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import ValidatorError
from ..model.codec import encode
from ..model.run_progress import RUNNING, RunProgress
from ..reports.page.details import clean
from ..reports.printable import printable
from .events import Events

#: Seconds between two looks.
PAUSE_S = 1.0
#: The characters of a fault that pages show.
_LENGTH = 300


class Watch:
    """Look for news in a thread. Use it as a context manager.

    version: returns a text that changes with the records. update: writes the page of a version.
    progress: returns the runs, the newest first. say: is told each new fault once.
    """

    def __init__(
        self,
        events: Events,
        version: Callable[[], str],
        update: Callable[[str], None],
        progress: Callable[[], list[RunProgress]],
        say: Callable[[str], None],
        shown: str,
    ) -> None:
        self._events = events
        self._version, self._update, self._progress, self._say = version, update, progress, say
        self._shown = shown
        self._fault = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._events.tell("page", self._shown)
        self.check()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Check once. Report a fault of the store; the next check tries again."""
        self._events.tell("progress", [_state(run) for run in _shown_runs(self._progress())])
        try:
            version = self._version()
            if version != self._shown:
                self._update(version)
                self._shown = version
                self._events.tell("page", version)
            fault = ""
        except ValidatorError as error:
            fault = printable(str(error))[:_LENGTH]
        except Exception as error:  # without this thread, the page would stay as it is and say nothing
            fault = printable(f"{type(error).__name__}: {error}")[:_LENGTH]
        if fault != self._fault:
            self._fault = fault
            self._events.tell("trouble", fault)
            if fault:
                self._say(f"error: {fault}")

    def _keep_looking(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.check()


def _shown_runs(runs: list[RunProgress]) -> list[RunProgress]:
    """Return the runs that go on, or the newest that ended."""
    return [run for run in runs if run.state == RUNNING] or runs[:1]


def _state(run: RunProgress) -> object:
    """Return a run as JSON, without what only tells this machine's processes apart."""
    state = clean(encode(run))
    return {name: value for name, value in state.items() if name not in ("run", "boot")}
