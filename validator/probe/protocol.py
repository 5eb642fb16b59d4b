"""The lines between the supervisor and a worker: one JSON object a line, on a pipe that nothing else uses.

Not standard output: TensorFlow and the libraries under it print there.

Supervisor to worker, once, on its standard input: `{checks: [id], facts, lock}`. Worker to supervisor:
`{event: imported, duration_s}` or `{event: import_failed, missing, error, traceback}` where the stage needs
TensorFlow, then `{event: begin, check}` and `{event: end, check, outcome, statement, problems, evidence,
duration_s}` for each check, then `{event: done}`.
"""

import json
import os
from typing import Any, Dict, List

IMPORTED, IMPORT_FAILED, BEGIN, END, DONE = "imported", "import_failed", "begin", "end", "done"


def send(descriptor: int, event: str, **fields: Any) -> None:
    """Write one whole line."""
    # Evidence may hold values that JSON can't (a NumPy scalar): text is better than an error.
    line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


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
