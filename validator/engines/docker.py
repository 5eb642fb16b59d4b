"""The engine that holds images and runs the probe in containers: Docker or Podman.

It also helps the assembler: it holds copies of bases, and its containers compile byte code.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import platform
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from docker.models.images import Image

from ..assemble import bootstrap
from ..assemble.base import Base, ImageName
from ..assemble.bytecode import ENVIRONMENT
from ..assemble.image import Assembler, Destination
from ..errors import BuildError, InputError, MissingError, ValidatorError
from ..model.record import Outside, Unread
from ..model.spec import (
    LABEL_BASE,
    LABEL_LOCK,
    LABEL_RECIPE,
    LABEL_SPEC,
    PROJECT,
    ImageSpec,
    Lock,
    image_reference,
)
from ..resources import images_directory
from ..system import processes
from ..system.files import full_disk, full_disk_named, says_full_disk
from ..system.processes import Progress
from ..system.runs import temporary_directory
from . import containers
from .containers import new_name, offers_gpus
from .endpoint import Endpoint, answering, disk_full, engine_gone, podman_save
from .images import Derivation, derivation_of, facts_of, find_image, layers_of, load, pull
from .protocol import Built, ProbeRequest
from .this_machine import read_host

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
    return BuildError(f"{what}: {processes.last_line(log)}", log=log)


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
            image = find_image(client, reference)
            if image is None:
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
                            podman_save(self._endpoint, reference, partial)
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
        client = self._endpoint.client
        found = find_image(client, base)
        # A base that is not there has a digest.
        identity = str(found.id) if found else base
        name = f"{PROJECT}-base:{digest(identity, packages)[:24]}"
        if not renew and find_image(client, name):
            return name
        progress(f"installing {', '.join(packages)} in {base}")
        with temporary_directory("system-packages") as work:
            written = _secrets(bootstrap.apt_sources(), work)
            if self._endpoint.is_podman:
                # It writes everything to stdout, and gives the image a name that the API doesn't know.
                builder = ["sh", "-c", 'exec "$@" >&2', "sh", self._endpoint.program, "build"]
                tag = f"docker.io/library/{name}"
            else:
                options = ["--progress", "plain", "--provenance=false", "--load"]
                builder = [*self._endpoint.buildx, "build", *options]
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
            if find_image(client, self._image) is None:
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


logger = logging.getLogger(__name__)

_KERNEL_DRIVER = Path("/sys/module/nvidia/version")


class DockerEngine:
    """Holds images and runs the probe in one Docker or Podman. Methods may be called from any thread."""

    isolates = True

    def __init__(
        self,
        endpoint: Endpoint,
        maker: Assembler | None = None,
        host: Callable[[], Outside | Unread] = read_host,
    ) -> None:
        """maker: assembles images (None: this engine only runs images that exist).
        host: reads the driver and the GPUs of this machine.
        """
        self._read_host = host
        self._endpoint = endpoint
        self._client = endpoint.client
        self._maker = maker
        with answering("the engine"):
            if removed := containers.remove_leftovers(endpoint):
                logger.info("removed %d containers of a run that was killed", removed)

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return self._endpoint.product.lower()

    def describe(self) -> str:
        gpus = "with GPUs" if offers_gpus(self._endpoint.info) else "no GPUs"
        return f"{self._endpoint.product} {self._endpoint.version}, {gpus}"

    def provides(self, python: str) -> str | None:
        return self._images.bases.provides(python)

    def host_facts(self) -> dict[str, Any]:
        info = self._endpoint.info
        facts: dict[str, Any] = {
            "kernel": info.get("KernelVersion"),
            "machine": info.get("Architecture"),
            "gpus_offered": offers_gpus(info),
        }
        # Only the probe can find the driver of a remote engine.
        if facts["gpus_offered"] and self._endpoint.is_local:
            with contextlib.suppress(OSError):
                facts["driver"] = _KERNEL_DRIVER.read_text(encoding="ascii").strip()
        return facts

    def outside(self) -> Outside | Unread:
        info = self._endpoint.info
        if not offers_gpus(info):
            return Unread.NO_GPU_OFFERED
        if info.get("OperatingSystem") == "Docker Desktop":
            return Unread.VIRTUAL_MACHINE
        # A socket may be forwarded from another machine.
        if not self._endpoint.is_local or info.get("KernelVersion") != platform.release():
            return Unread.OTHER_MACHINE
        return self._read_host()

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        found = self._existing(spec, lock)
        if found is not None:
            self._images.bases.warn_if_moved(spec, found.base or "")
        return found

    def _existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        image = find_image(self._client, image_reference(spec.identifier))
        if image is None:
            return None
        # The engine's own images have the labels that `build` gave them. Those in a registry may have any.
        labels = image.labels
        is_current = (
            labels.get(LABEL_SPEC) == spec.identifier
            and labels.get(LABEL_LOCK) == lock.digest
            and labels.get(LABEL_RECIPE) == self._images.recipe(spec)
            and self._images.bases.is_current(spec, labels.get(LABEL_BASE, ""))
        )
        if not is_current:
            return None
        with answering(str(spec)):
            return _built(spec, image)

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        if (found := self.existing(spec, lock)) is not None:
            return found
        reference = image_reference(spec.identifier)
        load(self._endpoint, reference, lambda into: self._images.make(spec, lock, into, progress), progress)
        built = self._existing(spec, lock)
        if built is None:
            raise BuildError(
                f"{spec}: the engine does not have {reference}, which it has just received",
                hint="check if another process makes the same image from another lock",
            )
        return built

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        pull(self._endpoint, reference, progress)
        with answering(reference):
            built = _built(spec, self._client.images.get(reference))
        digest = reference.partition("@")[2]
        return replace(
            built, reference=reference, lock_digest=lock.digest, digest=digest, engine_id=built.digest
        )

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        return self.probe_image(built.engine_id or built.digest or built.reference, request, progress)

    def probe_image(self, image: str, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe in any image that the engine has, given its name or digest.

        Raises the errors of `probe`, and InputError if the image has no Python.
        """
        return containers.run_probe(self._endpoint, image, request, progress)

    def made_from(self, image: str) -> tuple[str, str]:
        """Return the image spec and the digest of the lock in an image's labels; empty without them."""
        found = find_image(self._client, image)
        labels = found.labels if found else {}
        return labels.get(LABEL_SPEC, ""), labels.get(LABEL_LOCK, "")

    def derivation(self, image: str) -> Derivation | None:
        """Return what an image was derived from, see `derivation_of`."""
        with answering(image):
            return derivation_of(self._client, image)

    @property
    def _images(self) -> Assembler:
        if self._maker is None:
            raise AssertionError("this engine only runs images that exist")
        return self._maker

    def close(self) -> None:
        self._endpoint.close()


def _built(spec: ImageSpec, image: Image) -> Built:
    return Built(
        spec=spec,
        reference=image_reference(spec.identifier),
        lock_digest=image.labels.get(LABEL_LOCK, ""),
        # With the containerd image store, the id is the digest of the manifest, otherwise of the
        # configuration.
        digest=image.id,
        base=image.labels.get(LABEL_BASE),
        size=image.attrs.get("Size"),
        layers=layers_of(image),
    )
