"""A unit's run on this node: its request, its time, and the tasks on other nodes that belong to it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from .commands import output_of

HERE = Path(__file__).resolve().parents[1]
#: Where a container finds its request.
PLACE = "/tfm"
#: Seconds of the job's time that stay for ending the container and writing the result. Slurm may send its
#: warning a minute early.
RESERVE_S = 150.0
#: The first of the ports at which the tasks of a unit meet, and how many there are.
_PORTS = (20_000, 10_000)


class Failed(Exception):
    """An infrastructure fault. code: of `protocol.Fault`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Tasks:
    """The tasks of a unit, of which this is one. results: the directory. run: the name of the job's run.

    addresses: where the tasks meet, by their numbers; empty if there is only one.
    """

    def __init__(self, count: int, results: Path, run: str) -> None:
        self.rank = int(os.environ["SLURM_PROCID"]) if count > 1 else 0
        self.addresses: list[str] = []
        self._count = count
        self._results = results
        self._run = run

    def find(self) -> None:
        """Find the addresses. Raises Failed."""
        if self._count == 1:
            return
        nodes = output_of(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]).split()
        if len(nodes) != self._count:
            raise Failed("not_started", f"scontrol names {len(nodes)} nodes of this job, not {self._count}")
        # A port for each that no other job on these nodes is likely to use.
        first, ports = _PORTS
        offset = int(os.environ["SLURM_JOB_ID"]) * self._count
        self.addresses = [
            f"{_address(node)}:{first + (offset + rank) % ports}" for rank, node in enumerate(nodes)
        ]

    @property
    def suffix(self) -> str:
        """Return the end of the names of this task's frames and files."""
        return f".{self.rank}" if self.rank else ""

    def ended(self) -> bool:
        """Return whether this task need not go on. Raises Failed if another one could not begin or go on."""
        for path in self._results.glob(f"{self._run}.*fault"):
            if path.name != f"{self._run}{self.suffix}.fault":
                fault = json.loads(path.read_text(encoding="utf-8"))
                raise Failed(fault["fault"], f"on {fault['node']}: {fault['detail']}")
        return self.rank > 0 and self.result_is_there()

    def result_is_there(self) -> bool:
        """Return whether task 0 has written the result."""
        return (self._results / f"{self._run}.frames").exists()


def _address(node: str) -> str:
    """Return how Slurm itself reaches a node; its name need not be known elsewhere."""
    found = re.search(r"\bNodeAddr=(\S+)", output_of(["scontrol", "show", "node", "-o", node]))
    return found[1] if found else node


class Job:
    """One run of a unit on this node. limit: of its time, by the monotonic clock."""

    def __init__(self, directory: Path, unit: str, request: dict[str, Any], work: Path, tasks: Tasks) -> None:
        self.directory = directory
        self.unit = unit
        self.request = request
        self.work = work
        self.tasks = tasks
        self.payload = work / "request"
        self.started = time.monotonic()
        minutes = float(request["minutes"])
        self._deadline = self.started + minutes * 60 - min(RESERVE_S, minutes * 30)

    def left_s(self) -> float:
        """Return the seconds that are left. Raises Failed when there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Failed("deadline", f"the {self.request['minutes']} minutes of this job are over")
        return left

    def lay_out(self) -> None:
        """Put the files of the request where the container will see them, and nothing else."""
        self.payload.mkdir()
        shutil.copyfile(HERE / "inside.py", self.payload / "inside.py")
        for name, digest in self.request["files"].items():
            content = (self.directory / "objects" / digest).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise Failed(
                    "not_started", f"{name} in the shared directory is not the file that was submitted"
                )
            (self.payload / name).write_bytes(content)
        # The user inside the container may be another one.
        self.payload.chmod(0o755)
        for path in self.payload.iterdir():
            path.chmod(0o644)

    def inside(self, place: str) -> list[str]:
        """Return the arguments of Python inside the container. place: of the request there."""
        own = [f"{place}/inside.py", "--limit", f"{self.request['timeout_s']:.0f}"]
        if self.tasks.addresses:
            own += ["--task", str(self.tasks.rank), "--workers", ",".join(self.tasks.addresses)]
        return [*own, "--", *self.request["arguments"]]
