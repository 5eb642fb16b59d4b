"""The uv that installs wheels while an image is built: one version of one program, pinned by hash.

The machine may have any version of uv. Images get only the pinned one, so that the same lock gives the same
image.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from ...errors import InputError, MissingError
from ...resources import images_directory, refresh_hint
from ...system import processes
from ...system.files import cache_directory, full_disk_named
from ...system.runs import temporary_directory
from ...system.sources import PackageSources

PIN = images_directory() / "uv.txt"
#: Images are for Linux on x86_64, whatever machine builds them.
_PLATFORM = "x86_64-manylinux2014"
_TIMEOUT_S = 600.0
_PROGRAM = re.compile(r"^# sha256 of the program: ([0-9a-f]{64})$", re.MULTILINE)
_VERSION = re.compile(r"^uv==([0-9.]+) .*--hash=sha256:[0-9a-f]{64}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class UvPin:
    """The version of uv, and the SHA-256 of its program for Linux on x86_64."""

    version: str
    program: str


def pin_text(requirement: str, program: str) -> str:
    """Return the content of images/uv.txt: the requirement with the hashes of its wheels."""
    return (
        "# The uv that installs wheels while an image is built. Written by `scripts/refresh python`.\n"
        f"# sha256 of the program: {program}\n{requirement}\n"
    )


def read_pin(path: Path = PIN) -> UvPin:
    """Return the pin. Raises InputError if the file has no version with hashes, or no hash of the program."""
    text = path.read_text(encoding="utf-8")
    version, program = _VERSION.search(text), _PROGRAM.search(text)
    if version is None or program is None:
        raise InputError(f"{path} does not pin uv by version and hash", hint=refresh_hint("python"))
    return UvPin(version[1], program[1])


def pinned_uv(sources: PackageSources, path: Path = PIN) -> Path:
    """Return the pinned program: the installed one if it is the same, otherwise one in the cache directory.

    Raises MissingError if it can't be downloaded.
    """
    pin = read_pin(path)
    installed = Path(find_uv_bin()).resolve()
    if _sha256(installed) == pin.program:
        return installed
    kept = cache_directory() / "uv" / pin.program / "uv"
    if kept.is_file() and _sha256(kept) == pin.program:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (
        full_disk_named(kept.parent),
        temporary_directory("download", kept.parent) as directory,
    ):
        program = install(path, directory, sources)
        if (found := _sha256(program)) != pin.program:
            raise MissingError(
                f"the program in the wheel of uv {pin.version} has the sha256 {found}, but {path} pins"
                f" {pin.program}",
                hint=refresh_hint("python", ", and look at the difference"),
            )
        os.replace(program, kept)
    return kept


def install(requirement: Path, directory: Path, sources: PackageSources) -> Path:
    """Install the uv of a requirements file with hashes for Linux on x86_64. Return the program.

    Raises MissingError if no wheel with one of the hashes can be downloaded.
    """
    result = processes.run(
        [
            find_uv_bin(), "pip", "install", "--quiet", "--target", directory, "--python-platform", _PLATFORM,
            "--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-python-downloads",
            "--requirements", requirement,
        ],
        env={**os.environ, **sources.uv_environment()},
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    program = directory / "bin" / "uv"
    if result.ok and program.is_file():
        return program
    shutil.rmtree(directory, ignore_errors=True)
    last = [line.strip() for line in sources.redact(result.stderr_tail).splitlines() if line.strip()]
    raise MissingError(
        f"the uv that {requirement.name} pins can't be installed: {' '.join(last[-8:])[:500]}",
        hint="check the package index, the proxy and the CA bundle in uv's or pip's configuration",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
