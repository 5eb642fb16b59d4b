"""Call a function with many items at once, in threads that end on Ctrl-C and share their memory."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

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
