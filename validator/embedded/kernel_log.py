"""Keep what is printed to stderr while a notebook runs, by cell.

TensorFlow's C++ code writes its log to file descriptor 2 and not to `sys.stderr`. This puts a pipe in front
of that descriptor, keeps what comes through it, and passes it on to where it went before: a terminal, or
ipykernel's own pipe, which shows it below the cell. What was printed earlier is not known.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import os
import select
import termios
import threading
import time

#: Bytes that are kept of a cell's output, at its beginning and at its end.
_HEAD, _TAIL = 64 << 10, 192 << 10
#: How many cells with output are kept: TensorFlow prints most at its import, so the first ones stay.
_FIRST_CELLS, _CELLS = 16, 64
#: A pipe that is full blocks its writer, who may hold the lock that the reader needs. This is the most that
#: an unprivileged process may ask for (pipe(7)).
_PIPE_BYTES = 1 << 20
#: Seconds to wait for what was written but not read yet.
_DRAIN_S = 1.0
_STDERR = 2


class Output:
    """The beginning and the end of a cell's output."""

    def __init__(self) -> None:
        self._head = self._tail = b""
        self._dropped = False

    def add(self, data: bytes) -> None:
        room = _HEAD - len(self._head)
        self._head += data[:room]
        rest = self._tail + data[room:]
        self._dropped = self._dropped or len(rest) > _TAIL
        self._tail = rest[-_TAIL:]

    def __bool__(self) -> bool:
        return bool(self._head)

    def text(self) -> str:
        """Return the text, without the partial line after a gap."""
        last = self._tail.partition(b"\n")[2] if self._dropped else self._tail
        between = b"\n" if self._dropped else b""
        return (self._head + between + last).decode("utf-8", errors="replace")


class KernelLog:
    """The outputs by the number of their cell, which is known for certain only when the cell has ended.

    What is printed between two cells, as by a thread, belongs to the one that ended last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: dict[int, Output] = {}
        self._current = Output()
        self._number: int | None = None
        self._process = os.getpid()
        self._reader = self._saved = -1

    def start(self) -> None:
        """Put the pipe in front of stderr. Raises OSError if there is no stderr."""
        self._saved = os.dup(_STDERR)
        self._reader, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.dup2(writer, _STDERR)
        os.close(writer)
        threading.Thread(target=self._follow, daemon=True, name="validator-kernel-log").start()
        # Nobody reads the pipe after the end of Python's threads, but libraries may still print.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Remove the pipe. It is still read while a child process holds it."""
        atexit.unregister(self.stop)
        # A fork has no thread that reads, and what the lock protects may be locked there for ever.
        if self._process == os.getpid() and self._saved >= 0:
            os.dup2(self._saved, _STDERR)
            self._drain()

    def begin(self) -> None:
        """Say that a cell begins."""
        self._drain()
        with self._lock:
            self._keep()
            self._current, self._number = Output(), None

    def end(self, cell: int | None) -> None:
        """Say that the cell has ended. cell: its number; None if it has none, as those of a widget."""
        self._drain()
        with self._lock:
            self._number = cell
            self._keep()

    def add(self, text: str) -> None:
        """Add text that does not come through the pipe, such as a traceback."""
        self._drain()
        with self._lock:
            self._current.add(text.encode("utf-8", errors="replace"))

    def outputs(self, cell: int) -> dict[int, str]:
        """Return the text by the number of its cell. cell: the one that runs."""
        self._drain()
        with self._lock:
            self._number = cell
            self._keep()
            return {number: output.text() for number, output in self._outputs.items()}

    def _keep(self) -> None:
        if self._current and self._number is not None:
            self._outputs[self._number] = self._current
        if len(self._outputs) > _CELLS:
            del self._outputs[sorted(self._outputs)[_FIRST_CELLS]]

    def _follow(self) -> None:
        """Read until no process has the pipe any more."""
        waiting = select.poll()
        waiting.register(self._reader, select.POLLIN)
        while True:
            # Wait without the lock, but keep and pass on with it: `_drain` is done when both are.
            waiting.poll()
            with self._lock:
                data = os.read(self._reader, _PIPE_BYTES)
                if not data:
                    for descriptor in (self._reader, self._saved):
                        os.close(descriptor)
                    self._reader = self._saved = -1
                    return
                self._current.add(data)
                with contextlib.suppress(OSError):
                    while data:
                        data = data[os.write(self._saved, data) :]

    def _drain(self) -> None:
        """Wait until everything that was written is kept and passed on."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            with self._lock:
                if self._reader < 0 or not _waiting_bytes(self._reader):
                    return
            time.sleep(0.001)


def _waiting_bytes(reader: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, count)
    return count[0]
