"""Take the units of a run to their ends: submit, poll, collect, try again.

`decide` is a pure function of what is known, so the same knowledge always leads to the same next steps. The
loop writes each step to the run store before it is taken, or right after; wherever it is killed, the next
loop continues from there (see `run_store.py`).

One thread does everything. If the scheduler does not answer, the thread waits, and says so once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from ..model.codec import format_timestamp, now_utc
from .protocol import (
    ATTEMPTS,
    Answer,
    Capacity,
    CutError,
    Fault,
    Fleet,
    FleetDown,
    Phase,
    Refused,
    State,
    array_name,
)
from .run_store import FleetRun, Runs, Stage, Tried, tally

#: Seconds between two looks at the scheduler, and the longest wait for one that does not answer.
POLL_S = 2.0
_LONGEST_WAIT_S = 30.0
#: Seconds before the next attempt after a fault that time may repair; others are tried again at once.
_PAUSES_S = {Fault.QUOTA: 60.0, Fault.PULL_FAILED: 30.0, Fault.DISK_FULL: 30.0, Fault.NOT_STARTED: 10.0}


@dataclass(frozen=True)
class Settled:
    """The caller's record of a cell, as bytes, its id, and whether it says that the cell failed."""

    record: bytes
    id: str
    failed: bool = False


class WrongAnswer(Exception):
    """A whole answer that is not about the unit: the message says why. The cell is tried again."""


class Caller(Protocol):
    """The receiver of the answers."""

    def settle(self, tried: Tried, answer: Answer) -> Settled:
        """Return the record of an answer. Raises WrongAnswer."""

    def deliver(self, record: bytes) -> None:
        """Store a record. It may be called twice with the same record."""

    def say(self, line: str) -> None:
        """Tell a person about a fault or a wait."""

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        """Show how many cells of each host class are in each state, see `tally`."""


@dataclass(frozen=True)
class Steps:
    """The next steps.

    again: the names of batches that were stored, but perhaps not submitted. new: batches to store and submit.
    missing: units that no node can ever run, each with the reason.
    """

    again: tuple[str, ...] = ()
    new: tuple[tuple[Tried, ...], ...] = ()
    missing: tuple[tuple[Tried, str], ...] = ()


