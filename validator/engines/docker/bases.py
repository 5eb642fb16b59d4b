"""Where an image's base comes from: an image registry, or a bootstrap from the distribution's mirror."""

from __future__ import annotations

import tempfile
import threading
from enum import Enum
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from ...errors import InputError, MissingError
from ...model.spec import ImageSpec
from ...system.files import full_disk, says_full_disk
from ..base import Progress
from . import bootstrap, names
from .bake import Base

_UNREACHABLE = "the image registry can't be reached"
#: NVIDIA's wheels are unpacked in the base of this Python, whatever the image's own.
_TOOLS_PYTHON = "3.12"
_TOOLS_SUITE = "bookworm"
_DEFAULT = "python:{}-slim-bookworm"


class BasePolicy(str, Enum):
    """`auto`: the registry, or a bootstrap where no registry can be reached."""

    AUTO = "auto"
    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


class Bases:
    """Finds or makes bases in one engine. Each name is asked for once; several threads may ask.

    quick: a client of the same engine that waits only seconds for an answer.
    """

    def __init__(self, client: docker.DockerClient, quick: docker.DockerClient, policy: BasePolicy) -> None:
        self._client = client
        self._quick = quick
        self._policy = policy
        self._guard = threading.Lock()
        self._found: dict[str, Base] = {}
        self._told_of_fallback = False
        self._unreachable: MissingError | None = None

    def provides(self, python: str) -> str | None:
        """None when there is a default base of this Python, else why there is none."""
        if (
            python in bootstrap.SUITES
            and self._policy is not BasePolicy.REGISTRY
            and self._can_bootstrap(python)
        ):
            return None
        if self._policy is BasePolicy.BOOTSTRAP:
            return self._no_bootstrap(python)
        try:
            self._from_registry(_DEFAULT.format(python), lambda _: None)
        except (MissingError, InputError) as error:
            if self._policy is BasePolicy.REGISTRY:
                return str(error)
            return f"{error}, and {self._no_bootstrap(python)}"
        return None

    def base(self, spec: ImageSpec, progress: Progress) -> Base:
        """The base of an image spec. Raises MissingError or InputError when there is none to be had."""
        if spec.base is not None:
            return self._from_registry(spec.base, progress)
        return self._default(spec.python, bootstrap.SUITES.get(spec.python), progress)

    def tools(self, progress: Progress) -> Base:
        """The base that NVIDIA's wheels are unpacked in."""
        return self._default(_TOOLS_PYTHON, _TOOLS_SUITE, progress)

    def _default(self, python: str, suite: str | None, progress: Progress) -> Base:
        if self._policy is not BasePolicy.BOOTSTRAP:
            try:
                return self._from_registry(_DEFAULT.format(python), progress)
            except MissingError as error:
                if self._policy is BasePolicy.REGISTRY or suite is None:
                    raise
                if not self._told_of_fallback:
                    self._told_of_fallback = True
                    progress(f"{error}; taking Debian's own mirror instead")
        if suite is None:
            raise MissingError(self._no_bootstrap(python), hint=f"choose {' or '.join(bootstrap.SUITES)}")
        return self._bootstrapped(suite, progress)

    def _from_registry(self, name: str, progress: Progress) -> Base:
        with self._guard:
            if name not in self._found:
                self._found[name] = self._ask_registry(name, progress)
            return self._found[name]

    def _ask_registry(self, name: str, progress: Progress) -> Base:
        if self._unreachable is not None:
            return self._local_copy(name, self._unreachable, progress)
        try:
            digest = str(self._quick.api.inspect_distribution(name)["Descriptor"]["digest"])  # type: ignore[no-untyped-call]
        except APIError as error:
            reason = str(error.explanation or error)
            if error.status_code in (401, 403, 404) and "no such host" not in reason:
                return self._local_copy(name, _not_there(name, reason), progress)
            self._unreachable = _unreachable(reason)
            return self._local_copy(name, self._unreachable, progress)
        except requests.RequestException:
            self._unreachable = _unreachable(f"no answer within {self._quick.api.timeout} s")
            return self._local_copy(name, self._unreachable, progress)
        plain = name.split("@", 1)[0]
        return Base(f"{plain}@{digest}", f"registry:{plain}@{digest}", plain, digest)

    def _local_copy(self, name: str, error: MissingError | InputError, progress: Progress) -> Base:
        """What an earlier pull or build left in the engine under this name; else the error."""
        try:
            image = self._client.images.get(name)
        except ImageNotFound:
            raise error from None
        progress(f"{error}; using the engine's copy of {name}")
        digests = [entry.split("@", 1)[1] for entry in image.attrs.get("RepoDigests") or [] if "@" in entry]
        digest = digests[0] if digests else None
        return Base(name, f"registry:{name}" + (f"@{digest}" if digest else ""), name, digest)

    def _bootstrapped(self, suite: str, progress: Progress) -> Base:
        name = bootstrap.tag(suite)
        with self._guard:
            if not self._has(name):
                with tempfile.TemporaryDirectory(prefix="validator-base-") as directory:
                    archive = bootstrap.root_file_system(suite, Path(directory), progress)
                    self._import(archive, name, suite)
        return Base(name, f"bootstrap:{suite}", f"debian:{suite}")

    def _import(self, archive: Path, name: str, suite: str) -> None:
        repository, tag = name.split(":")
        try:
            answer = self._client.api.import_image_from_file(
                str(archive), repository=repository, tag=tag,
                changes=['CMD ["bash"]', f"LABEL {names.LABEL_BASE}=bootstrap:{suite}"],
            )  # fmt: skip
        except DockerException as error:
            if says_full_disk(str(error)):
                raise full_disk("the engine's images") from error
            raise MissingError(f"the engine did not take the base of Debian {suite}: {error}") from error
        if not self._has(name):
            raise MissingError(f"the engine did not take the base of Debian {suite}: {answer}")

    def _has(self, name: str) -> bool:
        try:
            self._client.images.get(name)
        except ImageNotFound:
            return False
        return True

    def _can_bootstrap(self, python: str) -> bool:
        return bootstrap.tool() is not None or self._has(bootstrap.tag(bootstrap.SUITES[python]))

    def _no_bootstrap(self, python: str) -> str:
        if python not in bootstrap.SUITES:
            return f"no Debian release to bootstrap from has Python {python}"
        return "neither mmdebstrap nor debootstrap is here to bootstrap a base with"


def _unreachable(reason: str) -> MissingError:
    # Go's errors go from what was tried to what went wrong, and name the machine's resolver on the way.
    detail = " ".join(reason.split()).rsplit(": ", 1)[-1][:200]
    return MissingError(
        f"{_UNREACHABLE} ({detail})",
        hint="check the engine's network and proxy, or use --base bootstrap",
    )


def _not_there(name: str, reason: str) -> MissingError:
    return MissingError(
        f"the registry has no {name}, or not for us ({' '.join(reason.split())[:200]})",
        hint="check the name, or log in with `docker login`",
    )
