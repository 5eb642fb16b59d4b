"""A scheduler whose jobs are files, so that it outlives the process of the submitter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validator.engines.protocol import ProbeRequest
from validator.fleet.protocol import (
    Answer,
    Capacity,
    CutError,
    Fault,
    FleetDown,
    Handle,
    Phase,
    Refused,
    State,
    Unit,
)
from validator.fleet.run_store import Tried
from validator.fleet.settings import Limits
from validator.fleet.submitter import Settled
from validator.model.record import Unread

#: How a job ends that is not listed in FakeFleet.endings.
OK = "ok"
CUT = "cut"
#: The scheduler forgets the job; its result is there.
FORGOTTEN = "forgotten with its result"
OTHER_IMAGE = "other image"


@dataclass
class FakeFleet:
    """A scheduler.

    endings: how an attempt at a cell ends, by (image, host class, attempt): OK, CUT, FORGOTTEN, OTHER_IMAGE
    or a Fault. refused: the answer to a submission, by the same key. down: how many calls fail, by method.

    answer: what a job brings back; None for an answer that names its cell.
    step: called before and after everything that changes something, with its name.
    """

    directory: Path
    capacities: tuple[Capacity, ...]
    endings: Mapping[tuple[str, str, int], str | Fault] = field(default_factory=dict)
    refused: Mapping[tuple[str, str, int], Refused] = field(default_factory=dict)
    down: Counter[str] = field(default_factory=Counter)
    step: Callable[[str], None] = lambda _: None
    answer: Callable[[dict[str, Any]], Answer] | None = None
    log: str | None = None
    in_flight: int = 4
    workers: int = 1
    batch: int = 3
    name: str = "fake"
    #: The names of each submission, in its order.
    submissions: list[tuple[str, ...]] = field(default_factory=list)
    most_flying: Counter[str] = field(default_factory=Counter)

    def limits(self, host_class: str) -> Limits:
        return Limits(in_flight=self.in_flight, workers=self.workers)

    def inventory(self) -> tuple[Capacity, ...]:
        self._answer("inventory")
        return self.capacities

    def submit(
        self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]
    ) -> Mapping[str, Handle | Refused]:
        assert 0 < len(units) <= self.batch
        assert len({unit.host_class for unit in units}) == 1
        assert {unit.name for unit in units} == set(requests)
        self._answer("submit")
        self.submissions.append(tuple(unit.name for unit in units))
        found: dict[str, Handle | Refused] = {}
        for unit in units:
            key = (unit.image, unit.host_class, unit.attempt)
            if key in self.refused:
                found[unit.name] = self.refused[key]
                continue
            path = self._path(f"job-{unit.name}")
            if not path.exists():
                job = {
                    "cell": unit.cell, "host_class": unit.host_class, "image": unit.image_digest,
                    "ending": self.endings.get(key, OK), "seen": 0,
                    "arguments": requests[unit.name].arguments,
                }  # fmt: skip
                # Exclusive: a job that is submitted twice is an error of the test's subject.
                with path.open("x") as file:
                    json.dump(job, file)
            found[unit.name] = f"job-{unit.name}"
            self.step("submitted one")
        for host_class, number in self._flying().items():
            self.most_flying[host_class] = max(self.most_flying[host_class], number)
        self.step("submitted")
        return found

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        self._answer("poll")
        found = {}
        for handle in handles:
            job = self._job(handle)
            job["seen"] += 1
            self._path(handle).write_text(json.dumps(job))
            state = self._state(job)
            if state is not None:
                found[handle] = state
        self.step("polled")
        return found

    def collect(self, handle: Handle) -> Answer:
        self._answer("collect")
        job = self._job(handle)
        if job["ending"] == CUT:
            raise CutError("the frame report has 3 of 5 bytes")
        if self.answer is not None:
            return self.answer(job)
        digest = "sha256:" + "0" * 64 if job["ending"] == OTHER_IMAGE else job["image"]
        return Answer(Unread.NOT_ASKED, "fake", True, digest, "node1", job["cell"].encode())

    def cancel(self, handles: Sequence[Handle]) -> None:
        self._answer("cancel")
        for handle in handles:
            self._path(handle).write_text(json.dumps({**self._job(handle), "ending": Fault.CANCELLED}))

    def logs(self, handle: Handle) -> str:
        return f"the log of {handle}" if self.log is None else self.log

    def forget(self, handles: Sequence[Handle]) -> None:
        self._answer("forget")
        for handle in handles:
            self._path(handle).rename(self._path(f"old-{handle}"))

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        return "".join(f"submit {unit.name} {unit.cell}\n" for unit in units)

    def close(self) -> None:
        """Do nothing."""

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return everything that was ever submitted, by the name of its unit."""
        return {path.name.split("job-")[1]: self._job(path.name) for path in self.directory.glob("*job-*")}

    def _answer(self, call: str) -> None:
        self.step(call)
        if self.down[call] > 0:
            self.down[call] -= 1
            raise FleetDown("Unable to contact slurm controller (connect failure)")

    def _flying(self) -> Counter[str]:
        paths = self.directory.glob("job-*")
        return Counter(
            job["host_class"] for path in paths if (job := self._job(path.name)) and not self._has_ended(job)
        )

    def _has_ended(self, job: dict[str, Any]) -> bool:
        state = self._state(job)
        return state is None or state.phase not in (Phase.WAITING, Phase.RUNNING)

    def _state(self, job: dict[str, Any]) -> State | None:
        """Each look at a job takes it one state further."""
        if job["ending"] == Fault.CANCELLED:
            return State(Phase.LOST, "CANCELLED", fault=Fault.CANCELLED)
        if job["seen"] <= 1:
            return State(Phase.WAITING, "Priority")
        if job["seen"] == 2:
            return State(Phase.RUNNING, node="node1")
        if job["ending"] == FORGOTTEN:
            return None
        if job["ending"] in (OK, CUT, OTHER_IMAGE):
            return State(Phase.ENDED, node="node1")
        return State(Phase.LOST, "in the scheduler's words", "node1", Fault(job["ending"]))

    def _job(self, handle: str) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self._path(handle).read_text())
        return job

    def _path(self, name: str) -> Path:
        return self.directory / name


@dataclass
class FakeCaller:
    """A store of records that is a directory. Each record that is made is another one, as signatures are."""

    directory: Path
    step: Callable[[str], None] = lambda _: None
    said: list[str] = field(default_factory=list)
    shown: list[dict[str, Counter[str]]] = field(default_factory=list)
    failing: tuple[str, ...] = ()
    wrong: Callable[[Tried], None] = lambda _: None
    made: int = 0

    def settle(self, tried: Tried, answer: Answer) -> Settled:
        self.step("settle")
        self.wrong(tried)
        self.made += 1
        made = f"{tried.name}-{self.made}-{len(list(self.directory.iterdir()))}-{id(answer)}"
        record = {"cell": tried.unit.cell, "made": made, "report": (answer.report or b"").decode()}
        self.step("settled")
        return Settled(json.dumps(record).encode(), made, tried.unit.cell in self.failing)

    def deliver(self, record: bytes) -> None:
        self.step("deliver")
        (self.directory / json.loads(record)["made"]).write_bytes(record)
        self.step("delivered")

    def say(self, line: str) -> None:
        self.said.append(line)

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        self.shown.append({host_class: Counter(counts) for host_class, counts in tally.items()})

    def records(self) -> Counter[str]:
        """Return how many records each cell has."""
        return Counter(json.loads(path.read_bytes())["cell"] for path in self.directory.iterdir())
