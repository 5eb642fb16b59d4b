"""The base of an image: from a registry by its digest, or bootstrapped from Debian's packages by their
hashes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from ...assemble import bootstrap, names
from ...assemble.pinned_bases import FILE, PinnedBase, pinned_bases
from ...assemble.progress import Progress
from ...errors import InputError, MissingError
from ...model.spec import ImageSpec
from ...resources import refresh_hint
from ...system.files import full_disk, says_full_disk
from ...system.runs import temporary_directory
from .bake import Base

_UNREACHABLE = "the image registry can't be reached"
#: NVIDIA's wheels are unpacked in the base for this Python, whatever Python the image has.
_TOOLS_PYTHON = "3.12"
_TOOLS_SUITE = "bookworm"


class BasePolicy(str, Enum):
    """The origin of the default base. `auto`: the registry, or a bootstrap if no registry can be reached."""

    AUTO = "auto"
    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


class Bases:
    """Finds or makes bases in one engine. Each name is looked up once. Methods may be called from any thread.

    quick: a client of the same engine with a timeout of a few seconds.
    pinned: the default bases by Python (None: those in images/bases.yaml).
    """

    def __init__(
        self,
        client: docker.DockerClient,
        quick: docker.DockerClient,
        policy: BasePolicy,
        pinned: Mapping[str, PinnedBase] | None = None,
    ) -> None:
        self._client = client
        self._quick = quick
        self._policy = policy
        self._given = pinned
        self._guard = threading.Lock()
        self._found: dict[str, Base] = {}
        self._told_of_fallback = False
        self._unreachable: MissingError | None = None

    @cached_property
    def _pinned(self) -> Mapping[str, PinnedBase]:
        # Read when it is needed, because an engine that only runs the probe needs no base.
        return pinned_bases() if self._given is None else self._given

    def provides(self, python: str) -> str | None:
        """Return None if there is a default base with this Python, otherwise the reason why not."""
        if (
            python in bootstrap.SUITES
            and self._policy is not BasePolicy.REGISTRY
            and self._can_bootstrap(python)
        ):
            return None
        if self._policy is BasePolicy.BOOTSTRAP:
            return self._no_bootstrap(python)
        try:
            self._from_registry(self._name(python), lambda _: None)
        except (MissingError, InputError) as error:
            if self._policy is BasePolicy.REGISTRY:
                return str(error)
            return f"{error}, and {self._no_bootstrap(python)}"
        return None

    def base(self, spec: ImageSpec, progress: Progress) -> Base:
        """Return the base of an image spec. Raises MissingError or InputError if there is none."""
        if spec.base is not None:
            return self._from_registry(spec.base, progress)
        return self._default(spec.python, bootstrap.SUITES.get(spec.python), progress)

    def tools(self, progress: Progress) -> Base:
        """Return the base in which NVIDIA's wheels are unpacked."""
        return self._default(_TOOLS_PYTHON, _TOOLS_SUITE, progress)

    def is_current(self, spec: ImageSpec, origin: str) -> bool:
        """Return True if a new build of this spec would use this base."""
        if spec.base is not None:
            asked = f"{BasePolicy.REGISTRY.value}:{spec.base}"
            return origin == asked or origin.startswith(f"{asked}@")
        origins = set()
        if self._policy is not BasePolicy.BOOTSTRAP and spec.python in self._pinned:
            origins.add(f"{BasePolicy.REGISTRY.value}:{self._pinned[spec.python]}")
        if self._policy is not BasePolicy.REGISTRY and spec.python in bootstrap.SUITES:
            origins.add(bootstrap.origin(bootstrap.SUITES[spec.python]))
        return origin in origins

    def _name(self, python: str) -> str:
        """Return the pinned default base of a Python. Raises MissingError if there is none."""
        if python not in self._pinned:
            raise MissingError(f"{FILE} has no base for Python {python}", hint=refresh_hint("bases"))
        return str(self._pinned[python])

    def _default(self, python: str, suite: str | None, progress: Progress) -> Base:
        if self._policy is not BasePolicy.BOOTSTRAP:
            try:
                return self._from_registry(self._name(python), progress)
            except MissingError as error:
                if self._policy is BasePolicy.REGISTRY or suite is None:
                    raise
                if not self._told_of_fallback:
                    self._told_of_fallback = True
                    progress(f"{error}; using Debian's mirror instead")
        if suite is None:
            raise MissingError(self._no_bootstrap(python), hint=f"use Python {' or '.join(bootstrap.SUITES)}")
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
            digest = str(self._quick.api.inspect_distribution(name)["Descriptor"]["digest"])
        except APIError as error:
            reason = str(error.explanation or error)
            if error.status_code in (401, 403, 404) and "no such host" not in reason:
                return self._local_copy(name, _not_there(name, reason), progress)
            self._unreachable = _unreachable(reason)
            return self._local_copy(name, self._unreachable, progress)
        except requests.RequestException:
            self._unreachable = _unreachable(f"no answer within {self._quick.api.timeout} s")
            return self._local_copy(name, self._unreachable, progress)
        plain, _, pinned = name.partition("@")
        if pinned and digest != pinned:
            raise MissingError(
                f"the registry answered with {digest} when asked for {name}",
                hint="check the engine's registry mirrors; one of them returns something else",
            )
        return Base(f"{plain}@{digest}", f"registry:{plain}@{digest}", plain, digest)

    def _local_copy(self, name: str, error: MissingError | InputError, progress: Progress) -> Base:
        """Return the image that the engine has under this name, or raise the error.

        If the name has a digest, the image must have been pulled with that digest.
        """
        plain, _, pinned = name.partition("@")
        # An image that was pulled by its digest has no tag.
        for reference in (plain, f"{plain.rpartition(':')[0]}@{pinned}") if pinned else (name,):
            try:
                image = self._client.images.get(reference)
            except ImageNotFound:
                continue
            there = [entry.split("@", 1)[1] for entry in image.attrs.get("RepoDigests") or [] if "@" in entry]
            if pinned and pinned not in there:
                continue
            digest = pinned or next(iter(there), None)
            progress(f"{error}; using the local copy of {name}")
            return Base(reference, f"registry:{plain}" + (f"@{digest}" if digest else ""), plain, digest)
        raise error

    def _bootstrapped(self, suite: str, progress: Progress) -> Base:
        name = bootstrap.tag(suite)
        with self._guard:
            if not self._has(name):
                with temporary_directory("base") as directory:
                    archive = bootstrap.root_file_system(suite, directory, progress)
                    self._import(archive, name, suite)
        return Base(name, bootstrap.origin(suite), f"debian:{suite}")

    def _import(self, archive: Path, name: str, suite: str) -> None:
        repository, tag = name.split(":")
        try:
            answer = self._client.api.import_image_from_file(
                str(archive), repository=repository, tag=tag,
                changes=['CMD ["bash"]', f"LABEL {names.LABEL_BASE}={bootstrap.origin(suite)}"],
            )  # fmt: skip
        except DockerException as error:
            if says_full_disk(str(error)):
                raise full_disk("the engine's images") from error
            raise MissingError(f"the engine could not import the base of Debian {suite}: {error}") from error
        if not self._has(name):
            raise MissingError(f"the engine could not import the base of Debian {suite}: {answer}")

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
            return f"no supported Debian release has Python {python}, so a base can't be bootstrapped"
        return f"a base can't be bootstrapped: {bootstrap.NO_TOOL}"


def _unreachable(reason: str) -> MissingError:
    # Go's errors begin with what was tried and end with what went wrong. They contain the address of the
    # machine's resolver.
    detail = " ".join(reason.split()).rsplit(": ", 1)[-1][:200]
    return MissingError(
        f"{_UNREACHABLE} ({detail})",
        hint="check the engine's network and proxy settings, or use --base bootstrap",
    )


def _not_there(name: str, reason: str) -> MissingError:
    return MissingError(
        f"{name} is not in the registry, or needs a login ({' '.join(reason.split())[:200]})",
        hint="check the name, or log in with `docker login`",
    )
