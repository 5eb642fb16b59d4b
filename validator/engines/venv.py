"""The venv engine for machines without Docker, and the layout engine, which makes images but runs none.

A virtual environment is not an image. uv makes it from the same lock. It is stored in the cache directory
under its lock's digest, either complete or not at all, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from ..assemble.image import Assembler, OciLayout
from ..errors import InputError, MissingError
from ..locks.lock_files import render
from ..locks.resolve import explain
from ..model.record import Layer, Outside, Unread
from ..model.spec import ImageSpec, Lock
from ..registry.names import image_tag
from ..system import processes
from ..system.files import cache_directory, full_disk_named, symbolic_link, write_atomically
from ..system.package_sources import PackageSources
from ..system.processes import Progress
from .protocol import Built, ProbeRequest, clean_environment, local_host_facts, run_probe
from .this_machine import read_host

_INSTALL_TIMEOUT_S = 3600.0
_PARTIAL = ".partial-"


class LayoutEngine:
    """Makes images without running them.

    directory: the OCI layout that they are written to, each under its tag; None if they only go to a
    registry.
    """

    name = "none"
    isolates = False

    def __init__(self, maker: Assembler, directory: Path | None = None) -> None:
        self._maker = maker
        self._directory = directory

    def describe(self) -> str:
        return "none: images are made but not run"

    def provides(self, python: str) -> str | None:
        return self._maker.bases.provides(python)

    def host_facts(self) -> dict[str, Any]:
        return local_host_facts()

    def outside(self) -> Outside | Unread:
        return Unread.NO_GPU_OFFERED

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        return None

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        assert self._directory is not None
        tag = image_tag(spec)
        made = self._maker.make(spec, lock, OciLayout(self._directory, tag), progress)
        layers = tuple(Layer(layer.encoded.diff_id, layer.encoded.size) for layer in made.layers)
        size = sum(layer.size for layer in layers)
        return Built(
            spec, f"{self._directory}:{tag}", lock.digest, made.digest, made.base.origin, size, layers
        )

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        raise MissingError(
            f"{built.spec} can't be measured: nothing runs images here",
            hint="leave out --oci on a machine with a Docker Engine, or push the image and measure it there"
            " with --pull-from",
        )

    def close(self) -> None:
        """Do nothing: there are no connections."""


class VenvEngine:
    """Builds environments in the directory `root`, with packages from `sources`."""

    name = "venv"
    isolates = False

    def __init__(self, sources: PackageSources, root: Path | None = None) -> None:
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
        return read_host()

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
        if own := [wheel.filename for wheel in lock.wheels if wheel.path is not None]:
            raise MissingError(
                f"{spec}: an environment has only wheels of the package index, and {own[0]} is not there",
                hint="use `--engine docker`, whose images have every wheel of their lock",
            )
        with self._partial(spec) as partial:
            progress("creating the environment")
            self._uv(spec, "venv", "--relocatable", "--no-project", "--python", python, partial)
            write_atomically(partial / "lock.txt", render(lock).encode())
            progress(f"installing {len(lock.wheels)} wheels, {lock.size / 1e9:.2f} GB")
            self._uv(
                spec, "pip", "install", "--python", partial / "bin" / "python", "--no-deps",
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

    def _uv(self, spec: ImageSpec, *arguments: str | Path) -> None:
        result = processes.run(
            [find_uv_bin(), *arguments, "--no-progress", "--no-python-downloads"],
            env={**clean_environment(), **self._sources.uv_environment()},
            timeout_s=_INSTALL_TIMEOUT_S,
        )
        if not result.ok:
            text = self._sources.redact(result.stderr_tail)
            raise explain(text, f"{spec}: the packages can't be installed", timed_out=result.timed_out)


@lru_cache
def find_python(version: str) -> str | None:
    """Return the interpreter that uv finds for a version (`3.12`), outside virtual environments, or None."""
    result = processes.run(
        [find_uv_bin(), "python", "find", "--system", "--no-python-downloads", "--no-project", version],
        env={**clean_environment(), "UV_NO_CONFIG": "1"},
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
