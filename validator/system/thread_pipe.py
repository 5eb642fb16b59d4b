"""Hand bytes from the threads that write them to the one that reads them, a few blocks at a time."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

#: The least size of the blocks, and how many of them may wait for the reader.
BLOCK = 1 << 20
_WAITING = 4
_POLL_S = 0.2

Made = TypeVar("Made")


class Abandoned(BaseException):
    """Ends a writer whose reader is gone. Not an Exception, so that functions in between don't handle it."""


class CutError(Exception):
    """The writer gave up before the end."""


class Pipe:
    """Bytes on their way from writers, of which only one writes at a time, to a reader."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._abandoned = threading.Event()
        self._buffer = bytearray()
        self._cut = False

    def write(self, data: bytes) -> None:
        """Pass on bytes. Raises Abandoned if nobody reads them any more."""
        if len(data) >= BLOCK and not self._buffer:
            self._put(data)
            return
        self._buffer += data
        if len(self._buffer) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Pass on all bytes so far, so that the reader need not wait for the rest of a block."""
        if self._buffer:
            self._put(bytes(self._buffer))
            self._buffer.clear()

    def end(self) -> None:
        """Say that there are no more bytes."""
        self.flush()
        self._put(None)

    def cut(self) -> None:
        """Say that the rest of the bytes will not come."""
        self._cut = True
        with contextlib.suppress(Abandoned):
            self._put(None)

    def blocks(self) -> Iterator[bytes]:
        """Return the bytes in blocks as they come.

        Raises CutError after the last one if the writer gave up.
        """
        while (block := self._queue.get()) is not None:
            yield block
        if self._cut:
            raise CutError

    def abandon(self) -> None:
        """Say that nobody reads any more."""
        self._abandoned.set()

    def _put(self, block: bytes | None) -> None:
        while not self._abandoned.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(block, timeout=_POLL_S)
                return
        raise Abandoned


class Produced(Generic[Made]):
    """The bytes that `produce` passes to its argument, in a thread of its own. Use it as a context manager.

    skip: the number of bytes to leave out at the beginning. The function ends when the context does.
    """

    def __init__(self, produce: Callable[[Callable[[bytes], object]], Made], skip: int = 0) -> None:
        self._produce, self._skip = produce, skip
        self._pipe = Pipe()
        self._result: list[Made] = []
        #: What the function raised.
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="produced", daemon=True)

    def __enter__(self) -> Produced[Made]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.abandon()
        self._thread.join()

    def blocks(self) -> Iterator[bytes]:
        """Return the bytes in blocks as they come. Raises what the function raises."""
        yield from self._pipe.blocks()
        if self.error is not None:
            raise self.error

    def blocks_of(self, size: int) -> Iterator[bytes]:
        """Return the bytes in blocks of this size, of which only the last one may be shorter."""
        gathered = bytearray()
        for block in self.blocks():
            gathered += block
            while len(gathered) >= size:
                yield bytes(memoryview(gathered)[:size])
                del gathered[:size]
        if gathered:
            yield bytes(gathered)

    @property
    def result(self) -> Made:
        """The function's result. Read it only after the last block."""
        return self._result[0]

    def _run(self) -> None:
        with contextlib.suppress(Abandoned):
            try:
                self._result.append(self._produce(self._write))
            except Abandoned:
                raise
            except BaseException as error:
                # Pass on every exception, because the reader would wait forever.
                self.error = error
            self._pipe.end()

    def _write(self, data: bytes) -> None:
        left_out = min(self._skip, len(data))
        self._skip -= left_out
        self._pipe.write(data[left_out:] if left_out else data)