def decide(
    tries: Iterable[Tried],
    capacities: Mapping[str, Capacity],
    limits: Mapping[str, int],
    batch: int,
    due: Callable[[Tried], bool] = lambda _: True,
) -> Steps:
    """Return the next steps.

    tries: the units of a run. capacities, limits: by host class. batch: the most units of one submission.
    due: False for a unit whose attempt has to wait.

    Units of one image are next to each other, so that a node that takes several pulls the image once. A new
    batch waits until a quarter of the limit is free, since a scheduler takes many units as fast as one.
    """
    again: dict[str, None] = {}
    flying: Counter[str] = Counter()
    planned: dict[str, list[Tried]] = {}
    for tried in tries:
        if tried.stage is Stage.PLANNED:
            planned.setdefault(tried.unit.host_class, []).append(tried)
        elif tried.stage is Stage.BATCHED:
            again[tried.batch] = None
        if tried.stage in (Stage.BATCHED, Stage.SUBMITTED):
            flying[tried.unit.host_class] += 1
    new: list[tuple[Tried, ...]] = []
    missing: list[tuple[Tried, str]] = []
    for host_class, group in sorted(planned.items()):
        capacity = capacities.get(host_class)
        nodes = capacity.nodes if capacity else 0
        for tried in group:
            if tried.unit.tasks <= nodes:
                continue
            if capacity is None:
                why = f"there is no node for {host_class}; `fleet inventory` lists the host classes"
            elif nodes == 0:
                why = capacity.detail or f"there is no node for {host_class}"
            else:
                why = f"it needs {tried.unit.tasks} nodes at once, and there is only {nodes}"
            missing.append((tried, why))
        possible = [tried for tried in group if tried.unit.tasks <= nodes and due(tried)]
        if not possible:
            continue
        limit = limits[host_class]
        free = max(0, limit - flying[host_class])
        if free < min(len(possible), max(1, limit // 4)):
            continue
        # Units of several tasks have an array of their own.
        possible.sort(key=lambda tried: (tried.unit.tasks, tried.unit.image_digest, tried.name))
        for _, alike in groupby(possible[:free], key=lambda tried: tried.unit.tasks):
            row = list(alike)
            new += [tuple(row[start : start + batch]) for start in range(0, len(row), batch)]
    return Steps(tuple(again), tuple(new), tuple(missing))


@dataclass
class Submitter:
    """Takes one run to its end. Whoever calls `work` holds `Runs.submitting` for the run's key."""

    fleet: Fleet
    runs: Runs
    run: FleetRun
    caller: Caller
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    poll_s: float = POLL_S
    #: All attempts by name, which are counted after each step, and those that have not ended, which a step
    #: looks at: they are few at the end of a long run.
    _tries: dict[str, Tried] = field(default_factory=dict)
    _live: dict[str, Tried] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _capacities: Mapping[str, Capacity] | None = None
    _said: bool = False

    def work(self) -> list[Tried]:
        """Take every unit of the run to its end, and return them all.

        Raises the errors of the engine that waiting does not change. Everything is kept, and calling this
        again continues.
        """
        self._tries = {tried.name: tried for tried in self.runs.units(self.run)}
        self._live = {name: tried for name, tried in self._tries.items() if not tried.stage.is_end}
        waited = 0.0
        while True:
            try:
                moved = self._step()
                if self._said:
                    self._said = False
                    self.caller.say(f"{self.fleet.name} answers again.")
                waited = 0.0
            except FleetDown as error:
                # Everything that was known stays true; the next step repeats what was not done.
                if not self._said:
                    self._said = True
                    self.caller.say(f"Waiting for {self.fleet.name}: {error}")
                waited = min(_LONGEST_WAIT_S, 2 * waited or self.poll_s)
                self.sleep(waited)
                continue
            self.caller.show(tally(self._tries.values()))
            if not self._live:
                break
            if self._at(Stage.SUBMITTED) or not moved:
                self.sleep(self.poll_s)
        self.runs.end(self.run)
        handles = [tried.handle for tried in self._tries.values() if tried.stage is Stage.DONE]
        try:
            if handles:
                self.fleet.forget(handles)
        except FleetDown as error:
            self.caller.say(f"could not remove what {self.fleet.name} still has of this run: {error}")
        return list(self._tries.values())

    def _step(self) -> bool:
        """Do what can be done now. Return True if anything changed."""
        for tried in self._at(Stage.KEPT):
            self._deliver(tried)
        if self.runs.is_cancelled(self.run):
            self._cancel()
            return True
        if self._capacities is None:
            self._capacities = {capacity.host_class: capacity for capacity in self.fleet.inventory()}
        classes = {tried.unit.host_class for tried in self._at(Stage.PLANNED)} & self._capacities.keys()
        steps = decide(
            self._live.values(),
            self._capacities,
            {host_class: self.fleet.limits(host_class).in_flight for host_class in classes},
            self.fleet.batch,
            lambda tried: self._due.get(tried.name, 0.0) <= self.clock(),
        )
        with self.runs.transaction():
            for tried, reason in steps.missing:
                self._end(tried, Stage.MISSING, reason)
        for name in steps.again:
            self._submit(self._batch(name))
        for batch in steps.new:
            name = array_name(tried.unit for tried in batch)
            for position, tried in enumerate(batch):
                tried.stage, tried.batch, tried.position = Stage.BATCHED, name, position
            self.runs.save(*batch)
            self._submit(batch)
        moved = self._poll()
        return bool(steps.missing or steps.again or steps.new or moved)

    def _batch(self, name: str) -> list[Tried]:
        batch = [tried for tried in self._at(Stage.BATCHED) if tried.batch == name]
        return sorted(batch, key=lambda tried: tried.position)

    def _submit(self, batch: Sequence[Tried]) -> None:
        """Submit a batch that was stored, and note in one transaction which of its units were accepted."""
        requests = {tried.name: self.runs.request(tried.name) for tried in batch}
        became = self.fleet.submit([tried.unit for tried in batch], requests)
        now = format_timestamp(now_utc(), "milliseconds")
        with self.runs.transaction():
            for tried in batch:
                answer = became[tried.name]
                if not isinstance(answer, Refused):
                    tried.stage, tried.handle, tried.phase = Stage.SUBMITTED, answer, Phase.WAITING
                    tried.submitted = tried.submitted or now
                    self.runs.save(tried)
                elif answer.fault is None:
                    self._end(tried, Stage.MISSING, answer.detail)
                else:
                    self._lose(tried, answer.fault, answer.detail)

    def _poll(self) -> bool:
        """Look at what was submitted. Return True if a unit came to an end."""
        flying = self._at(Stage.SUBMITTED)
        if not flying:
            return False
        found = self.fleet.poll([tried.handle for tried in flying])
        states = {tried.name: found.get(tried.handle, State(Phase.GONE)) for tried in flying}
        changed = []
        for tried in flying:
            state = states[tried.name]
            # An engine may not know any more where a unit ran that has ended.
            seen = (state.phase, state.node or tried.node, state.detail)
            if seen != (tried.phase, tried.node, tried.detail):
                tried.phase, tried.node, tried.detail = seen
                changed.append(tried)
        if changed:
            self.runs.save(*changed)
        moved = False
        for tried in flying:
            state = states[tried.name]
            if state.fault is not None:
                self._lose(tried, state.fault, state.detail)
            elif state.phase in (Phase.ENDED, Phase.GONE):
                self._collect(tried, state)
            else:
                continue
            moved = True
        return moved

    def _collect(self, tried: Tried, state: State) -> None:
        try:
            answer = self.fleet.collect(tried.handle)
        except CutError as error:
            gone = state.phase is Phase.GONE
            self._lose(tried, Fault.FORGOTTEN if gone else Fault.OUTPUT_CUT, str(error))
            return
        digest = tried.unit.image_digest
        if answer.image_digest not in (None, digest):
            self._lose(tried, Fault.WRONG_IMAGE, f"{answer.image_digest} was run, not {digest}")
            return
        try:
            settled = self.caller.settle(tried, answer)
        except WrongAnswer as error:
            self._lose(tried, Fault.WRONG_ANSWER, str(error))
            return
        tried.stage, tried.failed = Stage.KEPT, settled.failed
        tried.record, tried.record_id = settled.record, settled.id
        self.runs.save(tried)
        self._deliver(tried)

    def _deliver(self, tried: Tried) -> None:
        self.caller.deliver(tried.record)
        tried.stage, tried.record = Stage.DONE, b""
        self.runs.save(tried)
        del self._live[tried.name]

    def _lose(self, tried: Tried, fault: Fault, detail: str) -> None:
        """Note a fault. Try again, unless this was the last attempt or somebody cancelled the job."""
        after = tried.unit.next_attempt() if fault.is_retried else None
        tried.stage, tried.fault, tried.detail = Stage.LOST, fault, detail
        with self.runs.transaction():
            self.runs.save(tried)
            if after is not None:
                self.runs.retry(self.run, tried, after)
        on = f" (on {tried.node})" if tried.node else ""
        what = f"{tried.unit.cell}: {fault.sentence}{on}{f': {detail}' if detail else ''}"
        if after is None:
            last = f" {ATTEMPTS} times" if fault.is_retried else ""
            self.caller.say(f"{what}. Lost{last}: nothing is recorded.")
            del self._live[tried.name]
            return
        self.caller.say(f"{what}. Attempt {after.attempt} of {ATTEMPTS} follows.")
        del self._live[tried.name]
        self._tries[after.name] = self._live[after.name] = Tried(after, tried.question)
        self._due[after.name] = self.clock() + _PAUSES_S.get(fault, 0.0)

    def _end(self, tried: Tried, stage: Stage, detail: str) -> None:
        tried.stage, tried.detail = stage, detail
        self.runs.save(tried)
        del self._live[tried.name]
        if stage is Stage.MISSING:
            self.caller.say(f"{tried.unit.cell}: missing: {detail}.")

    def _cancel(self) -> None:
        """End every unit that has no answer yet."""
        # A batch that was stored may have been submitted: only another submission gives its handles.
        for name in dict.fromkeys(tried.batch for tried in self._at(Stage.BATCHED)):
            self._submit(self._batch(name))
        flying = self._at(Stage.SUBMITTED)
        if flying:
            self.fleet.cancel([tried.handle for tried in flying])
        with self.runs.transaction():
            for tried in flying + self._at(Stage.PLANNED):
                self._end(tried, Stage.CANCELLED, "the run was cancelled")

    def _at(self, stage: Stage) -> list[Tried]:
        """Return the units in a stage that is not an end."""
        return [tried for tried in self._live.values() if tried.stage is stage]
