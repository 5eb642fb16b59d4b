"""A script: run the probe inside a container on a node, and print its report so that a cut is noticed.

    python3 inside.py --limit SECONDS [--task N --workers LIST] [--termination FILE] -- ARGUMENTS OF THE PROBE

It runs `probe.pyz` next to this file, in that directory. Standard output gets two frames (`protocol.py`
describes them): `report`, the probe's standard output, if there is any, and `ending`, JSON about how the
probe ended. The termination message file gets the same JSON and survives the container's log.

A unit of several tasks runs this script once on each of its nodes, with the number of the task from 0 and the
addresses of all in that order (`HOST:PORT,HOST:PORT`), which the probe's check `multi_worker` uses. Task 0
measures. The others run only that check, and the names of their frames end with their number.

The exit status is 0 if a report was written and 1 if not, whatever the checks found. After SIGTERM nothing
is framed: whoever ended the probe did not let it finish. The script uses only the standard library of Python
3.9, and nothing of this project.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

#: No report is this large. More would fill the memory.
LARGEST = 64 << 20
#: Bytes of a termination message, by Kubernetes' own limit.
LARGEST_MESSAGE = 4096
#: Bytes in a line of a frame. In base64 and with its name, the line fits into one write that no other
#: process can interrupt (PIPE_BUF, 4096 bytes).
_LINE = 2400
#: Seconds between SIGTERM and SIGKILL for a probe that exceeds its limit.
_GRACE_S = 10.0
_LINES_KEPT = 50
#: Seconds that a worker waits for the others: task 0 runs the required checks first.
_WORKER_WAIT_S = 600


def frame(name: str, content: bytes) -> bytes:
    """Return the lines that carry bytes through a log."""
    lines = [b"", f"tfm-frame {name} {len(content)} {hashlib.sha256(content).hexdigest()}".encode()]
    for start in range(0, len(content), _LINE):
        lines.append(b"tfm-data %s %s" % (name.encode(), base64.b64encode(content[start : start + _LINE])))
    return b"\n".join([*lines, b"tfm-end " + name.encode(), b""])


class Probe:
    """One run of the probe. report: its standard output. overflow: it was more than LARGEST."""

    def __init__(self, directory: Path, arguments: Sequence[str], limit_s: float) -> None:
        self.report = bytearray()
        self.overflow = False
        self.timed_out = False
        self.started = _now()
        self._limit_s = limit_s
        self._last: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        command = [sys.executable, str(directory / "probe.pyz"), *arguments]
        # A group of its own, so that its children can be ended with it.
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def wait(self) -> dict[str, Any]:
        """Wait for the end, within the limit, and return the `ending`."""
        assert self._process.stdout is not None and self._process.stderr is not None
        readers = [
            threading.Thread(target=self._collect, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._pass_on, args=(self._process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            status = self._process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            self.timed_out = True
            self.end(signal.SIGTERM)
            try:
                status = self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self.end(signal.SIGKILL)
                status = self._process.wait()
        # Children that the probe left behind would keep the pipes open.
        self.end(signal.SIGKILL)
        for reader in readers:
            reader.join(_GRACE_S)
        if self.timed_out or self.overflow:
            # A report that was written after the limit would be one of an unknown part of the checks.
            self.report.clear()
        content = bytes(self.report)
        written = bool(content.strip())
        return {
            "status": status,
            "timed_out": self.timed_out,
            "overflow": self.overflow,
            "limit_s": self._limit_s,
            "last_line": next((line for line in reversed(self._last) if line.strip()), "")[:500],
            "report": hashlib.sha256(content).hexdigest() if written else None,
            "length": len(content) if written else 0,
            "started": self.started,
            "finished": _now(),
        }

    def _collect(self, stream: IO[bytes]) -> None:
        # read1 returns what is there, without waiting for a full block.
        for block in iter(lambda: stream.read1(1 << 16), b""):  # type: ignore[attr-defined]
            if self.overflow:
                continue
            self.report += block
            if len(self.report) > LARGEST:
                self.overflow = True
                self.report.clear()

    def _pass_on(self, stream: IO[bytes]) -> None:
        for line in iter(lambda: stream.readline(8192), b""):
            self._last.append(line.decode("utf-8", "replace").rstrip())
            with contextlib.suppress(OSError):
                os.write(2, line if line.endswith(b"\n") else line + b"\n")

    def end(self, number: int) -> None:
        """Send a signal to the probe and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    of_probe = given[split + 1 :]
    parser = argparse.ArgumentParser(prog="inside", description="Run the probe and frame its report.")
    parser.add_argument("--limit", type=float, default=1900.0, metavar="SECONDS", help="end the probe then")
    parser.add_argument("--task", type=int, default=0, metavar="N", help="number of this task of the unit")
    parser.add_argument("--workers", metavar="LIST", help="the addresses of all tasks of the unit")
    parser.add_argument("--termination", metavar="FILE", help="also write the ending to this file")
    options = parser.parse_args(given[:split])
    directory = Path(__file__).resolve().parent
    # As process 1 of a container, a Python without a handler would ignore SIGTERM.
    signal.signal(signal.SIGTERM, _terminated)
    if options.workers:
        # probe/workers.py reads them.
        os.environ["VALIDATOR_WORKERS"] = options.workers
        os.environ["VALIDATOR_WORKER_RANK"] = str(options.task)
        os.environ["VALIDATOR_WORKER_WAIT_S"] = str(_WORKER_WAIT_S)
        of_probe += ["--only", "multi_worker"] if options.task else []
    probe = Probe(directory, of_probe, options.limit)
    try:
        ending = probe.wait()
    except BaseException:
        probe.end(signal.SIGKILL)
        raise
    text = json.dumps(ending, sort_keys=True).encode()
    if options.termination:
        # The report does not depend on this file.
        with contextlib.suppress(OSError):
            Path(options.termination).write_bytes(text[:LARGEST_MESSAGE])
    suffix = "" if options.task == 0 else f".{options.task}"
    written = frame(f"report{suffix}", bytes(probe.report)) if ending["report"] else b""
    written += frame(f"ending{suffix}", text)
    # Line by line, so that no other writer of the same log gets into a line.
    for line in written.splitlines(keepends=True):
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(1, rest) :]
    return 0 if ending["report"] else 1


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _terminated(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
