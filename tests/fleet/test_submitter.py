"""The submitter, against a scheduler of files: every end of a unit, and every moment to be killed in."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.fake import CUT, FORGOTTEN, OK, OTHER_IMAGE, FakeCaller, FakeFleet
from tests.fleet.making import unit
from validator.engines.protocol import ProbeRequest
from validator.errors import MissingError
from validator.fleet.protocol import Capacity, Fault, Phase, Refused, Unit
from validator.fleet.run_store import FleetRun, Runs, Stage, Tried, Work
from validator.fleet.submitter import Submitter, WrongAnswer, decide

HOSTS = ("r580-h100", "r535-t4")
NODES = tuple(Capacity(host, nodes=2, usable=2, gpus_per_node=1) for host in HOSTS)
KEY = "nightly"


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class World:
    """A scheduler, a store of records and a run store, and the submitters that come and go between them."""

    directory: Path
    units: Sequence[Unit]
    options: dict[str, Any] = field(default_factory=dict)
    step: Callable[[str], None] = lambda _: None
    slept: list[float] = field(default_factory=list)
    #: Also call `step` before each statement of SQL. What it raises there is lost.
    each_statement: bool = False

    def __post_init__(self) -> None:
        (self.directory / "jobs").mkdir()
        (self.directory / "records").mkdir()
        self.fleet = FakeFleet(
            self.directory / "jobs", **{"capacities": NODES, "step": self._step, **self.options}
        )
        self.caller = FakeCaller(self.directory / "records", step=self._step)

    def _step(self, name: str) -> None:
        self.step(name)

    @contextmanager
    def runs(self) -> Iterator[Runs]:
        with Runs(self.directory / "runs") as runs:
            if self.each_statement:
                runs._connection.set_trace_callback(self._step)
            yield Watched(runs, self._step)  # type: ignore[misc]

    def submit(self) -> list[Tried]:
        """Do what the command does: continue the open run, or begin one."""
        with self.runs() as runs, runs.submitting(KEY):
            run = runs.open_run(KEY, "fake", ["build-matrix"], {})
            runs.add(run, [work(unit) for unit in self.units])
            return self.continue_(runs, run)

    def continue_(self, runs: Runs, run: FleetRun) -> list[Tried]:
        now = [0.0]

        def sleep(seconds: float) -> None:
            self._step("sleep")
            self.slept.append(seconds)
            now[0] += seconds

        return Submitter(self.fleet, runs, run, self.caller, sleep, lambda: now[0]).work()

    def words(self) -> Counter[str]:
        """Return how many cells the last tally shows in each state."""
        return sum(self.caller.shown[-1].values(), Counter())


WRITES = ("open_run", "add", "save", "retry", "end")


class Watched:
    """A run store that calls `step` before and after each of its writes."""

    def __init__(self, runs: Runs, step: Callable[[str], None]) -> None:
        self._runs, self._step = runs, step

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._runs, name)
        if name not in WRITES:
            return inner

        def watched(*arguments: Any, **named: Any) -> Any:
            self._step(f"before {name}")
            result = inner(*arguments, **named)
            self._step(f"after {name}")
            return result

        return watched


def work(unit: Unit) -> Work:
    request = ProbeRequest(b"archive", ("--challenge", unit.cell), {"lock.txt": unit.lock_digest.encode()})
    return Work(unit, request, b"question about " + unit.cell.encode())


def cells(number: int) -> list[Unit]:
    return [unit(image, host) for image in range(number) for host in HOSTS]


def key(unit: Unit) -> tuple[str, str, int]:
    return (unit.image, unit.host_class, unit.attempt)


def test_every_cell_gets_its_record(tmp_path: Path) -> None:
    world = World(tmp_path, cells(5))
    tried = world.submit()
    assert {one.stage for one in tried} == {Stage.DONE}
    assert world.caller.records() == Counter(unit.cell for unit in world.units)
    assert world.words() == {"done": 10}
    assert world.caller.said == []
    words = [word for shown in world.caller.shown for counts in shown.values() for word in counts]
    assert list(dict.fromkeys(words)) == ["waiting", "running", "done"]


def test_no_more_than_the_limit_are_in_flight(tmp_path: Path) -> None:
    world = World(tmp_path, cells(20), {"in_flight": 4, "batch": 3})
    world.submit()
    assert world.fleet.most_flying == dict.fromkeys(HOSTS, 4)


def test_units_of_one_image_are_next_to_each_other(tmp_path: Path) -> None:
    same = unit(0)
    units = [unit(number) for number in range(1, 5)]
    alike = [unit(0, probe_version=f"1.0.{number}") for number in range(4)]
    mixed = [one for pair in zip(units, alike, strict=True) for one in pair]
    world = World(tmp_path, mixed, {"in_flight": 100, "batch": 100})
    world.submit()
    (names,) = world.fleet.submissions
    by_name = {one.name: one for one in mixed}
    places = [place for place, name in enumerate(names) if by_name[name].image_digest == same.image_digest]
    assert places == list(range(places[0], places[0] + len(places)))
    assert len(places) == 4


def test_a_scheduler_is_not_asked_for_every_unit_that_becomes_free() -> None:
    flying = [Tried(unit(number), b"", Stage.SUBMITTED) for number in range(7)]
    waiting = [Tried(unit(number), b"") for number in range(10, 20)]
    capacities = {capacity.host_class: capacity for capacity in NODES}
    steps = decide([*flying, *waiting], capacities, {HOSTS[0]: 8}, 100)
    assert steps.new == ()
    (batch,) = decide([*flying[:6], *waiting], capacities, {HOSTS[0]: 8}, 100).new
    assert len(batch) == 2
    # The last one does not wait for others.
    (batch,) = decide([*flying, waiting[0]], capacities, {HOSTS[0]: 8}, 100).new
    assert len(batch) == 1


@given(st.permutations(range(12)), st.integers(1, 9), st.integers(1, 5))
def test_decisions_do_not_depend_on_the_order_of_what_is_known(
    order: list[int], limit: int, batch: int
) -> None:
    tries = [Tried(one, b"") for one in cells(6)]
    capacities = {capacity.host_class: capacity for capacity in NODES}
    limits = dict.fromkeys(HOSTS, limit)
    expected = decide(tries, capacities, limits, batch)
    assert decide([tries[place] for place in order], capacities, limits, batch) == expected
    assert all(len(units) <= batch for units in expected.new)
    submitted = Counter(one.unit.host_class for units in expected.new for one in units)
    assert submitted == {host: min(limit, 6) for host in HOSTS}


@pytest.mark.parametrize("ending", [*(fault for fault in Fault if fault.is_retried), CUT, OTHER_IMAGE])
def test_a_fault_three_times_loses_the_cell_without_a_record(tmp_path: Path, ending: Any) -> None:
    one, other = unit(0), unit(1)
    endings = {(one.image, one.host_class, attempt): ending for attempt in (1, 2, 3)}
    world = World(tmp_path, [one, other], {"endings": endings})
    tried = world.submit()
    assert [(try_.unit.attempt, try_.stage) for try_ in tried if try_.unit.image == one.image] == [
        (1, Stage.LOST), (2, Stage.LOST), (3, Stage.LOST),
    ]  # fmt: skip
    assert world.caller.records() == {other.cell: 1}
    assert world.words() == {"done": 1, "lost": 1}
    assert len(world.fleet.jobs()) == 4
    assert world.caller.said[-1].endswith("Lost 3 times: nothing is recorded.")


@pytest.mark.parametrize("ending", [Fault.NODE_LOST, Fault.PREEMPTED, Fault.DEADLINE, Fault.PULL_FAILED, CUT])
def test_a_fault_once_costs_one_attempt(tmp_path: Path, ending: Any) -> None:
    one = unit(0)
    world = World(tmp_path, [one], {"endings": {key(one): ending}})
    tried = world.submit()
    assert [try_.stage for try_ in tried] == [Stage.LOST, Stage.DONE]
    assert tried[0].unit.next_attempt() == tried[1].unit
    assert tried[0].question == tried[1].question != b""
    assert world.caller.records() == {one.cell: 1}
    (said,) = world.caller.said
    assert said.startswith(f"{one.cell}: ") and said.endswith("Attempt 2 of 3 follows.")


def test_a_fault_that_time_may_repair_is_waited_for(tmp_path: Path) -> None:
    one = unit(0)
    refused = {key(one): Refused("exceeded quota: gpus", Fault.QUOTA)}
    world = World(tmp_path, [one], {"refused": refused})
    assert [try_.stage for try_ in world.submit()] == [Stage.LOST, Stage.DONE]
    assert sum(world.slept) >= 60


def test_a_job_that_somebody_cancelled_is_not_tried_again(tmp_path: Path) -> None:
    one = unit(0)
    world = World(tmp_path, [one], {"endings": {key(one): Fault.CANCELLED}})
    assert [try_.stage for try_ in world.submit()] == [Stage.LOST]
    assert world.caller.said == [f"{one.cell}: it was cancelled: CANCELLED. Lost: nothing is recorded."]


def test_a_result_counts_even_if_the_scheduler_has_forgotten_its_job(tmp_path: Path) -> None:
    one = unit(0)
    world = World(tmp_path, [one], {"endings": {key(one): FORGOTTEN}})
    world.submit()
    assert world.caller.records() == {one.cell: 1}


def test_an_answer_to_another_question_is_no_record(tmp_path: Path) -> None:
    one = unit(0)
    world = World(tmp_path, [one])

    def wrong(tried: Tried) -> None:
        if tried.unit.attempt == 1:
            raise WrongAnswer("its challenge is another submitter's")

    world.caller.wrong = wrong
    assert [(try_.stage, try_.fault) for try_ in world.submit()] == [
        (Stage.LOST, Fault.WRONG_ANSWER), (Stage.DONE, None),
    ]  # fmt: skip
    assert world.caller.records() == {one.cell: 1}


@pytest.mark.parametrize(
    ("capacities", "tasks", "reason"),
    [
        ((), 1, "there is no node for r580-h100; `fleet inventory` lists the host classes"),
        ((Capacity("r580-h100", 0, 0, detail="no node has r999"),), 1, "no node has r999"),
        ((Capacity("r580-h100", 0, 0),), 1, "there is no node for r580-h100"),
        ((Capacity("r580-h100", 1, 1),), 2, "it needs 2 nodes at once, and there is only 1"),
    ],
)
def test_what_no_node_can_run_is_missing_at_once(
    tmp_path: Path, capacities: tuple[Capacity, ...], tasks: int, reason: str
) -> None:
    one = unit(0, tasks=tasks)
    world = World(tmp_path, [one], {"capacities": capacities})
    (tried,) = world.submit()
    assert (tried.stage, tried.detail) == (Stage.MISSING, reason)
    assert world.caller.said == [f"{one.cell}: missing: {reason}."]
    assert (world.fleet.jobs(), world.slept, world.words()) == ({}, [], {"missing": 1})


def test_nodes_that_are_down_now_are_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, [unit(0)], {"capacities": (Capacity("r580-h100", 1, 0),)})
    (tried,) = world.submit()
    assert tried.stage is Stage.DONE


def test_what_the_scheduler_refuses_for_ever_is_missing(tmp_path: Path) -> None:
    one, other = unit(0), unit(1)
    refused = {key(one): Refused("Requested node configuration is not available")}
    world = World(tmp_path, [one, other], {"refused": refused})
    assert Counter(try_.stage for try_ in world.submit()) == {Stage.MISSING: 1, Stage.DONE: 1}


@pytest.mark.parametrize("call", ["inventory", "submit", "poll", "collect"])
def test_a_controller_that_is_down_is_waited_for_and_that_is_said_once(tmp_path: Path, call: str) -> None:
    world = World(tmp_path, cells(2), {"down": Counter({call: 12})})
    world.submit()
    assert world.caller.records() == Counter(one.cell for one in world.units)
    assert world.caller.said == [
        "Waiting for fake: Unable to contact slurm controller (connect failure)",
        "fake answers again.",
    ]
    assert max(world.slept) == 30


def test_a_controller_that_is_down_at_the_end_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [unit(0)], {"down": Counter({"forget": 1})})
    (tried,) = world.submit()
    assert tried.stage is Stage.DONE


@dataclass
class Stop:
    """Ends the submitter at one of the steps of the world."""

    at: int
    kill: Callable[[], None]
    seen: int = 0
    #: The number of the step that ends the run. The next command begins another one.
    last: int = 0

    def __call__(self, name: str) -> None:
        self.seen += 1
        if name == "before end":
            self.last = self.seen
        if self.seen == self.at:
            self.kill()


#: Some of everything that can happen to a cell.
TROUBLE: dict[str, Any] = {
    "endings": {
        key(unit(0)): Fault.NODE_LOST,
        key(unit(1)): CUT,
        key(unit(2)): FORGOTTEN,
        **{(unit(3).image, HOSTS[0], attempt): Fault.PREEMPTED for attempt in (1, 2, 3)},
        key(unit(4)): OTHER_IMAGE,
    },
    "refused": {key(unit(5)): Refused("exceeded quota", Fault.QUOTA), key(unit(6)): Refused("no such node")},
    "capacities": (*NODES, Capacity("r999-h100", 0, 0)),
}
TROUBLED = [*cells(7), unit(0, "r999-h100")]
#: All but the one that is lost, the one that is refused and the one of an impossible host class.
RECORDED = Counter(one.cell for one in TROUBLED) - Counter(
    [unit(3).cell, unit(6).cell, unit(0, "r999-h100").cell]
)
#: Each attempt that reaches the scheduler.
SUBMITTED = len(TROUBLED) - 2 + 5


def check_end(world: World, tried: list[Tried]) -> None:
    """Check that a run ended as if nobody had killed it."""
    assert world.caller.records() == RECORDED
    assert len(world.fleet.jobs()) == SUBMITTED
    assert {job["cell"] for job in world.fleet.jobs().values()} == {one.cell for one in TROUBLED} - {
        unit(6).cell, unit(0, "r999-h100").cell,
    }  # fmt: skip
    assert all(try_.stage.is_end for try_ in tried)
    assert Counter(one.word for one in tried) == {"done": 12, "lost": 7, "missing": 2}
    # Only the last attempt of a cell counts.
    assert world.words() == {"done": 12, "lost": 1, "missing": 2}
    with Runs(world.directory / "runs") as runs:
        (run,) = runs.all()
        assert run.ended


def steps_of_a_run(directory: Path, *, each_statement: bool = False) -> int:
    """Return the number of moments between two writes or calls in a run that nobody kills, until its end."""
    directory.mkdir()
    stop = Stop(0, lambda: None)
    world = World(directory, TROUBLED, TROUBLE, stop, each_statement=each_statement)
    check_end(world, world.submit())
    return stop.last


def raise_killed() -> None:
    raise Killed


@pytest.mark.slow
def test_killed_at_any_moment_and_started_again(tmp_path: Path) -> None:
    total = steps_of_a_run(tmp_path / "whole")
    assert total > 150
    for moment in random.Random(15).sample(range(1, total + 1), 40):
        directory = tmp_path / str(moment)
        directory.mkdir()
        world = World(directory, TROUBLED, TROUBLE, Stop(moment, raise_killed))
        with pytest.raises(Killed):
            world.submit()
        world.step = lambda _: None
        check_end(world, world.submit())


def test_killed_again_and_again(tmp_path: Path) -> None:
    world = World(tmp_path, TROUBLED, TROUBLE)
    moments = random.Random(1)
    for _ in range(200):
        world.step = Stop(moments.randint(1, 40), raise_killed)
        try:
            tried = world.submit()
            break
        except Killed:
            continue
    else:
        pytest.fail("it never came to an end")
    check_end(world, tried)


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_kill_9_at_20_moments_between_two_statements_or_calls(tmp_path: Path) -> None:
    total = steps_of_a_run(tmp_path / "whole", each_statement=True)
    assert total > 600
    for moment in random.Random(9).sample(range(1, total + 1), 20):
        directory = tmp_path / str(moment)
        directory.mkdir()
        stop = Stop(moment, kill_this_process)
        world = World(directory, TROUBLED, TROUBLE, stop, each_statement=True)
        child = os.fork()
        if child == 0:
            try:
                world.submit()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        world.step = lambda _: None
        check_end(world, world.submit())


def test_two_submitters_of_one_command(tmp_path: Path) -> None:
    world = World(tmp_path, cells(2))
    with world.runs() as runs, runs.submitting(KEY):
        with pytest.raises(MissingError, match=rf"does this already \(process {os.getpid()}\)"):
            world.submit()
        assert world.fleet.jobs() == {}
    world.submit()
    assert world.caller.records() == Counter(one.cell for one in world.units)


def test_a_second_command_leaves_the_cells_of_the_first_alone(tmp_path: Path) -> None:
    with Runs(tmp_path) as runs:
        first = runs.open_run("one", "fake", [], {})
        runs.add(first, [work(unit(0)), work(unit(1))])
        second = runs.open_run("two", "fake", [], {})
        runs.add(second, [work(unit(1, after="f" * 32)), work(unit(2))])
        assert [tried.unit for tried in runs.units(second)] == [unit(2)]
        assert runs.owner(unit(1, after="f" * 32)) == first.id


def test_a_cell_that_was_lost_gets_another_name_in_the_next_run(tmp_path: Path) -> None:
    one = unit(0)
    endings = {(one.image, one.host_class, attempt): Fault.NODE_LOST for attempt in (1, 2, 3)}
    world = World(tmp_path, [one], {"endings": endings})
    world.submit()
    assert world.caller.records() == {}
    world.fleet.endings = {key(one): OK}
    (tried,) = world.submit()
    assert tried.unit.after == world.units[0].next_attempt().next_attempt().name  # type: ignore[union-attr]
    assert tried.stage is Stage.DONE
    assert world.caller.records() == {one.cell: 1}


def test_cancelled_by_another_process(tmp_path: Path) -> None:
    world = World(tmp_path, cells(6))

    def cancel(name: str) -> None:
        if name == "settled":
            with Runs(tmp_path / "runs") as runs:
                runs.ask_to_cancel(runs.all()[0])

    world.step = cancel
    tried = world.submit()
    stages = Counter(try_.stage for try_ in tried)
    assert stages[Stage.DONE] > 0 and stages[Stage.CANCELLED] > 0
    assert set(stages) == {Stage.DONE, Stage.CANCELLED}
    done = {try_.unit.cell for try_ in tried if try_.stage is Stage.DONE}
    assert world.caller.records() == Counter(done)
    left = [job for name, job in world.fleet.jobs().items() if job["ending"] != Fault.CANCELLED]
    assert {job["cell"] for job in left} == done


def test_records_are_large_and_do_not_stay_in_memory_or_in_the_run_store(tmp_path: Path) -> None:
    world = World(tmp_path, cells(2))
    tried = world.submit()
    assert {try_.record for try_ in tried} == {b""}
    with Runs(tmp_path / "runs") as runs:
        stored = runs.units(runs.all()[0])
    assert {try_.record for try_ in stored} == {b""}
    assert {try_.record_id for try_ in stored} == {path.name for path in (tmp_path / "records").iterdir()}


def test_what_people_see_is_in_the_store(tmp_path: Path) -> None:
    seen: list[tuple[Phase | None, str]] = []

    def look(name: str) -> None:
        if name in ("sleep", "settle"):
            with Runs(tmp_path / "runs") as runs:
                seen.extend((try_.phase, try_.node) for try_ in runs.units(runs.all()[0]))

    World(tmp_path, [unit(0)], step=look).submit()
    assert seen == [(Phase.WAITING, ""), (Phase.RUNNING, "node1"), (Phase.ENDED, "node1")]
