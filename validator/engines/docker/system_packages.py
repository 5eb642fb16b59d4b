"""Install packages of the distribution in a base image, with the engine.

The result is an image of the engine. The mirror and the proxy of this machine are secrets of the build, so
they are not part of the image or its history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from docker.errors import ImageNotFound

from ...assemble import apt
from ...assemble.image_names import PROJECT
from ...assemble.progress import Progress
from ...errors import BuildError, InputError, MissingError, ValidatorError
from ...resources import images_directory
from ...system import processes
from ...system.files import full_disk, says_full_disk
from ...system.runs import temporary_directory
from .endpoint import Endpoint

#: The directory of the Dockerfile and its script, in `images/`.
_RECIPE = "system-packages"
_TIMEOUT_S = 1800
_NOT_FOUND = "Unable to locate package "
_NO_CANDIDATE = "has no installation candidate"
_NO_APT = ("apt-get: not found", "os-release: No such file", "can't open /etc/os-release")


def with_system_packages(
    endpoint: Endpoint, base: str, packages: Sequence[str], progress: Progress, *, renew: bool = False
) -> str:
    """Return the name of an image of the engine: the base with these packages.

    base: a reference that the engine can resolve. An image that was made from this base before is used again,
    unless it is to be renewed.

    Raises InputError for a package that the distribution does not have and for a base without apt,
    MissingError if the mirror can't be reached, BuildError for other failures.
    """
    name = f"{PROJECT}-base:{digest(_identity(endpoint, base), packages)[:24]}"
    if renew or not _has(endpoint, name):
        progress(f"installing {', '.join(packages)} in {base}")
        _build(endpoint, base, packages, name, progress, *(["--no-cache"] if renew else []))
    return name


def digest(base: str, packages: Sequence[str]) -> str:
    """Return the SHA-256 (hex) of everything that decides the result, except the day. base: its id."""
    recipe = [path.read_bytes() for path in sorted((images_directory() / _RECIPE).iterdir())]
    parts = [base.encode(), *(package.encode() for package in sorted(packages)), *recipe]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _identity(endpoint: Endpoint, base: str) -> str:
    """Return the id of the base if the engine has it, otherwise its reference, which then has a digest."""
    try:
        return str(endpoint.client.images.get(base).id)
    except ImageNotFound:
        return base


def _has(endpoint: Endpoint, name: str) -> bool:
    try:
        endpoint.client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _build(
    endpoint: Endpoint, base: str, packages: Sequence[str], name: str, progress: Progress, *options: str
) -> None:
    with temporary_directory("system-packages") as work:
        secrets = _secrets(apt.apt_sources(), work)
        command: list[str | Path] = [
            *endpoint.buildx.argv, "--builder", endpoint.buildx.builder, "build", "--progress", "plain",
            "--network", "host", "--provenance=false", "--load", *options,
            "--build-arg", f"BASE={base}", "--build-arg", f"SYSTEM_PACKAGES={' '.join(packages)}",
            "--build-arg", "SOURCE_DATE_EPOCH=0", "--tag", name,
            *(f"--secret=id={key},src={path}" for key, path in secrets.items()),
            images_directory() / _RECIPE,
        ]  # fmt: skip
        result = processes.run(command, on_line=progress, timeout_s=_TIMEOUT_S)
    if not result.ok:
        raise _failure(result.stderr_tail, base, packages)


def _secrets(sources: apt.AptSources, directory: Path) -> dict[str, Path]:
    """Write the secrets that `install-packages` reads, for this user only. Return id -> file."""
    settings = ['Acquire::Retries "2";', 'Dpkg::Use-Pty "0";']
    for name, value in sources.environment.items():
        settings.append(f'Acquire::{name.removesuffix("_proxy")}::Proxy "{value}";')
    contents = {"sources": "\n".join(sources.lines("SUITE")), "apt": "\n".join(settings)}
    written = {}
    for name, content in contents.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_text(f"{content}\n", encoding="utf-8")
        written[name] = path
    return written


def _failure(log: str, base: str, packages: Sequence[str]) -> ValidatorError:
    what = f"system packages can't be installed in {base}"
    if says_full_disk(log):
        return full_disk("the engine's images")
    if any(text in log for text in _NO_APT):
        return InputError(f"{what}: it has no apt", hint="use a base made from Debian or Ubuntu")
    for package in packages:
        if f"{_NOT_FOUND}{package}" in log or f"'{package}' {_NO_CANDIDATE}" in log:
            return InputError(
                f"{what}: its distribution has no package {package}", hint="check the name in system_packages"
            )
    if "Failed to fetch" in log or "Could not connect" in log or "Temporary failure resolving" in log:
        return MissingError(
            f"{what}: its mirror can't be reached", hint="check apt's sources on this machine"
        )
    last = [line for line in log.splitlines() if line.strip()][-1:] or ["no message"]
    return BuildError(f"{what}: {last[0]}", log=log)
