"""Bytes that one thread writes and another one reads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from validator.system.pools import BLOCK, CutError, Pipe, Produced

CONTENT = bytes(range(256)) * 20_000


@pytest.mark.parametrize("part", [1_000, BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize("skip", [0, 1, BLOCK, 3_000_001])
@pytest.mark.parametrize("size", [None, BLOCK, 2 * BLOCK + 1])
def test_the_blocks_have_what_was_written(part: int, skip: int, size: int | None) -> None:
    def produce(write: Callable[[bytes], object]) -> str:
        for start in range(0, len(CONTENT), part):
            write(CONTENT[start : start + part])
        return "done"

    with Produced(produce, skip) as made:
        blocks = list(made.blocks_of(size) if size else made.blocks())
        assert made.result == "done"
    assert b"".join(blocks) == CONTENT[skip:]
    if size:
        assert {len(block) for block in blocks[:-1]} <= {size}
    else:
        assert all(len(block) >= BLOCK for block in blocks[:-1])


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_comes_after_what_was_written(kind: type[BaseException]) -> None:
    def fail(write: Callable[[bytes], object]) -> None:
        write(CONTENT)
        raise kind("broken")

    with Produced(fail) as made, pytest.raises(kind, match="broken"):
        assert list(made.blocks())
    assert isinstance(made.error, kind)


def test_a_function_whose_reader_is_gone_ends() -> None:
    written = threading.Event()

    def endless(write: Callable[[bytes], object]) -> None:
        while True:
            try:
                write(CONTENT)
            except Exception:
                pytest.fail("a function that handles every error must end too")
            written.set()

    with Produced(endless) as made:
        next(made.blocks())
        assert written.wait(10)
    assert made.error is None


def test_a_pipe_that_was_cut_is_not_complete() -> None:
    pipe = Pipe()
    pipe.write(b"x" * 10)
    pipe.cut()
    with pytest.raises(CutError):
        list(pipe.blocks())
