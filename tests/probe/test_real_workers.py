"""Two workers with a real TensorFlow, which train together over gRPC on loopback."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from validator.engines.protocol import probe_archive
from validator.model.report import CheckOutcome, CheckResult, read_report

from .environments import AS_BUILT_2_21, tensorflow_environment
from .test_workers import free_ports

pytestmark = pytest.mark.engine


class Worker(NamedTuple):
    """A running probe."""

    process: subprocess.Popen[str]

    def check(self) -> CheckResult:
        output, _ = self.process.communicate(timeout=120)
        found = read_report(output).check("multi_worker")
        assert found is not None
        return found

    def command_lines(self) -> list[str]:
        """Return the command lines of the processes below the probe."""
        found = []
        ids = [str(self.process.pid)]
        while ids:
            for path in Path(f"/proc/{ids.pop()}/task").glob("*/children"):
                # A process may end while this reads.
                with suppress(FileNotFoundError, ProcessLookupError):
                    children = path.read_text().split()
                    ids += children
                    found += [Path(f"/proc/{child}/cmdline").read_text() for child in children]
        return found


class Start:
    """Starts workers, and ends them after the test."""

    def __init__(self, archive: Path, stack: ExitStack) -> None:
        self._archive, self._stack = archive, stack

    def __call__(self, addresses: list[str], rank: int, wait_s: float = 60.0) -> Worker:
        variables = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "CUDA_VISIBLE_DEVICES": "-1",
            "VALIDATOR_WORKERS": ",".join(addresses),
            "VALIDATOR_WORKER_RANK": str(rank),
            "VALIDATOR_WORKER_WAIT_S": str(wait_s),
        }
        process = subprocess.Popen(
            [tensorflow_environment(AS_BUILT_2_21), self._archive, "--only", "multi_worker"],
            env=variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return Worker(process)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    path = tmp_path / "probe.pyz"
    path.write_bytes(probe_archive())
    with ExitStack() as stack:
        yield Start(path, stack)


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


def test_two_workers_train_with_the_gradients_of_one(start: Start, addresses: list[str]) -> None:
    workers = [start(addresses, rank) for rank in (0, 1)]
    for rank, worker in enumerate(workers):
        check = worker.check()
        assert check.outcome is CheckOutcome.PASS, check.sentence
        seen = check.evidence.raw
        assert (seen["workers"], seen["rank"], seen["communication"]) == (2, rank, "RING")
        assert [(other["rank"], other["stage"]) for other in seen["ranks"]] == [(1 - rank, "end")]
        assert seen["step"]["replicas"] == 2
        # Sums in another order: they agree, but hardly ever to the last bit.
        assert 0 < seen["step"]["largest_difference"] < 1e-5
        assert seen["step"]["collectives"] == ["ring"]


def test_a_worker_that_is_killed_while_training_is_named(start: Start, addresses: list[str]) -> None:
    first, second = (start(addresses, rank) for rank in (0, 1))
    end = time.monotonic() + 60
    while not any("probe.child import" in line for line in second.command_lines()):
        assert time.monotonic() < end, "no interpreter was started for the training"
        time.sleep(0.05)
    # Its children end with it, as those of a machine that is switched off.
    second.process.kill()
    check = first.check()
    assert check.outcome is CheckOutcome.FAIL, check.sentence
    (problem,) = check.problems
    assert (problem.code, problem.entry["rank"], problem.entry["address"]) == ("worker_lost", 1, addresses[1])


def test_a_closed_port_is_named(start: Start, addresses: list[str]) -> None:
    (closed,) = free_ports(1)
    first = start([addresses[0], f"127.0.0.1:{closed}"], 0, wait_s=10)
    second = start(addresses, 1, wait_s=10)
    (problem,) = first.check().problems
    assert (problem.code, problem.entry["address"]) == ("worker_port_closed", f"127.0.0.1:{closed}")
    (other,) = second.check().problems
    assert (other.code, other.entry["rank"]) == ("worker_does_not_connect", 0)
