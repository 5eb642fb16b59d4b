"""The progress of a task: what is said, and that the estimates of a real run were true."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from validator.system.pools import Meter

RUNS = json.loads((Path(__file__).parent / "real_runs.json").read_text())


class Clock:
    """A clock that only moves when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def meter(total: int | None, clock: Clock) -> Meter:
    return Meter("sending", total, lambda report: None, clock)


@pytest.mark.parametrize(
    ("total", "steps", "text"),
    [
        (2_600_000_000, [(0, 0), (12, 1_200_000_000)], "sending: 1.20 of 2.60 GB, 100 MB/s, about 15 s left"),
        (2_600_000_000, [(0, 0), (20, 200_000_000)], "sending: 0.20 of 2.60 GB, 10 MB/s, about 4 min left"),
        (None, [(0, 0), (12, 1_200_000_000)], "sending: 1.20 GB, 100 MB/s"),
        (38_000_000, [(0, 0), (10, 19_000_000)], "sending: 19 of 38 MB, 2 MB/s, about 10 s left"),
        # There is no estimate without data.
        (2_600_000_000, [], "sending: 0.00 of 2.60 GB"),
        (2_600_000_000, [(60, 0), (3, 200_000_000)], "sending: 0.20 of 2.60 GB"),
        # The time before the first byte was for other work.
        (1_000_000_000, [(300, 1), (9, 899_999_999)], "sending: 0.90 of 1.00 GB, 100 MB/s, about 5 s left"),
        # The index was wrong about a size.
        (1_000_000_000, [(0, 0), (12, 1_200_000_000)], "sending: 1.20 GB, 100 MB/s"),
    ],
)
def test_the_line_has_amount_rate_and_time_left(
    total: int | None, steps: list[tuple[int, int]], text: str
) -> None:
    clock = Clock()
    made = meter(total, clock)
    for seconds, size in steps:
        clock.now += seconds
        made.add(size)
        said = made.text()
    assert (said if steps else made.text()) == text


def test_an_estimate_does_not_outlive_the_bytes_it_is_made_from() -> None:
    clock = Clock()
    made = meter(2_000_000_000, clock)
    made.add(1)
    clock.now += 10
    made.add(999_999_999)
    clock.now += 14
    assert made.text() == "sending: 1.00 of 2.00 GB, 42 MB/s, about 25 s left"
    clock.now += 3
    assert made.text() == "sending: 1.00 of 2.00 GB, nothing for 17 s"


def test_a_part_of_unknown_size_is_named_and_makes_the_estimate_a_least_one() -> None:
    clock = Clock()
    made = meter(1_000_000_000, clock)
    with made.part("byte code", 0) as nothing:
        with made.part("tensorflow", 1_000_000_000) as count:
            nothing(50)
            count(1)
            clock.now += 10
            count(499_999_999)
            assert made.text() == "sending: 0.50 of 1.00 GB, 50 MB/s, at least 10 s left"
        # It compressed better than expected, and counts for all that it should.
        assert made.text() == "sending: 1.00 of 1.00 GB, now byte code"
    with pytest.raises(ValueError), made.part("again", 10):
        raise ValueError
    assert made.text() == "sending: 1.00 of 1.00 GB"


@pytest.mark.parametrize("name", RUNS)
def test_the_estimates_of_a_real_run_were_true(name: str) -> None:
    """After a fifth of the work, an estimate was wrong by a factor of at most two, or by ten seconds."""
    run = RUNS[name]
    clock = Clock()
    made = meter(run["total"], clock)
    end = clock.now + run["moments"][-1][0]
    done, estimates = 0, 0
    for seconds, size in run["moments"]:
        clock.now = end - run["moments"][-1][0] + seconds
        done += size
        made.add(size)
        said = made.text()
        left = end - clock.now
        if done < run["total"] / 5 or left < 10:
            continue
        found = re.search(r"(?:about|at least) (\d+) (s|min) left$", said)
        assert found, said
        estimated = int(found[1]) * (60 if found[2] == "min" else 1)
        true = estimated / 2 <= left <= 2 * estimated or abs(estimated - left) <= 10
        assert true, (said, left)
        estimates += 1
    assert estimates > 10


def test_lines_come_although_nothing_is_counted() -> None:
    said = threading.Semaphore(0)
    with Meter("waiting", 1000, lambda line: said.release()):
        assert said.acquire(timeout=30) and said.acquire(timeout=30)
