"""Threads that do the same for many things: their results, their errors, and Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.system import pools
from validator.system.pools import as_completed, map_ahead, map_in_threads, stuck_threads


@given(st.lists(st.integers(), max_size=20), st.integers(1, 8))
def test_the_results_are_those_of_a_loop(items: list[int], at_once: int) -> None:
    assert map_in_threads(lambda item: item * 2, items, at_once) == [item * 2 for item in items]
    assert stuck_threads() == 0


def test_an_error_is_raised_and_nothing_else_starts() -> None:
    started = []
    begun = threading.Event()

    def work(item: int) -> None:
        started.append(item)
        if item == 0:
            assert begun.wait(20)
            raise ValueError("the first")
        begun.set()
        time.sleep(0.3)

    with pytest.raises(ValueError, match="the first"):
        map_in_threads(work, range(50), 2)
    assert len(started) < 10
    assert stuck_threads() == 0


@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_results_in_order_while_the_next_items_are_made(items: list[int], at_once: int) -> None:
    made: list[int] = []

    def making() -> Iterator[int]:
        for item in items:
            made.append(item)
            yield item

    results = map_ahead(lambda item: item * 2, making(), at_once)
    for number, item in enumerate(items):
        assert next(results) == item * 2
        assert len(made) <= number + at_once + 1
    assert list(results) == []
    assert stuck_threads() == 0


def test_an_error_comes_in_the_place_of_its_result() -> None:
    results = map_ahead(lambda item: 1 // item, [1, 0, 1], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert stuck_threads() == 0


def test_nobody_wants_the_other_results() -> None:
    results = map_ahead(lambda item: item, iter(range(1000)), 2)
    assert next(results) == 0
    results.close()
    assert stuck_threads() == 0


#: Waits in threads for what never comes, and starts a pool within a pool.
PROGRAM = """
import sys, threading, time
from validator.system.pools import map_ahead, map_in_threads, stuck_threads

def wait(item):
    print(item, flush=True)
    threading.Event().wait(60)

def nested(item):
    return map_in_threads(wait, [item], 1)

try:
    map_in_threads(nested if sys.argv[1] == "nested" else wait, range(2), 2)
except KeyboardInterrupt:
    import os
    print("stuck", stuck_threads(), flush=True)
    os._exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("form", "stuck"), [("flat", 2), ("nested", 2)])
def test_ctrl_c_does_not_wait_for_threads_that_are_stuck(form: str, stuck: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, form], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as stream:
        for _ in range(2):
            stream.readline()
        pressed = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert stream.read() == f"stuck {stuck}\n"
    assert child.wait(10) == 130
    assert time.monotonic() - pressed < 20


def interrupted_at(instruction: int) -> type[BaseException] | None:
    """Wait for something that never happens, with Ctrl-C at the nth instruction. Return what was raised."""
    seen, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        seen += event == "opcode"
        if seen == instruction:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        next(as_completed([Future()]))
    except BaseException as error:
        return type(error)
    finally:
        sys.settrace(before)
    return None


def test_ctrl_c_at_any_moment_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `threading.Condition`, one at the wrong moment would become a RuntimeError."""
    monkeypatch.setattr(pools, "_LOOK_S", 0.0001)
    # One round of the wait takes about 30 instructions; the wait that it replaced took 420.
    raised = {instruction: interrupted_at(instruction) for instruction in range(1, 460)}
    assert {at: kind for at, kind in raised.items() if kind is not KeyboardInterrupt} == {}


def test_ctrl_c_that_does_not_wake_the_main_thread_is_noticed() -> None:
    """As if it arrived just before the main thread starts to wait."""
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        assert begun.wait(20)
        # The system runs the handler in this thread, so the main one goes on waiting.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended.wait(20)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        with pytest.raises(KeyboardInterrupt):
            begun.set()
            list(as_completed([future]))
        assert not future.done()
        ended.set()
