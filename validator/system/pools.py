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
    """Bytes on their way from writers, of which only one writes at a time, to a reader, in a few blocks."""

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

    def __exit__(self, *_: object) -> None:
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


#: Seconds between two reports.
_INTERVAL_S = 0.5
#: There is no estimate before this many seconds of data, and none after so many without any.
_DATA_S = 4.0
_STALLED_S = 15.0


class Meter:
    """The progress of one task: its bytes, counted from several threads, the rate and the time left.

    As a context manager, it reports a line at once and every half second.

    doing: begins each line, such as `downloading 3 wheels`. total: bytes, or None if unknown.
    report: receives the lines, in a thread of its own. clock: returns the seconds since any moment.
    """

    def __init__(
        self,
        doing: str,
        total: int | None,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doing, self._total, self._report, self._clock = doing, total, report, clock
        self._done = 0
        #: The parts that are being made, and those of them whose size nobody knows.
        self._now: list[str] = []
        self._unknown = 0
        #: When the first and the last bytes were counted. What came before the first ones was other work.
        self._first = self._last = 0.0
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        if self._total:
            self._report(self.text())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        # If nobody reads the lines any more, the thread that prints the next result finds that out.
        with contextlib.suppress(BrokenPipeError):
            while not self._ended.wait(_INTERVAL_S):
                self._report(self.text())

    def add(self, size: int) -> None:
        """Count bytes that were done, or take some back with a negative number."""
        with self._guard:
            self._last = self._clock()
            if not self._first:
                self._first = self._last
            self._done += size

    @contextlib.contextmanager
    def part(self, name: str, size: int) -> Iterator[Callable[[int], None]]:
        """Name a part while it is made, and yield the function that counts its bytes.

        size: what the part counts for in the total, whatever it really has; 0 if that is unknown.
        """
        left = size

        def count(made: int) -> None:
            nonlocal left
            counted = min(made, left)
            left -= counted
            if counted:
                self.add(counted)

        with self._guard:
            self._now.append(name)
            self._unknown += not size
        try:
            yield count
            count(left)
        finally:
            with self._guard:
                self._now.remove(name)
                self._unknown -= not size

    def text(self) -> str:
        """Return the line: `…: 1.20 of 2.60 GB, 95 MB/s, about 15 s left`."""
        with self._guard:
            done, total = self._done, self._total
            names, unknown = list(self._now), self._unknown
            taken, silent = self._clock() - self._first, self._clock() - self._last
        known = total is not None and total >= done
        if (total if total is not None and known else done) < 1e8:
            amount = f"{done / 1e6:.0f}" + (f" of {total / 1e6:.0f}" if total and known else "") + " MB"
        else:
            amount = f"{done / 1e9:.2f}" + (f" of {total / 1e9:.2f}" if total and known else "") + " GB"
        parts = [amount] if done or total else []
        if done and done != total and silent >= _STALLED_S:
            parts.append(f"nothing for {silent:.0f} s")
        elif done > 0 and done != total and taken >= _DATA_S:
            # The mean of the whole task. Parts of it differ so much that those of the last seconds say less
            # about the rest: see the real runs in the tests.
            rate = done / taken
            parts.append(f"{rate / 1e6:.0f} MB/s")
            if total is not None and known:
                seconds = (total - done) / rate
                left = f"{max(5, 5 * round(seconds / 5))} s" if seconds < 120 else f"{seconds / 60:.0f} min"
                parts.append(f"{'at least' if unknown else 'about'} {left} left")
        if len(names) == 1 or (names and done == total):
            parts.append(f"now {' and '.join(names)}")
        return f"{self._doing}: {', '.join(parts)}" if parts else self._doing
