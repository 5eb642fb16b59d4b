"""Requests whose probe is a few lines of Python, for tests that are not about the probe."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence

from validator.engines.protocol import ProbeRequest
from validator.fleet.protocol import Handle, Refused, State, Unit
from validator.fleet.slurm import SlurmFleet

from .cluster import until

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK = f"# python: {_PYTHON}\n".encode()
#: Seconds within which the jobs of a test end, also on a machine with much to do.
_ENDED_S = 180.0
#: What the fake probe reports. It is no report, so nothing can be certified by it.
REPORT = b'{"fake": true}'


def fake(seconds: float = 0.0, program: str = "", timeout_s: float = 200.0) -> ProbeRequest:
    """Return a request. seconds: how long the probe takes. program: more lines, before it reports."""
    source = f"import os, sys, time\n{program}\ntime.sleep({seconds})\nprint({REPORT.decode()!r})\n"
    return ProbeRequest(source.encode(), (), {"lock.txt": LOCK}, timeout_s)


def prepare(fleet: SlurmFleet) -> None:
    """Make the environment that the first job would make, but without pip, which takes seconds."""
    images = fleet.directory / "images"
    images.mkdir(parents=True, exist_ok=True)
    place = images / f"sha256-{hashlib.sha256(LOCK).hexdigest()}-venv"
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)


def submitted(fleet: SlurmFleet, requests: Sequence[tuple[Unit, ProbeRequest]]) -> list[Handle]:
    """Submit units and return their handles, which all of them must have."""
    became = fleet.submit([unit for unit, _ in requests], {unit.name: request for unit, request in requests})
    handles = []
    for one, _ in requests:
        handle = became[one.name]
        assert not isinstance(handle, Refused), handle
        handles.append(handle)
    return handles


def state(fleet: SlurmFleet, handle: Handle) -> State | None:
    return fleet.poll([handle]).get(handle)


def ended(fleet: SlurmFleet, handles: Sequence[Handle]) -> list[State | None]:
    """Wait until all units have ended, and return their states."""
    found: dict[Handle, State] = {}

    def over() -> bool:
        found.clear()
        found.update(fleet.poll(handles))
        return all(handle not in found or not _goes_on(found[handle]) for handle in handles)

    until(over, "the end of the units", _ENDED_S)
    return [found.get(handle) for handle in handles]


def _goes_on(of: State) -> bool:
    return of.phase.value in ("waiting", "running")
