"""The environment of a fault: a real TensorFlow, with files that the fault removes or replaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from uv import find_uv_bin

from ..probe.environments import AS_BUILT_2_21, PYTHON, tensorflow_environment
from .faults import Fault

#: Releases that have no wheel for the Python of the others.
OLD_PYTHON = {"2.6.5": "3.9", "2.8.4": "3.9", "2.10.1": "3.9", "2.11.1": "3.9"}
#: Additional requirements of those releases, which set no upper bounds.
BOUNDS = ("numpy<1.24", "protobuf<3.20", "wrapt<1.15")
#: Releases whose and-cuda extra can be installed and is needed by some fault.
AND_CUDA = ("2.15.1", "2.18.1", "2.21.0")


def python_of(fault: Fault, tensorflow: str) -> str:
    """Return the Python version."""
    return fault.python or OLD_PYTHON.get(tensorflow, PYTHON)


def requirements_of(fault: Fault, tensorflow: str) -> tuple[str, ...]:
    """Return the requirements of the packages to install."""
    if fault.requirements:
        return tuple(each.replace("{version}", tensorflow) for each in fault.requirements)
    if fault.libraries == "none" or tensorflow not in AND_CUDA:
        bounds = BOUNDS if tensorflow in OLD_PYTHON else ()
        return (f"tensorflow=={tensorflow}", *bounds)
    if tensorflow == "2.21.0":
        return AS_BUILT_2_21
    return (f"tensorflow[and-cuda]=={tensorflow}",)


@contextlib.contextmanager
def environment(fault: Fault, tensorflow: str) -> Iterator[Path]:
    """Yield the Python to run. Files are removed from a copy that shares all other files except C++ headers,
    which are most of the files and which nothing here reads."""
    python = tensorflow_environment(requirements_of(fault, tensorflow), python_of(fault, tensorflow))
    if not fault.remove:
        yield python
        return
    whole = python.parents[1]
    with tempfile.TemporaryDirectory(dir=whole.parent, prefix="partial-") as name:
        part = Path(name) / "environment"
        headers = shutil.ignore_patterns("include")
        shutil.copytree(whole, part, symlinks=True, ignore=headers, copy_function=os.link)
        site = site_packages(part / "bin" / "python")
        for pattern in fault.remove:
            found = list(site.glob(pattern))
            assert found, f"{pattern} is not in {site}"
            for path in found:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield part / "bin" / "python"


def site_packages(python: Path) -> Path:
    """Return the directory of its packages."""
    return next((python.parents[1] / "lib").glob("python3*")) / "site-packages"


def nvidia_libraries(python: Path) -> list[Path]:
    """Return the directories of NVIDIA's wheels."""
    return sorted(site_packages(python).glob("nvidia/*/lib"))


def overlay(requirements: Sequence[str], python: Path, directory: Path) -> None:
    """Install packages, without their dependencies, into a separate directory."""
    command = ["pip", "install", "--no-deps", "--python", str(python), "--target", str(directory)]
    subprocess.run([find_uv_bin(), "--quiet", *command, *requirements], check=True)
