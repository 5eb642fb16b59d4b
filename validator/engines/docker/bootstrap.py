"""Bootstraps a base image from the distribution's mirror, for machines that can't reach an image registry.

mmdebstrap or debootstrap creates the root file system, and `docker import` makes an image from it. The
mirror, its proxy and its certificate authorities are those of apt on the host; the base contains no trace of
them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import BuildError, MissingError
from ...system import processes
from ...system.files import full_disk, full_disk_named, says_full_disk
from ..base import Progress
from . import names

#: The Debian release whose own Python is this version.
SUITES: Mapping[str, str] = {"3.11": "bookworm", "3.13": "trixie"}
#: The packages in addition to the smallest Debian, as in official Python images.
PACKAGES = ("ca-certificates", "python3", "tzdata")

_CLEAN = names.IMAGES / "base" / "clean-rootfs"
_TIMEOUT_S = 1800
_NETWORK = re.compile(
    r"Could not (?:resolve|connect)|Temporary failure|Connection (?:refused|timed out)|Failed to fetch"
    r"|Network is unreachable|Couldn't download|download failed|Invalid Release (?:file|signature)",
    re.IGNORECASE,
)
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


@dataclass(frozen=True)
class AptSources:
    """The mirrors of a suite as `deb` lines (empty for the tool's default), and the proxies as variables."""

    lines: tuple[str, ...] = ()
    mirror: str | None = None
    environment: Mapping[str, str] | None = None


def tag(suite: str) -> str:
    """Return the image name of a suite's base, which depends on the recipe."""
    recipe = "\n".join([suite, *PACKAGES, *_EXCLUDED, _CLEAN.read_text(encoding="utf-8")])
    return f"{names.PROJECT}-base:{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def tool() -> str | None:
    """Return the tool that is installed, or None. debootstrap works only for root."""
    if shutil.which("mmdebstrap"):
        return "mmdebstrap"
    return "debootstrap" if os.geteuid() == 0 and shutil.which("debootstrap") else None


def root_file_system(suite: str, directory: Path, progress: Progress) -> Path:
    """Create the root file system of a suite as a tar archive in `directory`. This takes about half a minute.

    Raises MissingError if the tool, the network or disk space is missing, and BuildError for other failures.
    """
    name = tool()
    if name is None:
        raise MissingError(
            f"Debian {suite} can't be bootstrapped: neither mmdebstrap nor debootstrap is installed",
            hint="install mmdebstrap, or connect the engine to an image registry",
        )
    sources = apt_sources(suite)
    progress(f"bootstrapping Debian {suite} with {name}")
    archive = directory / "rootfs.tar"
    make = _mmdebstrap if name == "mmdebstrap" else _debootstrap
    with full_disk_named(directory):
        make(suite, archive, sources, progress)
    return archive


def apt_sources(suite: str) -> AptSources:
    """Return the host's Debian mirrors, with `suite` instead of the host's own, if the host runs Debian.

    Security updates are included. Without them, the base would be as old as the last point release.
    """
    if not shutil.which("apt-get"):
        return AptSources()
    result = processes.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"],
        timeout_s=60,
    )
    mirrors: dict[str, str] = {}
    for line in result.stdout.decode("utf-8", "replace").splitlines():
        origin, label, address = line.split("|", 2)
        if origin == "Debian":
            mirrors.setdefault(label, address)
    environment = _proxies()
    mirror = mirrors.get("Debian")
    if mirror is None:
        return AptSources(environment=environment)
    lines = [f"deb {mirror} {suite} main", f"deb {mirror} {suite}-updates main"]
    if security := mirrors.get("Debian-Security"):
        lines.append(f"deb {security} {suite}-security main")
    return AptSources(tuple(lines), mirror, environment)


def _mmdebstrap(suite: str, archive: Path, sources: AptSources, progress: Progress) -> None:
    _run(
        [
            "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
            f"--customize-hook={_CLEAN}", suite, archive, *sources.lines,
        ],
        suite, sources, progress,
    )  # fmt: skip


def _debootstrap(suite: str, archive: Path, sources: AptSources, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name) / "root"
        _run(
            [
                "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, root,
                *([sources.mirror] if sources.mirror else []),
            ],
            suite, sources, progress,
        )  # fmt: skip
        _run([_CLEAN, root], suite, sources, progress)
        _run(
            [
                "tar", "--create", f"--file={archive}", f"--directory={root}", "--sort=name",
                "--numeric-owner", "--mtime=@0", "--exclude=./dev/*", ".",
            ],
            suite, sources, progress,
        )  # fmt: skip


def _run(command: list[str | Path], suite: str, sources: AptSources, progress: Progress) -> None:
    # With SOURCE_DATE_EPOCH, mmdebstrap's output is reproducible.
    environment = {**os.environ, **(sources.environment or {}), "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C.UTF-8"}
    result = processes.run(command, env=environment, timeout_s=_TIMEOUT_S, on_line=progress)
    if result.ok:
        return
    what = f"Debian {suite} can't be bootstrapped"
    if says_full_disk(result.stderr_tail):
        raise full_disk(tempfile.gettempdir())
    if result.timed_out or _NETWORK.search(result.stderr_tail):
        raise MissingError(
            f"{what}: its mirror can't be reached", hint="check apt's sources and proxy on this machine"
        )
    last = [line for line in result.stderr_tail.splitlines() if line.strip()][-1:] or ["no message"]
    raise BuildError(f"{what}: {Path(str(command[0])).name} failed: {last[0]}", log=result.stderr_tail)


def _proxies() -> dict[str, str]:
    """Return apt's proxy settings as variables, so that the tools don't write them into the base."""
    result = processes.run(
        ["apt-config", "shell", "http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"],
        timeout_s=60,
    )
    found = re.findall(r"^(https?_proxy)='([^']+)'$", result.stdout.decode("utf-8", "replace"), re.MULTILINE)
    return {name: value for name, value in found if value != "DIRECT"}
