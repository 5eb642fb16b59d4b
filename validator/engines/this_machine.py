"""Look at this machine within a second or two: GPUs, driver, containers, Pythons, the active environment.

Whatever may hang is asked side by side, and has a deadline: NVML, the engines, and the Python of the active
environment. That Python runs only the checks of the probe that don't import TensorFlow: its version is read
from its metadata. What did not answer in time is said to be unknown.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ..errors import ValidatorError
from ..model.prediction import Host
from ..model.record import GpuIdentity, Outside, Unread
from ..model.report import Report, ReportError, read_report
from ..system import processes
from ..system.runs import environment_of_children, temporary_directory
from .host_reading import kernel_reading, read_host, read_this_host
from .protocol import clean_environment

#: Seconds in which all parts have to answer, and before their end in which a child process is ended.
LIMIT_S, _SPARE_S = 1.7, 0.15
#: The part of its time after which the probe writes what it found.
_PROBE_SHARE = 0.7
#: The check that opens CUDA's libraries, which may take long where nobody used them for a while.
LIBRARIES = "cuda_libraries"
#: The checks of the probe that don't import TensorFlow, except those that need a second or more.
CHECKS = ("gpu_device_nodes", "environment", "tpu_interference", LIBRARIES)
#: The minor versions of Python 3 that are looked for.
_MINORS = range(9, 16)
_ELF = b"\x7fELF"
_PROBE = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("Python %d.%d is too old to be examined" % sys.version_info[:2])
sys.path.append(sys.argv.pop(1))
from validator.probe.cli import main
sys.exit(main())
"""
_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Container:
    """An engine that is installed."""

    name: Annotated[str, "`docker` or `podman`."]
    version: Annotated[str | None, "Null if it can't be used."]
    gives_gpus: Annotated[bool | None, "Whether its containers get GPUs; null if that is not known."] = None
    why: Annotated[str, "Why it can't be used; empty if it can."] = ""


@dataclass(frozen=True)
class Environment:
    """The active environment. found_by: `VIRTUAL_ENV`, `CONDA_PREFIX` or `PATH`.

    python: None if there is no Python. report: None if that Python could not be asked, for the reason `why`.
    """

    python: Path | None
    found_by: str
    report: Report | None = None
    why: str = ""


@dataclass(frozen=True)
class Seen:
    """What this machine shows.

    gpus: as NVML lists them, or without an answer from it, the names that the kernel lists. driver_silent:
    the kernel has a driver, but NVML did not answer in time. pythons: the path of each minor version.
    """

    host: Host
    gpus: tuple[GpuIdentity, ...]
    driver_silent: bool
    containers: tuple[Container, ...]
    pythons: Mapping[str, str]
    environment: Environment


def look(limit_s: float = LIMIT_S, meanwhile: Callable[[], object] = lambda: None) -> Seen:
    """Return what this machine shows within this time. Raises nothing because of what it finds.

    meanwhile: called while the parts are asked.
    """
    deadline = time.monotonic() + limit_s

    def left() -> float:
        """Return how long a child process may run that starts now."""
        # The first child waits until the notes about this run are on the disk.
        environment_of_children()
        return max(deadline - _SPARE_S - time.monotonic(), _SPARE_S)

    python, found_by = active_python(os.environ)
    # The environment takes longest.
    environment = _Part(lambda: _environment(python, found_by, left()))
    driver = _Part(lambda: read_host(left()))
    podman = _Part(lambda: _podman(left()))
    docker = _Part(_docker)
    meanwhile()
    outside = driver.answer(deadline, Unread.NVML_SILENT)
    silent = False
    kernel = kernel_reading()
    if not isinstance(outside, Outside) and kernel is not None:
        outside, silent = kernel, time.monotonic() > deadline - _SPARE_S
    host = read_this_host(one_kind=False, outside=outside)
    late = f"it did not answer within {limit_s:.1f} s"
    containers = (
        docker.answer(deadline, Container("docker", None, why=late)),
        podman.answer(deadline, Container("podman", None, why=late)),
    )
    return Seen(
        host,
        outside.gpus if isinstance(outside, Outside) else (),
        silent,
        tuple(one for one in containers if one is not None),
        pythons_on_path(),
        environment.answer(deadline, Environment(python, found_by, why=late)),
    )


