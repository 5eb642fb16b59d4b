"""The engine as a helper of the assembler: its copies of bases, and containers that compile byte code."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from docker.errors import DockerException, ImageNotFound

from ...assemble import bootstrap
from ...assemble.base import Base, ImageName
from ...assemble.bytecode import ENVIRONMENT
from ...assemble.destinations import Destination
from ...assemble.image_names import PROJECT
from ...assemble.progress import Progress
from ...errors import BuildError, InputError, MissingError, ValidatorError
from ...resources import images_directory
from ...system import processes
from ...system.files import full_disk, full_disk_named, says_full_disk
from ...system.runs import temporary_directory
from . import containers
from .containers import new_name
from .endpoint import Endpoint, disk_full, engine_gone
from .images import facts_of
from .load import load

# Install packages of the distribution in a base image, with the engine.
#
# The result is an image of the engine. The mirror and the proxy of this machine are secrets of the build, so
# they are not part of the image or its history.


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
        secrets = _secrets(bootstrap.apt_sources(), work)
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


def _secrets(sources: bootstrap.AptSources, directory: Path) -> dict[str, Path]:
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


class EngineImages:
    """The images of an engine as bases."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def save(self, name: str, directory: Path) -> tuple[Path, str | None] | None:
        """Write an image to an archive in a directory, named by its id. See `LocalImages`."""
        parsed = ImageName.parse(name)
        client = self._endpoint.client
        path = parsed.plain.rpartition(":")[0] if ":" in parsed.plain.rpartition("/")[2] else parsed.plain
        # An image that was pulled by its digest has no tag.
        for reference in (parsed.plain, f"{path}@{parsed.digest}") if parsed.digest else (parsed.plain,):
            try:
                image = client.images.get(reference)
            except ImageNotFound:
                continue
            digests = [one.split("@", 1)[1] for one in facts_of(image).repo_digests or [] if "@" in one]
            if parsed.digest and parsed.digest not in digests:
                continue
            archive = directory / f"{str(image.id).removeprefix('sha256:')[:24]}.tar"
            if not archive.exists():
                directory.mkdir(parents=True, exist_ok=True)
                partial = directory / f".{archive.name}.{secrets.token_hex(8)}"
                with full_disk_named(directory):
                    try:
                        with partial.open("wb") as stream:
                            for part in client.api.get_image(reference):
                                stream.write(part)
                        partial.replace(archive)
                    finally:
                        partial.unlink(missing_ok=True)
            return archive, parsed.digest or next(iter(digests), None)
        return None

    def with_system_packages(
        self, base: str, packages: Sequence[str], progress: Progress, *, renew: bool = False
    ) -> str:
        """Install packages of the distribution in a base. See `LocalImages`."""
        return with_system_packages(self._endpoint, base, packages, progress, renew=renew)


class BaseContainer:
    """Compiles in containers of a base, which the engine gets as an image of its own. A `Runner`."""

    name = "docker"

    def __init__(self, endpoint: Endpoint, base: Base, put: Callable[[Destination], object]) -> None:
        """put: puts the base at a destination, as `image.put_base` does."""
        self._endpoint, self._put = endpoint, put
        digest = hashlib.sha256(" ".join(layer.diff_id for layer in base.layers).encode()).hexdigest()
        self._image = f"{PROJECT}-base:{digest[:24]}"
        self._guard = threading.Lock()

    @contextmanager
    def command(self, argv: Sequence[str]) -> Iterator[Sequence[str]]:
        client = self._endpoint.client
        with self._guard:
            try:
                client.images.get(self._image)
            except ImageNotFound:
                load(self._endpoint, self._image, self._put)
        note = containers.intend(self._endpoint, containers.CONTAINER, new_name())
        # With its default log driver, Docker would also write the byte code to a JSON log.
        try:
            yield [
                self._endpoint.docker, "run", "--rm", "--interactive", "--name", note.content["name"],
                "--pull=never",
                "--network=none", "--log-driver=none", "--read-only", "--cap-drop=ALL",
                "--security-opt=no-new-privileges", "--user=65534:65534",
                *(f"--env={name}={value}" for name, value in ENVIRONMENT.items()),
                "--entrypoint", argv[0], self._image, *argv[1:],
            ]  # fmt: skip
        except BuildError as error:
            if says_full_disk(error.log or ""):
                raise disk_full(self._image) from error
            try:
                self._endpoint.quick.ping()
            except (DockerException, requests.RequestException):
                raise engine_gone(self._image) from error
            raise
        finally:
            # Usually, the engine has removed it when the program ended.
            if not containers.remove_container(client, note):
                note.erase()
