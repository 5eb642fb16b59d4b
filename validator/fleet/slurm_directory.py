"""The directory that a Slurm cluster's nodes share with this machine.

    objects/SHA256          files of requests: the probe, locks
    tools/DIGEST/           what a job runs: slurm_job.py, inside.py, ask_nvml.py with its module
    arrays/NAME/            job.sh, requests (JSON, a line for each unit), output/,
                            results/INDEX.JOB-RESTART.frames or .fault
    units/NAME              the array and the index of a unit
    images/                 what nodes converted, once for each digest

Everything of an array is written before it is submitted, under a name that follows from its content, so any
submitter that was killed finds its work again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

import pynvml

from ..engines import ask_nvml
from ..engines.protocol import ProbeRequest
from ..model.spec import NO_GPU
from ..system.files import write_atomically
from . import inside, slurm_job
from .protocol import FleetDown, Handle
from .settings import SlurmSettings
from .settings_schema import SlurmPlace
from .units import Unit

#: Seconds to wait for another submitter.
_LOCK_S = 120.0


class SlurmDirectory:
    """The directory that the settings of the cluster name."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self.path = settings.directory

    def write(
        self, name: str, units: Sequence[Unit], requests: Mapping[str, ProbeRequest], place: SlurmPlace
    ) -> None:
        """Write everything that the jobs of an array read. What is there already stays."""
        for file, content in _tools().items():
            _write_once(self.path / "tools" / _tools_digest() / file, content)
        array = self.path / "arrays" / name
        for part in ("output", "results"):
            (array / part).mkdir(parents=True, exist_ok=True)
        lines = []
        for unit in units:
            request = requests[unit.name]
            files = {"probe.pyz": request.archive, **request.files}
            digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
            for file, digest in digests.items():
                _write_once(self.path / "objects" / digest, files[file])
            described = {
                "unit": unit.name,
                "reference": unit.reference,
                "arguments": list(request.arguments),
                "timeout_s": request.timeout_s,
                "tasks": unit.tasks,
                "gpus": unit.host_class != NO_GPU,
                "minutes": place.time_limit,
                "container": self._settings.container,
                "python": _python(request.files.get("lock.txt", b"")),
                "files": digests,
            }
            lines.append(json.dumps(described) + "\n")
        _write_once(array / "requests", "".join(lines).encode())
        _write_once(array / "job.sh", self.script(name, units[0].tasks).encode())

    def claim(self, unit: str, array: str, index: int) -> Handle:
        """Return the handle of a unit, with the first array that claimed it: this one, if no other did."""
        claim = self.path / "units" / unit
        _write_once(claim, f"{array}/{index}".encode())
        return f"{claim.read_text('ascii')}/{unit}"

    def script(self, array: str, tasks: int) -> str:
        """Return the batch script of an array."""
        program = self.path / "tools" / _tools_digest() / "slurm_job.py"
        template = Path(__file__).with_name("templates").joinpath("job.sh").read_text("utf-8")
        return Template(template).substitute(
            # Single quotes: a directory may have any name. -B: nodes write nothing next to the tools.
            job=shlex.join([self._settings.python, "-E", "-s", "-B", str(program), str(self.path), array]),
            setup=f"{self._settings.setup}\n" if self._settings.setup else "",
            # A task on each node. The others go on when one has ended: it says itself what happened.
            step=f"srun --ntasks={tasks} --ntasks-per-node=1 --kill-on-bad-exit=0 " if tasks > 1 else "",
        )

    def results(self, array: str) -> dict[int, list[Path]]:
        """Return the files of an array's results, by index."""
        found: dict[int, list[Path]] = {}
        for path in (self.path / "arrays" / array / "results").glob("[0-9]*"):
            index = path.name.partition(".")[0]
            if index.isdecimal():
                found.setdefault(int(index), []).append(path)
        return found

    def outputs(self, array: str, index: int) -> list[Path]:
        """Return the files with the output of the runs of a unit, oldest first."""
        return sorted((self.path / "arrays" / array / "output").glob(f"{index}.*"), key=changed_at)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let one submitter at a time look into the queue and submit.

        On a file system without locks, two of them may submit the same array: both arrays measure, and one
        result counts.
        """
        path = self.path / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_S
        with open(path, "a", encoding="utf-8") as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise FleetDown(f"another submitter has held {path} for {_LOCK_S:.0f} s") from None
                    time.sleep(0.1)
                    continue
                except OSError:
                    pass
                break
            yield


def parts_of(handle: Handle) -> tuple[str, int, str]:
    """Return the array, the index and the unit of a handle."""
    array, index, unit = handle.split("/")
    return array, int(index), unit


def changed_at(path: Path) -> float:
    """Return when a file was changed, as a timestamp; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


@functools.cache
def _tools() -> dict[str, bytes]:
    """Return the files of `tools/DIGEST`, by their names."""
    paths = [Path(str(module.__file__)) for module in (slurm_job, inside, ask_nvml, pynvml)]
    return {path.name: path.read_bytes() for path in paths}


@functools.cache
def _tools_digest() -> str:
    content = "".join(hashlib.sha256(text).hexdigest() for _, text in sorted(_tools().items()))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _python(lock: bytes) -> str:
    """Return the Python that a lock is for."""
    found = re.search(rb"^# python: ([\d.]+)$", lock, re.MULTILINE)
    return found[1].decode() if found else "3"


def _write_once(path: Path, content: bytes) -> None:
    if not path.exists():
        write_atomically(path, content)
