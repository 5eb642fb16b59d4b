"""Download packages from npm. Nothing of a package is run here."""

from __future__ import annotations

import base64
import hashlib
import shutil
from pathlib import Path

from ..errors import MissingError
from ..system import processes
from ..system.files import cache_directory, writing
from ..system.runs import temporary_directory

#: npm itself tries three times, and waits up to 70 seconds between.
_NPM = ("npm", "pack", "--silent", "--ignore-scripts", "--fetch-retries", "1", "--fetch-timeout", "30000")
_TIMEOUT_S = 180.0


def npm_package(name: str, version: str, integrity: str, otherwise: str = "") -> Path:
    """Return a package: the file in the user's cache, or the one that npm downloads now.

    npm's own configuration says where from. integrity: as npm writes it, `sha512-…`. otherwise: what else to
    do if it can't be downloaded, as a clause. Raises MissingError if npm is not installed, can't download the
    package, or downloads another one.
    """
    wanted = f"{name}@{version}"
    file = cache_directory() / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if _is(file, integrity):
        return file
    if shutil.which("npm") is None:
        raise MissingError(
            f"npm, which downloads {wanted}, is not installed",
            hint=f"install Node.js{otherwise and f', or run `npm pack {wanted}` elsewhere and {otherwise}'}",
        )
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    # Into a directory of its own, so that a file that is being written is never read.
    with temporary_directory("npm", file.parent) as partial:
        command: list[str | Path] = [*_NPM, "--pack-destination", partial, wanted]
        done = processes.run(command, timeout_s=_TIMEOUT_S)
        made = partial / file.name
        if not done.ok or not made.is_file():
            last = next(reversed(done.stderr_tail.strip().splitlines()), "it printed no reason")
            raise MissingError(
                f"npm can't download {wanted}: {last}",
                hint=f"check the network and npm's configuration{otherwise and f', or {otherwise}'}",
            )
        if not _is(made, integrity):
            raise MissingError(
                f"npm downloaded another {wanted} than the pinned one: its SHA-512 differs",
                hint="check which registry npm uses: npm config get registry",
            )
        with writing(file):
            made.replace(file)
    return file


def pyodide_package(version: str, integrity: str) -> Path:
    """Return the npm package `pyodide`. Raises what `npm_package` raises."""
    return npm_package("pyodide", version, integrity, "name the file with --answers")


def _is(file: Path, integrity: str) -> bool:
    """Return whether a file exists and has this digest."""
    algorithm, _, wanted = integrity.partition("-")
    try:
        found = hashlib.new(algorithm, file.read_bytes())
    except OSError:
        return False
    return base64.b64encode(found.digest()).decode() == wanted
