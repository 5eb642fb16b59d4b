"""Measure what a fleet costs the machine that submits: `python benchmarks/fleet.py`.

It prints the processor time of each cell and the peak memory of two runs, each in a process of its own:
 - 10,000 cells with an engine in memory whose jobs end at once: the submitter and its run store, reading and
   judging a report for each cell, and adding its record to the store. Signatures are not counted: cosign runs
   once for each record;
 - 1,000 cells as arrays of a real Slurm cluster on this machine, if Slurm is installed: also the engine,
   Slurm's own client programs, and the directory that nodes share. No job runs: the nodes are drained, and
   the results are copies of one that a node wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.fleet.making import unit  # noqa: E402
from tests.fleet.slurm.cluster import running_cluster  # noqa: E402
from tests.fleet.slurm.requests import ended, fake, prepare, submitted  # noqa: E402
from tests.records.values import document  # noqa: E402
from validator.engines.protocol import ProbeRequest  # noqa: E402
from validator.fleet.inside import frame  # noqa: E402
from validator.fleet.protocol import (  # noqa: E402
    Answer,
    Capacity,
    Handle,
    Phase,
    State,
    Unit,
    read_answer,
)
from validator.fleet.run_store import Runs, Work  # noqa: E402
from validator.fleet.settings import Limits, SlurmPlace, SlurmSection  # noqa: E402
from validator.fleet.slurm import SlurmFleet  # noqa: E402
from validator.fleet.submitter import Submitter  # noqa: E402
from validator.model.record import Unread  # noqa: E402
from validator.model.spec import HostClass, Variant  # noqa: E402
from validator.pipeline.fleet import Recorder, StoredCell, StoredHost  # noqa: E402
from validator.pipeline.measuring import Question  # noqa: E402
from validator.records.store import Store  # noqa: E402
from validator.versions import ComputeCapability, DriverRelease  # noqa: E402

SIMULATED = 10_000
ON_SLURM = 1_000
LIMIT_MS = 20.0
LIMIT_MB = 300.0
CLASSES = ("r580-h100", "r580-l4", "r550-a100", "r535-t4")
#: About as many bytes as TensorFlow writes during a probe; they are part of the report.
LOG_BYTES = 20_000
CHALLENGE = "ab" * 32


class Simulated:
    """An engine in memory. A job runs when it is first looked at, and has ended the next time."""

    name = "simulated"
    batch = 500

    def __init__(self) -> None:
        self._seen: set[Handle] = set()
        self._output = _output()

    def limits(self, host_class: str) -> Limits:
        return Limits(in_flight=500)

    def inventory(self) -> tuple[Capacity, ...]:
        return tuple(Capacity(name, 100, 100, 8) for name in CLASSES)

    def submit(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> Mapping[str, Handle]:
        return {one.name: one.name for one in units}

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        found = {handle: State(Phase.ENDED if handle in self._seen else Phase.RUNNING) for handle in handles}
        self._seen.update(handles)
        return found

    def collect(self, handle: Handle) -> Answer:
        return read_answer(self._output, Answer(Unread.NVML_SILENT, "podman", True, node="node1"))

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Do nothing."""

    def logs(self, handle: Handle) -> str:
        return ""

    def forget(self, handles: Sequence[Handle]) -> None:
        """Do nothing."""

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        return ""

    def close(self) -> None:
        """Do nothing."""


def simulated(place: Path) -> None:
    """Take 10,000 cells to their records."""
    with Runs(place / "runs") as runs, Store(f"sqlite:///{place}/records.db") as store:
        run = runs.open_run("benchmark", "simulated", [], {})
        runs.add(run, [_work(number) for number in range(SIMULATED)])
        caller = Recorder(store, None, lambda line: None, lambda tally: None)
        ended = Submitter(Simulated(), runs, run, caller, sleep=lambda _: None).work()
    assert len(ended) == SIMULATED and all(tried.record_id for tried in ended)
    _report(SIMULATED)


def _work(number: int) -> Work:
    host = HostClass(CLASSES[0], DriverRelease.parse("580"), ComputeCapability.parse("9.0"), "H100")
    one = unit(number, CLASSES[number % len(CLASSES)])
    question = Question(
        one.image, Variant.GPU, one.lock_digest, one.probe_version, one.depth, f"{number:064}", "simulated",
        image_digest=one.image_digest, challenge=CHALLENGE,
    )  # fmt: skip
    asked = msgspec.structs.replace(StoredHost.of(host), identifier=one.host_class)
    return Work(one, fake(), msgspec.json.encode(StoredCell(question, asked)))


