"""The engine as a helper of the assembler: its copies of bases, and containers that compile byte code."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from docker.errors import ImageNotFound

from ...assemble import bootstrap
from ...assemble.base import Base, ImageName
from ...assemble.bytecode import ENVIRONMENT
from ...assemble.destinations import Destination
from ...errors import BuildError, InputError, MissingError, ValidatorError
from ...model.spec import PROJECT
from ...resources import images_directory
from ...system import processes
from ...system.files import full_disk, full_disk_named, says_full_disk
from ...system.processes import Progress
from ...system.runs import temporary_directory
from . import containers, podman
from .containers import new_name
from .endpoint import Endpoint, disk_full, engine_gone
from .images import facts_of
from .load import load

#: The directory of the Dockerfile and its script, in `images/`.
_RECIPE = "system-packages"
_TIMEOUT_S = 1800
_NOT_FOUND = "Unable to locate package "
_NO_CANDIDATE = "has no installation candidate"
_NO_APT = ("apt-get: not found", "os-release: No such file", "can't open /etc/os-release")


def digest(base: str, packages: Sequence[str]) -> str:
    """Return the SHA-256 (hex) of everything that decides the result, except the day. base: its id."""
    recipe = [path.read_bytes() for path in sorted((images_directory() / _RECIPE).iterdir())]
    parts = [base.encode(), *(package.encode() for package in sorted(packages)), *recipe]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _secrets(sources: bootstrap.AptSources, directory: Path) -> dict[str, Path]:
    """Write the secrets that `install-packages` reads, for this user only. Return id -> file."""
    settings = ['Acquire::Retries "2";', 'Dpkg::Use-Pty "0";']
    for name, value in sources.environment.items():
        settings.append(f'Acquire::{name.removesuffix("_proxy")}::Proxy "{value}";')
    contents = {"sources": "\n".join(sources.lines("SUITE")), "apt": "\n".join(settings)}
    written = {name: directory / name for name in contents}
    for name, path in written.items():
        path.touch(mode=0o600)
        path.write_text(f"{contents[name]}\n", encoding="utf-8")
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
                        if self._endpoint.is_podman:
                            podman.save(self._endpoint, reference, partial)
                        else:
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
        """Return the name of an image of the engine: the base with these packages.

        base: a reference that the engine can resolve. An image that was made from this base before is used
        again, unless it is to be renewed. The mirror and the proxy of this machine are secrets of the build,
        so they are not part of the image or its history.

        Raises InputError for a package that the distribution does not have and for a base without apt,
        MissingError if the mirror can't be reached, BuildError for other failures.
        """
        images = self._endpoint.client.images
        try:
            identity = str(images.get(base).id)
        except ImageNotFound:
            # Then the reference has a digest.
            identity = base
        name = f"{PROJECT}-base:{digest(identity, packages)[:24]}"
        if not renew:
            with suppress(ImageNotFound):
                images.get(name)
                return name
        progress(f"installing {', '.join(packages)} in {base}")
        with temporary_directory("system-packages") as work:
            written = _secrets(bootstrap.apt_sources(), work)
            if self._endpoint.is_podman:
                # It writes everything to stdout, and gives the image a name that the API doesn't know.
                builder = ["sh", "-c", 'exec "$@" >&2', "sh", self._endpoint.program, "build"]
                tag = f"docker.io/library/{name}"
            else:
                builder = [
                    *self._endpoint.buildx,
                    "build",
                    "--progress",
                    "plain",
                    "--provenance=false",
                    "--load",
                ]
                tag = name
            command: list[str | Path] = [
                *builder, "--network", "host", *(["--no-cache"] if renew else []),
                "--build-arg", f"BASE={base}", "--build-arg", f"SYSTEM_PACKAGES={' '.join(packages)}",
                "--build-arg", "SOURCE_DATE_EPOCH=0", "--tag", tag,
                *(f"--secret=id={key},src={path}" for key, path in written.items()),
                images_directory() / _RECIPE,
            ]  # fmt: skip
            result = processes.run(command, on_line=progress, timeout_s=_TIMEOUT_S)
        if not result.ok:
            raise _failure(result.stderr_tail, base, packages)
        return name


class BaseContainer:
    """Compiles in containers of a base, which the engine gets as an image of its own. A `Runner`."""

    def __init__(self, endpoint: Endpoint, base: Base, put: Callable[[Destination], object]) -> None:
        """put: puts the base at a destination, as `image.put_base` does."""
        self.name = endpoint.product.lower()
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
                self._endpoint.program, "run", "--rm", "--interactive", "--name", note.content["name"],
                "--pull=never",
                "--network=none", "--log-driver=none", "--read-only", "--cap-drop=ALL",
                "--security-opt=no-new-privileges", "--user=65534:65534",
                *(f"--env={name}={value}" for name, value in ENVIRONMENT.items()),
                "--entrypoint", argv[0], self._image, *argv[1:],
            ]  # fmt: skip
        except BuildError as error:
            if says_full_disk(error.log or ""):
                raise disk_full(self._image) from error
            if not self._endpoint.responds():
                raise engine_gone(self._image) from error
            raise
        finally:
            # Usually, the engine has removed it when the program ended.
            if not containers.remove_container(client, note):
                note.erase()
