"""Run the probe with a Python of this machine, which may be that of any environment."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..assemble.progress import Progress
from ..errors import InputError, MissingError, ValidatorError
from ..system import processes
from ..system.files import full_disk_named
from ..system.runs import temporary_directory
from .protocol import ProbeRequest

#: Python takes a while to start from a slow network drive.
_START_TIMEOUT_S = 60.0
#: The oldest Python that the probe supports.
_PROBE_PYTHON = (3, 9)
_CHOOSE_PYTHON = "give the Python of the environment to examine, such as ~/venv/bin/python"
#: Variables that would make the probed environment use parts of the calling one.
_OF_THE_CALLER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


def run_probe(
    python: Path,
    request: ProbeRequest,
    progress: Progress,
    libraries: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run the probe with any Python on this machine and return its standard output.

    libraries: directories that the loader searches before those in LD_LIBRARY_PATH.
    environment: the variables of the probe; by default those of this process, without those that would make
        the probed environment use parts of the calling one.
    Raises ValidatorError if the probe writes nothing or exceeds its time limit.
    """
    with full_disk_named(tempfile.gettempdir()), temporary_directory("probe") as directory:
        for file, content in {"probe.pyz": request.archive, **request.files}.items():
            (directory / file).write_bytes(content)
        variables = clean_environment() if environment is None else dict(environment)
        if libraries:
            path = [*map(str, libraries), variables.get("LD_LIBRARY_PATH", "")]
            variables["LD_LIBRARY_PATH"] = ":".join(part for part in path if part)
        try:
            result = processes.run(
                [python, directory / "probe.pyz", *request.arguments],
                env=variables,
                cwd=directory,
                timeout_s=request.timeout_s,
                on_line=progress,
            )
        except OSError as error:
            raise MissingError(f"{python}: can't be run: {error.strerror}", hint=_CHOOSE_PYTHON) from error
    if result.timed_out:
        raise ValidatorError(
            f"the probe exceeded its time limit of {request.timeout_s:.0f} s and was stopped"
        )
    if not result.stdout.strip():
        last = result.stderr_tail.strip().splitlines()[-1:] or ["no message"]
        raise ValidatorError(f"the probe exited with status {result.returncode} without a report: {last[0]}")
    return result.stdout


def refuse_other_program(python: Path) -> None:
    """Raise InputError if a program is not a Python, or is one that the probe does not support."""
    program = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    try:
        result = processes.run([python, "-c", program], env=clean_environment(), timeout_s=_START_TIMEOUT_S)
    except OSError as error:
        raise InputError(f"--python: {python} can't be run: {error.strerror}", hint=_CHOOSE_PYTHON) from error
    answer = result.stdout.decode(errors="replace").strip()
    version = re.fullmatch(r"(\d)\.(\d+)", answer)
    if version is None:
        stderr = result.stderr_tail.strip().splitlines()[:1]
        output = f"its output is {answer[:80]!r}" if answer else (stderr or ["it has no output"])[0]
        raise InputError(f"--python: {python} is not a Python: {output}", hint=_CHOOSE_PYTHON)
    if (int(version[1]), int(version[2])) < _PROBE_PYTHON:
        oldest = ".".join(map(str, _PROBE_PYTHON))
        raise InputError(
            f"--python: {python} is Python {answer}, but the probe needs {oldest} or newer",
            hint=_CHOOSE_PYTHON,
        )


def clean_environment() -> dict[str, str]:
    """Return the variables of this process without those of its own environment."""
    return {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
