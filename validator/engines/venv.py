"""The engine for machines without Docker: virtual environments, made by uv from the same locks.

An environment is not an image. It is stored in the cache directory under its lock's digest, either complete
or not at all, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from ..assemble.progress import Progress
from ..errors import InputError, MissingError, ValidatorError
from ..locks.files import render
from ..locks.uv_errors import explain
from ..model.lock import Lock
from ..model.measurement import Outside, Unread
from ..model.spec import ImageSpec
from ..system import processes
from ..system.files import cache_directory, full_disk_named, symbolic_link, write_atomically
from ..system.runs import temporary_directory
from ..system.sources import PackageSources
from .base import Built, ProbeRequest
from .host_reading import read_host
from .probe_archive import local_host_facts

_INSTALL_TIMEOUT_S = 3600.0
#: Python takes a while to start from a slow network drive.
_START_TIMEOUT_S = 60.0
#: The oldest Python that the probe supports.
_PROBE_PYTHON = (3, 9)
_CHOOSE_PYTHON = "give the Python of the environment to examine, such as ~/venv/bin/python"
_PARTIAL = ".partial-"
#: Variables that would make the probed environment use parts of the calling one.
_OF_THE_CALLER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


class VenvEngine:
    """Builds environments in the directory `root`, with packages from `sources`."""

    name = "venv"
    isolates = False

    def __init__(
        self,
        sources: PackageSources,
        root: Path | None = None,
        host: Callable[[], Outside | Unread] = read_host,
    ) -> None:
        """host: reads the driver and the GPUs of this machine."""
        self._read_host = host
        self._sources = sources
        self._root = root or cache_directory() / "environments"
        remove_leftovers(self._root)

    def describe(self) -> str:
        return "virtual environments on this machine, made by uv"

    def provides(self, python: str) -> str | None:
        return None if find_python(python) else f"Python {python} is not installed"

    def host_facts(self) -> dict[str, Any]:
        return local_host_facts()

    def outside(self) -> Outside | Unread:
        return self._read_host()

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        path = self._path(spec, lock)
        return self._built(spec, lock) if (path / "bin" / "python").exists() else None

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        python = find_python(spec.python)
        if python is None:
            raise MissingError(
                f"{spec}: Python {spec.python} is not installed",
                hint="install it, or use `--engine docker`, whose images contain Python",
            )
        if (found := self.existing(spec, lock)) is not None:
            return found
        with self._partial(spec) as partial:
            progress("creating the environment")
            self._uv(spec, progress, "venv", "--relocatable", "--no-project", "--python", python, partial)
            write_atomically(partial / "lock.txt", render(lock).encode())
            progress(f"installing {len(lock.wheels)} wheels")
            self._uv(
                spec, progress, "pip", "install", "--python", partial / "bin" / "python", "--no-deps",
                "--require-hashes", "--requirement", partial / "lock.txt",
            )  # fmt: skip
            try:
                os.rename(partial, self._path(spec, lock))
            except OSError:
                # Another process may have been faster. Then its environment is used.
                if self.existing(spec, lock) is None:
                    raise
        return self._built(spec, lock)

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        environment = Path(built.reference)
        return run_probe(environment / "bin" / "python", request, progress, library_path(environment))

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _built(self, spec: ImageSpec, lock: Lock) -> Built:
        return Built(spec, str(self._path(spec, lock)), lock.digest)

    def _path(self, spec: ImageSpec, lock: Lock) -> Path:
        return self._root / f"{spec.identifier}-{lock.digest.removeprefix('sha256:')[:16]}"

    @contextlib.contextmanager
    def _partial(self, spec: ImageSpec) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            with full_disk_named(self._root):
                self._root.mkdir(parents=True, exist_ok=True)
                with _locked(self._root / ".lock"):
                    name = stack.enter_context(
                        tempfile.TemporaryDirectory(
                            dir=self._root, prefix=f"{_PARTIAL}{spec.identifier}-", ignore_cleanup_errors=True
                        )
                    )
                    # Held until this process ends, even if it is killed: leftovers are not locked.
                    stack.enter_context(_locked(Path(name) / "in-use"))
            yield Path(name) / "environment"

    def _uv(self, spec: ImageSpec, progress: Progress, *arguments: str | Path) -> None:
        result = processes.run(
            [find_uv_bin(), *arguments, "--no-progress", "--no-python-downloads"],
            env={**_clean_environment(), **self._sources.uv_environment()},
            timeout_s=_INSTALL_TIMEOUT_S,
            on_line=lambda line: progress(self._sources.redact(line)),
        )
        if not result.ok:
            text = self._sources.redact(result.stderr_tail)
            raise explain(text, f"{spec}: the packages can't be installed", timed_out=result.timed_out)


@lru_cache
def find_python(version: str) -> str | None:
    """Return the interpreter that uv finds for a version (`3.12`), outside virtual environments, or None."""
    result = processes.run(
        [find_uv_bin(), "python", "find", "--system", "--no-python-downloads", "--no-project", version],
        env=_clean_environment(),
        timeout_s=60,
    )
    return result.stdout.decode().strip() or None if result.ok else None


def library_path(environment: Path) -> tuple[Path, ...]:
    """Return the library directories of NVIDIA's wheels in an environment, for the loader.

    Some releases don't search all of them by themselves: 2.12 and 2.13 search none, 2.16.1 one, 2.21.0 all
    but cuSOLVER's (`pip_libraries` in validator/compat/data/builds.yaml). Images configure the loader in the
    same way.
    """
    return tuple(sorted(environment.glob("lib/python3*/site-packages/nvidia/*/lib")))


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
        variables = _clean_environment() if environment is None else dict(environment)
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
        result = processes.run([python, "-c", program], env=_clean_environment(), timeout_s=_START_TIMEOUT_S)
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


def remove_leftovers(root: Path) -> None:
    """Remove the partial environments of killed processes. Those in use are locked, and are kept."""
    if not any(root.glob(f"{_PARTIAL}*")):
        return
    # A process that creates one holds this lock until the new environment is locked too.
    with contextlib.suppress(OSError, InputError), _locked(root / ".lock"):
        for path in root.glob(f"{_PARTIAL}*"):
            with contextlib.suppress(OSError, InputError), _locked(path / "in-use", wait=False):
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an advisory lock, which the kernel releases when the process ends, even if it is killed."""
    # The cache may be shared, so the target of a link must not be changed.
    if path.is_symlink():
        raise symbolic_link(path)
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(held, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
