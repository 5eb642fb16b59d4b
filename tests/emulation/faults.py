"""The faults, read from `faults/*.yaml`: what each changes, and the cause to be named first."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FILES = Path(__file__).parent / "faults"
#: Releases in which every fault is made by default.
RELEASES = ("2.15.1", "2.18.1", "2.21.0")
#: Releases in which the commonest faults are made too (`older: true`).
OLDER = ("2.6.5", "2.8.4", "2.10.1", "2.11.1", "2.13.1", "2.16.1", "2.17.1", "2.19.1", "2.20.0")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, or nothing (`cause: benign_only`).

    cause: the code that a diagnosis must name first
    causes: where it is another in a release, since that one says less, or goes another way
    script: what is run: a file of `scripts/`
    releases: in which TensorFlow
    stubs: which of our libraries are first on the loader's path: `driver`; `runtime`, in place of CUDA's,
        which lets TensorFlow make the device; `cudnn` and `cublas`, in place of NVIDIA's
    libraries: where NVIDIA's libraries are: `path` (wheels, on LD_LIBRARY_PATH), `wheels` (as pip leaves
        them), `none` (not installed)
    variables: set for the process
    shown: whether the variables stand in the log, as in a pasted command line
    remove: below site-packages, what is taken away
    overlay: requirements installed beside, and before, those of the environment
    kernel: files of the driver's kernel module and of sysfs, by path
    release: of the driver
    no_toolkit: whether a CUDA toolkit of this machine is hidden
    files: put into the working directory
    bin: programs put first on the PATH
    requirements: instead of TensorFlow's, with {version} for its version
    python: its version
    command: what is run instead of a script; {python} and {uv} stand for their paths
    """

    id: str
    cause: str
    title: str
    script: str = "list_gpus.py"
    releases: tuple[str, ...] = RELEASES
    stubs: tuple[str, ...] = ()
    libraries: str = "path"
    variables: Mapping[str, str] = field(default_factory=dict)
    shown: bool = False
    remove: tuple[str, ...] = ()
    overlay: tuple[str, ...] = ()
    kernel: Mapping[str, str] = field(default_factory=dict)
    release: str | None = None
    no_toolkit: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    bin: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    python: str | None = None
    command: tuple[str, ...] = ()
    causes: Mapping[str, str] = field(default_factory=dict)

    def cause_in(self, release: str) -> str:
        """Return the code of the cause that must come first for a log of this release."""
        return self.causes.get(release, self.cause)


@functools.cache
def faults() -> Mapping[str, Fault]:
    """Return all faults by id."""
    rows = [row for path in sorted(FILES.glob("*.yaml")) for row in yaml.safe_load(path.read_text())]
    found = [_fault(row) for row in rows]
    assert len({each.id for each in found}) == len(found), "two faults of one name"
    return {each.id: each for each in found}


def _fault(row: dict[str, Any]) -> Fault:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    if values.pop("older", False):
        values["releases"] = tuple(sorted((*RELEASES, *OLDER), key=_numbers))
    return Fault(**values)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
