"""Tell all open pages the newest state of what they show, as server-sent events.

Every event holds a whole state, and a new client gets all states at once. So a client that lost its
connection misses nothing when it comes back.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

#: Seconds until a silent connection gets a comment, so that both ends notice when the other is gone.
BEAT_S = 15.0
#: Milliseconds until a client that lost its connection tries again.
_RETRY_MS = 2000


class Events:
    """The newest state of each kind. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: By kind: the number of the change, and the text of the event.
        self._states: dict[str, tuple[int, str]] = {}
        self._number = 0
        self._closed = False

    def tell(self, kind: str, state: Any) -> None:
        """Set the state of a kind. Nobody is told of a state that is the same as before."""
        # In ASCII and on one line, as JSON is without an indent.
        text = f"event: {kind}\ndata: {json.dumps(state, separators=(',', ':'))}\n\n"
        with self._changed:
            if self._states.get(kind, (0, ""))[1] != text:
                self._number += 1
                self._states[kind] = (self._number, text)
                self._changed.notify_all()

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stream(self, beat_s: float = BEAT_S) -> Iterator[bytes]:
        """Yield what to send to a client, until the events are closed."""
        seen = 0
        yield f"retry: {_RETRY_MS}\n\n".encode()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._number > seen, beat_s)  # noqa: B023
                if self._closed:
                    return
                news = sorted(state for state in self._states.values() if state[0] > seen)
                seen = self._number
            yield "".join(text for _, text in news).encode() or b": still here\n\n"
