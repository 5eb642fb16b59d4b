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

from ...assemble.base import Base
from ...assemble.base_registry import ImageName
from ...assemble.bytecode import ENVIRONMENT
from ...assemble.destinations import Destination
from ...assemble.image_names import PROJECT
from ...assemble.progress import Progress
from ...errors import BuildError
from ...system.files import full_disk_named, says_full_disk
from . import ledger
from .containers import new_name
from .endpoint import Endpoint
from .failures import disk_full, engine_gone
from .load import load
from .system_packages import with_system_packages


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
            digests = [one.split("@", 1)[1] for one in image.attrs.get("RepoDigests") or [] if "@" in one]
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
        note = ledger.intend(self._endpoint, ledger.CONTAINER, new_name())
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
            if not ledger.remove_container(client, note):
                note.erase()