def _output() -> bytes:
    """Return what a job writes: a report in a frame, and how the probe ended."""
    made = document() | {
        "challenge": CHALLENGE,
        "logs": {"tensorflow_stderr": "A line.\n" * (LOG_BYTES // 8)},
    }
    report = json.dumps(made).encode()
    ending = {
        "status": 0, "timed_out": False, "overflow": False, "limit_s": 600.0, "last_line": "",
        "report": hashlib.sha256(report).hexdigest(), "length": len(report), "checks": {"pass": 23},
        "started": "2026-11-01T00:00:00+00:00", "finished": "2026-11-01T00:01:00+00:00",
    }  # fmt: skip
    return frame("report", report) + frame("ending", json.dumps(ending).encode())


def on_slurm(place: Path, configuration: str) -> None:
    """Submit 1,000 cells, look at the queue ten times, and collect their results."""
    os.environ["SLURM_CONF"] = configuration
    fleet = _fleet(place, ON_SLURM)
    result = (place / "result").read_bytes()
    units = [unit(number) for number in range(ON_SLURM)]
    requests = {one.name: fake() for one in units}
    handles: list[Handle] = []
    for start in range(0, ON_SLURM, fleet.batch):
        became = fleet.submit(units[start : start + fleet.batch], requests)
        handles += [str(handle) for handle in became.values()]
    for _ in range(10):
        assert all(state.phase is Phase.WAITING for state in fleet.poll(handles).values())
    for handle in handles:
        array, index, _ = handle.split("/")
        (fleet.directory / "arrays" / array / "results" / f"{index}.1-0.frames").write_bytes(result)
    assert all(state.phase is Phase.ENDED for state in fleet.poll(handles).values())
    for handle in handles:
        # It is the result of another unit, which is found out after everything was read.
        with contextlib.suppress(Exception):
            fleet.collect(handle)
    fleet.cancel(handles)
    _report(ON_SLURM)


def _fleet(place: Path, in_flight: int) -> SlurmFleet:
    slurm_place = SlurmPlace(constraint="h100", in_flight=in_flight)
    return SlurmFleet(
        SlurmSection(
            directory=str(place / "shared"),
            container="venv",
            python=sys.executable,
            host_classes={CLASSES[0]: slurm_place},
        )
    )


def _report(cells: int) -> None:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    print(json.dumps({"cells": cells, "ms": 1000 * seconds / cells, "mb": own.ru_maxrss / 1024}))


def _child(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, *arguments]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, float] = json.loads(shown)
    return measured


def _measured_on_slurm(place: Path) -> dict[str, float]:
    with running_cluster(MaxJobCount="20000") as cluster:
        os.environ["SLURM_CONF"] = str(cluster.configuration)
        fleet = _fleet(place, 1)
        prepare(fleet)
        one = unit(ON_SLURM)
        handles = submitted(fleet, [(one, fake())])
        ended(fleet, handles)
        (written,) = fleet.directory.glob("arrays/*/results/*.frames")
        shutil.copyfile(written, place / "result")
        cluster.operator("scontrol", "update", "nodename=ALL", "state=drain", "reason=benchmark")
        return _child("slurm", str(place), str(cluster.configuration))


def main() -> int:
    """Print the figures. Return 1 if one is over its limit."""
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        results["in memory"] = _child("simulated", directory)
        if shutil.which("sbatch") and shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin"):
            results["on Slurm"] = _measured_on_slurm(Path(directory))
    for name, found in results.items():
        print(
            f"{found['cells']:6.0f} cells {name}: {found['ms']:.1f} ms of processor time a cell"
            f" (limit {LIMIT_MS:.0f}), {found['mb']:.0f} MB (limit {LIMIT_MB:.0f})"
        )
    return int(any(found["ms"] > LIMIT_MS or found["mb"] > LIMIT_MB for found in results.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["simulated"]:
        simulated(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["slurm"]:
        on_slurm(Path(sys.argv[2]), sys.argv[3])
    else:
        raise SystemExit(main())
