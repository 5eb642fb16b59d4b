"""Work in a copy of the checkout, and move over what changed when everything is done.

Until then, no file of the checkout changes, so a run that is killed leaves nothing half-written.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, MissingError, ValidatorError
from ..system import processes
from ..system.files import full_disk_named, says_full_disk
from ..system.runs import temporary_directory

#: The project's directories that the steps read. Files at the top are copied as well.
_COPIED = ("validator", "images", "docs", "tests")
#: The generated files and the facts, as patterns relative to the root.
WRITTEN = (
    "validator/compat/data/*",
    "validator/probe/data/*.json",
    "validator/diagnosis/data/compiled.json",
    "images/locks/*.txt",
    "docs/**/*.md",
    "README.md",
)
_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Copy:
    """A copy of the checkout at `root`. Its steps are modules of the copy, run in it."""

    root: Path
    path: Path

    def run(self, *arguments: str) -> bytes:
        """Run `python -m` with these arguments in the copy, and return its standard output.

        Raises MissingError if the step can't reach something that it needs, InputError for another failure.
        """
        return run_module(self.path, *arguments)

    def changed(self) -> list[str]:
        """Return the paths, relative to the root, of the files that differ from the checkout, in order."""
        found = []
        for pattern in WRITTEN:
            for path in sorted(self.path.glob(pattern)):
                name = str(path.relative_to(self.path))
                original = self.root / name
                if path.is_file() and (not original.is_file() or original.read_bytes() != path.read_bytes()):
                    found.append(name)
        return found


def refuse_installed(root: Path) -> None:
    """Raise InputError if `root` is not a checkout of the project."""
    if not all((root / name).is_dir() for name in _COPIED) or not (root / "matrix.yaml").is_file():
        raise InputError(
            f"`refresh` writes files of a checkout of the project, and {root} is not a checkout",
            hint="clone the repository and run scripts/refresh there; `refresh --check` works everywhere",
        )


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """Copy the checkout. Raises MissingError if the disk is full."""
    with temporary_directory("refresh") as directory, full_disk_named(directory):
        path = directory / "checkout"
        path.mkdir()
        try:
            for name in _COPIED:
                shutil.copytree(
                    root / name, path / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
                )
        except shutil.Error as error:
            raise MissingError(f"{root}: can't be copied: {error.args[0][0][2]}") from error
        # The transcripts of the pages name the Python that ran them.
        (path / ".venv").symlink_to(sys.prefix)
        for file in root.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, path / file.name)
        yield Copy(root, path)


def run_module(root: Path, *arguments: str) -> bytes:
    """Run `python -m` with these arguments and the code at `root`, and return its standard output.

    Raises MissingError if the step can't reach something that it needs, InputError for another failure.
    """
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    result = processes.run(
        [sys.executable, "-m", *arguments], cwd=root, env=environment, timeout_s=_TIMEOUT_S
    )
    if result.ok:
        return result.stdout
    text = result.stderr_tail.strip()
    missing = result.timed_out or result.returncode == MissingError.exit_code or says_full_disk(text)
    kind: type[ValidatorError] = MissingError if missing else InputError
    raise kind(
        f"`python -m {' '.join(arguments)}` failed:\n{text or 'it printed nothing'}",
        hint="fix this and run `refresh` again: nothing was written, and downloads and inspections are kept",
    )
