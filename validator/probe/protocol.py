"""The lines between the supervisor and a worker: one JSON object a line, on a pipe that nothing else uses.

Not standard output: TensorFlow and the libraries under it print there.

Supervisor to worker, once, on its standard input: `{checks: [id], facts, lock}`.
Worker to supervisor: `{event: imported, duration_s}` or `{event: import_failed, error, ...}` where the stage
needs TensorFlow, then `{event: begin, check}` and `{event: end, check, outcome, summary, evidence}` for each
check, then `{event: done}`.
"""

import json
import os
from typing import Any, Dict, List

IMPORTED, IMPORT_FAILED, BEGIN, END, DONE = "imported", "import_failed", "begin", "end", "done"


def send(descriptor: int, event: str, **fields: Any) -> None:
    """Write one line, whole."""
    # Evidence may hold what JSON has no name for (NaN, a NumPy scalar): as text rather than as a fault.
    line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


class Lines:
    """Puts together the messages out of what comes through the pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """The messages that are complete. What a crash cut short never is, and anything else is dropped."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [message for message in map(_message, whole) if message]


def _message(line: bytes) -> Dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) and "event" in message else {}
