"""Read what a function writes, while it writes: the function runs in a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

#: The size of the blocks, and how many of them may wait for the reader.
BLOCK = 1 << 20
_WAITING = 4
_POLL_S = 0.2

T = TypeVar("T")


class _Abandoned(BaseException):
    """Ends a function whose reader is gone. Not an Exception, so that the function does not handle it."""


class Produced(Generic[T]):
    """The bytes that `produce` passes to its argument. Use it as a context manager.

    skip: the number of bytes to leave out at the beginning. The function ends when the context does.
    """

    def __init__(self, produce: Callable[[Callable[[bytes], object]], T], skip: int = 0) -> None:
        self._produce, self._skip = produce, skip
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._over = threading.Event()
        self._buffer = bytearray()
        self._result: list[T] = []
        #: What the function raised.
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="produced", daemon=True)

    def __enter__(self) -> Produced[T]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Return the bytes in blocks of this size, a multiple of `BLOCK`; the last one may be shorter.

        Raises what the function raises.
        """
        gathered: list[bytes] = []
        while (block := self._queue.get()) is not None:
            gathered.append(block)
            if len(gathered) * BLOCK >= size:
                yield b"".join(gathered)
                gathered.clear()
        if self.error is not None:
            raise self.error
        if gathered:
            yield b"".join(gathered)

    @property
    def result(self) -> T:
        """What the function returned. Only after the last block."""
        return self._result[0]

    def _run(self) -> None:
        with contextlib.suppress(_Abandoned):
            try:
                self._result.append(self._produce(self._write))
                if self._buffer:
                    self._put(bytes(self._buffer))
            except (Exception, KeyboardInterrupt) as error:
                self.error = error
            self._put(None)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        if self._skip:
            left_out = min(self._skip, len(view))
            self._skip -= left_out
            view = view[left_out:]
        while len(self._buffer) + len(view) >= BLOCK:
            room = BLOCK - len(self._buffer)
            self._put(bytes(view[:room]) if not self._buffer else bytes(self._buffer + view[:room]))
            self._buffer.clear()
            view = view[room:]
        self._buffer += view

    def _put(self, block: bytes | None) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(block, timeout=_POLL_S)
                return
        raise _Abandoned