class _Part:
    """Call a function in a thread that nobody waits for at exit."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._found.append(function()), daemon=True)
        self._thread.start()

    def answer(self, deadline: float, otherwise: Any) -> Any:
        """Return the function's result, or `otherwise` if it has none by then."""
        self._thread.join(max(deadline - time.monotonic(), 0.01))
        return self._found[0] if self._found else otherwise


def active_python(variables: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return the Python of the active environment, or None, and what names that environment."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            python = Path(variables[name], "bin", "python").absolute()
            return (python if os.access(python, os.X_OK) else None), name
    found = (shutil.which(name, path=variables.get("PATH")) for name in ("python", "python3"))
    python_on_path = next(filter(None, found), None)
    return (Path(python_on_path).absolute() if python_on_path else None), "PATH"


def pythons_on_path() -> dict[str, str]:
    """Return the path of the first interpreter of each minor version, without starting any."""
    found: dict[str, str] = {}
    for directory, minor in itertools.product(os.get_exec_path(), _MINORS):
        path = Path(directory, f"python3.{minor}")
        # pyenv puts a script there for each version that any of its environments has.
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file.read(len(_ELF)) == _ELF or sys.platform != "linux":
                found.setdefault(f"3.{minor}", str(path))
    return dict(sorted(found.items(), key=lambda one: int(one[0].partition(".")[2])))


def _environment(python: Path | None, found_by: str, limit_s: float) -> Environment:
    if python is None:
        return Environment(None, found_by, why="there is no Python")
    options = ["--time-limit", str(limit_s * _PROBE_SHARE), *(f"--only={name}" for name in CHECKS)]
    try:
        with temporary_directory("here") as place:
            # Nothing else next to this package may be found in the path.
            (place / "validator").symlink_to(_PACKAGE)
            done = processes.run(
                [python, "-c", _PROBE, place, *options],
                env=clean_environment(),
                cwd=place,
                timeout_s=limit_s,
                grace_s=0,
            )
        if done.timed_out:
            return Environment(python, found_by, why=f"it did not answer within {limit_s:.1f} s")
        if not done.ok:
            last = done.stderr_tail.strip().splitlines()[-1:] or [f"it exits with status {done.returncode}"]
            return Environment(python, found_by, why=last[0])
        return Environment(python, found_by, read_report(done.stdout))
    except OSError as error:
        return Environment(python, found_by, why=error.strerror or str(error))
    except (ReportError, ValidatorError) as error:
        return Environment(python, found_by, why=str(error))


def _docker() -> Container | None:
    """Return the Docker Engine; None without the command and without an engine."""
    # The SDK takes a fifth of a second to load, in which the other parts go on.
    from .containers import offers_gpus
    from .endpoint import connect

    try:
        endpoint = connect()
    except ValidatorError as error:
        installed = shutil.which("docker") is not None
        return Container("docker", None, why=str(error)) if installed else None
    try:
        return Container("docker", endpoint.version, offers_gpus(endpoint.info))
    finally:
        endpoint.quick.close()
        endpoint.client.close()


def _podman(limit_s: float) -> Container | None:
    program = shutil.which("podman")
    if program is None:
        return None
    try:
        done = processes.run(
            [program, "info", "--format", "{{.Version.Version}}"], timeout_s=limit_s, grace_s=0
        )
    except OSError as error:
        return Container("podman", None, why=error.strerror or str(error))
    version = done.stdout.decode(errors="replace").strip()
    if done.ok and re.fullmatch(r"[\d.]+\S*", version):
        return Container("podman", version)
    last = done.stderr_tail.strip().splitlines()[-1:] or ["it did not answer"]
    return Container("podman", None, why=last[0])
