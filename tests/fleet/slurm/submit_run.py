"""A script: take a run over the test cluster to its end, as `build-matrix --on slurm` does.

    python -m tests.fleet.slurm.submit_run DIRECTORY SETUP CELLS ROUND

It is killed at random moments. Records go to DIRECTORY/records, one file each, under the cell's name.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.fleet.making import unit
from validator.fleet.protocol import Answer
from validator.fleet.run_store import Runs, Tried, Work
from validator.fleet.settings import SlurmSection
from validator.fleet.slurm import SlurmFleet
from validator.fleet.submitter import Settled, Submitter
from validator.system.files import write_atomically

from .conftest import PLACES
from .requests import fake, prepare


class Recorder:
    """Stores a record of each answer. Each record has an id of its own, so two of one cell are two files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def settle(self, tried: Tried, answer: Answer) -> Settled:
        record = json.dumps(
            {"cell": tried.unit.cell, "job": answer.started, "report": str(answer.report)}
        ).encode()
        return Settled(record, hashlib.sha256(record).hexdigest()[:12])

    def deliver(self, record: bytes) -> None:
        cell = json.loads(record)["cell"]
        name = f"{cell}.{hashlib.sha256(record).hexdigest()[:12]}"
        write_atomically(self._directory / name, record)

    def say(self, line: str) -> None:
        print(line, flush=True)

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        """Show nothing."""


def main(directory: Path, setup: str, cells: int, number: int) -> None:
    settings = SlurmSection(
        directory=str(directory / "shared"), container="venv", setup=setup, host_classes=PLACES
    )
    # On a busy machine, many seconds can pass before the result of a job that left the queue is visible.
    fleet = SlurmFleet(settings, settle_s=60.0)
    prepare(fleet)
    records = directory / "records"
    records.mkdir(parents=True, exist_ok=True)
    key = f"round-{number}"
    with Runs(directory / "runs") as runs, runs.submitting(key):
        run = runs.open_run(key, fleet.name, ["build-matrix"], {})
        classes = ("r580-h100", "r580-l4", "r535-t4")
        cell = range(number * cells, (number + 1) * cells)
        units = [unit(image, classes[image % 3]) for image in cell]
        # What has a record is not measured again: the run may have ended just before the kill.
        missing = [one for one in units if not list(records.glob(f"{one.cell}.*"))]
        runs.add(run, [Work(one, fake(0.2)) for one in missing])
        Submitter(fleet, runs, run, Recorder(records), poll_s=0.2).work()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
