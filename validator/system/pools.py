"""Call a function with many items at once, in threads that end on Ctrl-C and share their memory."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from . import processes

#: From mallopt in glibc's malloc.h.
_ARENA_MAX = -8
_ARENAS = 2
#: How often to check for Ctrl-C, in seconds, because threads don't receive it.
_LOOK_S = 0.2
#: Seconds for threads to clean up after Ctrl-C.
_CLEAN_UP_S = 1.0
#: The prefix of the names of threads that may be left behind.
THREAD_NAME = "validator-pool"

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], items: Iterable[T], at_once: int) -> list[R]:
    """Return the results of calling a function with each item, in order.

    After the first error, no other call starts, and the error is raised once the running calls have ended.
    Ctrl-C ends the child processes of all threads. A thread that waits for something else is left behind;
    `stuck_threads` counts those.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=THREAD_NAME)
    futures: list[Future[R]] = []
    try:
        futures += [pool.submit(function, item) for item in items]
        results = [_result(future) for future in futures]
    except KeyboardInterrupt:
        processes.stop_all()
        pool.shutdown(wait=False, cancel_futures=True)
        if threading.current_thread() is threading.main_thread():
            wait(futures, timeout=_CLEAN_UP_S)
        raise
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def map_ahead(function: Callable[[T], R], items: Iterable[T], at_once: int) -> Generator[R, None, None]:
    """Yield the results of calling a function with each item, in order, while the next items are made.

    At most `at_once` calls run, and as many results wait. An error of the function is raised in the place of
    its result.
    """
    with ThreadPoolExecutor(at_once, thread_name_prefix=THREAD_NAME) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > at_once:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())


def as_completed(futures: Iterable[Future[R]]) -> Iterator[Future[R]]:
    """Yield each future when it is done. Raise KeyboardInterrupt after `stop_all`, in any thread.

    Unlike `concurrent.futures.as_completed`, raise KeyboardInterrupt soon even if the signal arrives just
    before the main thread starts to wait, or in another thread; neither wakes the main thread. And raise
    nothing else: if the signal arrives while `threading.Condition` has released its lock,
    `concurrent.futures.wait` raises RuntimeError instead. A SimpleQueue has no such lock.
    """
    done: SimpleQueue[Future[R]] = SimpleQueue()
    pending = list(futures)
    for future in pending:
        future.add_done_callback(done.put)
    for _ in pending:
        while True:
            processes.check_stopping()
            try:
                future = done.get(timeout=_LOOK_S)
            except Empty:
                continue
            yield future
            break


def stuck_threads() -> int:
    """Return the number of threads that still run, which would keep this process from ending."""
    return sum(thread.name.startswith(THREAD_NAME) for thread in threading.enumerate())


def _result(future: Future[R]) -> R:
    return next(as_completed([future])).result()


def share_arenas() -> None:
    """Let all threads allocate from the same few arenas, where the C library is glibc.

    By default, each thread has an arena of its own, which keeps most of what was freed in it. With a dozen
    threads that pass on parts of some MiB, that is 70 MB. Arenas that exist already stay.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, _ARENAS)


# Hand bytes from the threads that write them to the one that reads them, a few blocks at a time.


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


# Count the bytes of a transfer from several threads, and report amount, rate and time left.


#: Seconds between two reports.
_INTERVAL_S = 0.5


class Meter:
    """The progress of one transfer.

    doing: begins each report, such as `downloading 3 wheels`. total: bytes, or None if unknown.
    report: receives the reports, at most two a second.
    """

    def __init__(self, doing: str, total: int | None, report: Callable[[str], object]) -> None:
        self._doing, self._total, self._report = doing, total, report
        self._done = self._skipped = 0
        self._started = time.monotonic()
        self._reported = 0.0
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Count bytes that were transferred, or take some back with a negative number."""
        self._count(size, 0)

    def skip(self, size: int) -> None:
        """Count bytes that were there already. They don't count for the rate."""
        self._count(size, size)

    def _count(self, size: int, skipped: int) -> None:
        with self._guard:
            self._done += size
            self._skipped += skipped
            now = time.monotonic()
            if now - self._reported < _INTERVAL_S:
                return
            self._reported = now
            text = self.text(now - self._started)
        self._report(text)

    def text(self, seconds: float) -> str:
        """Return the report after this many seconds: `…: 1.2 of 2.6 GB, 95 MB/s, 15 s left`."""
        known = self._total is not None and self._total >= self._done
        amount = f"{self._done / 1e9:.2f}" + (
            f" of {self._total / 1e9:.2f} GB" if known and self._total else " GB"
        )
        rate = (self._done - self._skipped) / seconds if seconds > 0 else 0.0
        if rate <= 0:
            return f"{self._doing}: {amount}"
        left = f", {_duration((self._total - self._done) / rate)} left" if known and self._total else ""
        return f"{self._doing}: {amount}, {rate / 1e6:.0f} MB/s{left}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
