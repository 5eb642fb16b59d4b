"""The pipes from a worker: messages to the supervisor, and printed output.

Messages are one JSON object a line, on a pipe that nothing else uses: TensorFlow and the libraries under it
print to standard output.

Supervisor to worker, once, on its standard input: `{checks: [id], facts, lock}`. Worker to supervisor:
`{event: imported, duration_s}` or `{event: import_failed, missing, error, traceback}` where the stage needs
TensorFlow, then `{event: begin, check}` and `{event: end, check, outcome, statement, problems, evidence,
duration_s}` for each check, then `{event: done}`. In between, a check may send `{event: doing, statement}`,
which is shown to people, and `{event: settled, outcome, statement, problems, evidence, limit}`: its result
whatever happens from here on, and the limit that the end of the process would be.
"""

import contextlib
import json
import os
import sys
from typing import Any, Dict, Iterator, List

IMPORTED, IMPORT_FAILED, BEGIN, END, DONE = "imported", "import_failed", "begin", "end", "done"
DOING, SETTLED = "doing", "settled"


def send(descriptor: int, event: str, **fields: Any) -> None:
    """Write one whole line."""
    # Evidence may hold values that JSON can't (a NumPy scalar): text is better than an error.
    line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """Write a line to the log before and after what is done meanwhile, so that its lines can be attributed.

    name: `check ID`, or `provoked by ID` for what a check makes TensorFlow print on purpose. The lines are
    written around Python's buffer, as those of TensorFlow's libraries are. `docs/reference/report.md`
    describes them, and `doctor` leaves out what was provoked.
    """
    _mark(f"begin: {name}")
    try:
        yield
    finally:
        _mark(f"end: {name}")


def _mark(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"[probe {text}]\n".encode())


class Lines:
    """Assembles messages from what comes through the pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """Return the messages that are complete now. Drop any line that is not a message."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [message for message in map(_message, whole) if message]


def _message(line: bytes) -> Dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) and "event" in message else {}


def tail(text: str, lines: int = 1, width: int = 600) -> str:
    """Return the last `lines` lines that are not empty, each cut at `width` characters."""
    kept: List[str] = [line.rstrip()[:width] for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])


class Capture:
    """Keeps the first and the last half of `limit` bytes of output, and counts the bytes between."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total += len(data)
        room = self.limit // 2 - len(self._head)
        self._head += data[: max(room, 0)]
        self._tail += data[max(room, 0) :]
        del self._tail[: max(0, len(self._tail) - (self.limit - self.limit // 2))]

    @property
    def truncated(self) -> bool:
        """Return whether anything was dropped."""
        return self.total > len(self._head) + len(self._tail)

    @property
    def text(self) -> str:
        """Return what was kept, with a line in the middle that says how much is missing."""
        dropped = self.total - len(self._head) - len(self._tail)
        cut = f"\n[... {dropped} bytes left out ...]\n".encode() if dropped else b""
        return bytes(self._head + cut + self._tail).decode(errors="replace")

    def recent(self, size: int) -> str:
        """Return the last `size` bytes that came in, as far as they were kept."""
        return bytes((self._head + self._tail)[-size:] if size else b"").decode(errors="replace")
