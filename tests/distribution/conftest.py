"""The distributions of this project, and a Python that has the wheel installed, with no checkout anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest

from ..commands import ROOT
from ..loop.tiers import service


def tracked(*names: str) -> list[str]:
    """Return the paths of the checkout's files, relative to its root, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *names],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return sorted(name for name in listed if (ROOT / name).is_file())


@dataclass(frozen=True)
class Distributions:
    """sdist, wheel: the files. The wheel is built from the unpacked sdist, as an index's users would."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and its dependencies, used from an empty directory."""

    python: Path
    directory: Path

    @property
    def site_packages(self) -> Path:
        """Return where the wheel is installed."""
        return next(self.python.parents[1].glob("lib/python3*/site-packages"))

    def run(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run `validator` in the directory."""
        # Nothing here may lead back to the checkout.
        found = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
        return subprocess.run(
            [self.python.parent / "validator", *map(str, arguments)],
            cwd=self.directory, env={**found, **(environment or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that makes a directory once for all workers of this run. Its arguments are a name and
    a function that fills the directory."""
    ours = tmp_path_factory.getbasetemp()
    root = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours

    def directory(name: str, fill: Callable[[Path], object]) -> Path:
        path, complete = root / name, root / f"{name}-complete"
        with filelock.FileLock(root / f"{name}.lock"):
            if not complete.exists():
                path.mkdir()
                fill(path)
                complete.touch()
        return path

    return directory


@pytest.fixture(scope="session")
@service
def distributions(shared: Callable[[str, Callable[[Path], object]], Path]) -> Distributions:
    """Build the sdist from a copy of the checkout, and the wheel from the sdist.

    If DISTRIBUTIONS names a directory (`scripts/release`), the files there are used.
    """
    directory = Path(os.environ.get("DISTRIBUTIONS") or shared("distributions", _build))
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return Distributions(sdist, wheel)


def _build(directory: Path) -> None:
    # In the checkout itself, files of an earlier build may be left in `build/`.
    for name in tracked():
        (directory / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, directory / "checkout" / name)
    sdist = _built("sdist", directory / "checkout", directory)
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (source,) = (directory / "unpacked").iterdir()
    _built("wheel", source, directory)


def _built(kind: str, source: Path, directory: Path) -> Path:
    code = f"from setuptools.build_meta import build_{kind} as b; print('made', b({str(directory)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True, timeout=120
    )
    return directory / done.stdout.rpartition("made ")[2].strip()


@pytest.fixture(scope="session")
@service
def environment(
    distributions: Distributions, shared: Callable[[str, Callable[[Path], object]], Path]
) -> Path:
    """Return a Python with the wheel. The dependencies are those of the tests' own environment."""
    return (
        shared("environment", lambda directory: _install(distributions.wheel, directory)) / "bin" / "python"
    )


def _install(wheel: Path, directory: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=120)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", directory / "bin" / "python"),
            *("--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps", wheel),
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (site_packages,) = directory.glob("lib/python3*/site-packages")
    # Python reads no .pth files in a directory that is added like this, so an editable install has no effect.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")


@pytest.fixture
@service
def installed(environment: Path, tmp_path: Path) -> Installed:
    """Return the installed tool, with an empty directory to use it in."""
    directory = tmp_path / "empty"
    directory.mkdir()
    return Installed(environment, directory)
