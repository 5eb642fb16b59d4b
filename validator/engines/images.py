"""The images of an engine, and the layers of an image with their sizes."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import docker
import msgspec
from docker import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image

from ..errors import MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.record import Layer
from ..model.spec import LABEL_LOCK, LABEL_SPEC, PROJECT
from ..registry.names import Repository
from ..registry.session import explain, fault_of
from ..system import processes
from ..system.files import says_full_disk
from ..system.processes import Progress
from .endpoint import Reached, disk_full, engine_gone

T = TypeVar("T")

#: Instructions that change only the configuration of an image, not its files.
_CONFIGURATION = (
    *("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
)


def list_images(client: docker.DockerClient, label: str | None = None) -> list[Image]:
    """Return the images with this label, or all images, without any that is removed during the call.

    The SDK's `images.list` raises ImageNotFound if an image is removed before it is looked up.
    """
    filters = {} if label is None else {"label": label}
    found = []
    for entry in client.api.images(filters=filters):
        with contextlib.suppress(ImageNotFound):
            found.append(client.images.get(entry["Id"]))
    return found


def layers_of(image: Image) -> tuple[Layer, ...] | None:
    """Return the layers, lowest first, or None if sizes can't be matched to layers.

    The engine lists the digests of layers without sizes, and the sizes of build steps without digests. Steps
    that made no layer are left out; the rest match if their number is the number of layers.
    """
    digests = facts_of(image).layers
    sizes = [step.size for step in _steps(image) if _made_a_layer(step)]
    if len(sizes) != len(digests):
        return None
    return tuple(Layer(digest, size) for digest, size in zip(digests, sizes, strict=True))


class _Step(msgspec.Struct, rename="pascal"):
    size: int
    created_by: str = ""


class _RootFs(msgspec.Struct, rename="pascal"):
    layers: list[str] | None = None


class Facts(msgspec.Struct, rename="pascal"):
    """What an engine says about an image, as far as it is read here. repo_digests: `NAME@DIGEST`."""

    root: _RootFs = msgspec.field(name="RootFS", default_factory=_RootFs)
    repo_digests: list[str] | None = None

    @property
    def layers(self) -> list[str]:
        """The diff_ids of the layers, lowest first."""
        return self.root.layers or []


def facts_of(image: Image) -> Facts:
    """Return what the engine says about an image. Raises ValidatorError if it can't be read."""
    return read(image.attrs, Facts, "an image")


def read(answer: object, kind: type[T], what: str) -> T:
    """Return an answer of an engine as a typed value. Raises ValidatorError if it can't be read."""
    try:
        return codec.convert(answer, kind)
    except DocumentError as error:
        raise ValidatorError(f"the engine's answer about {what} can't be read: {error}") from None


def _steps(image: Image) -> list[_Step]:
    """Return the history, oldest first."""
    return read(image.history(), list[_Step], "the history of an image")[::-1]


def _made_a_layer(step: _Step) -> bool:
    """Return True if a step of an image's history made a layer, even an empty one."""
    if step.size:
        return True
    # BuildKit writes `ENV A=1`, the older builder `/bin/sh -c #(nop)  ENV A=1`.
    words = step.created_by.partition("#(nop)")
    instruction = (words[2] or words[0]).split()[:1]
    return bool(instruction) and instruction[0] not in _CONFIGURATION


@dataclass(frozen=True)
class Derivation:
    """The image of this project that another image was made from.

    image: its image spec. lock_digest: of its lock. base: its digest, or None if the engine doesn't have it.
    commands: what was done to it, oldest first, as the builder wrote it down.
    """

    image: str
    lock_digest: str
    base: str | None
    commands: tuple[str, ...]


def derivation_of(client: DockerClient, name: str) -> Derivation | None:
    """Return what an image was derived from; None for an image of this project, or of another.

    A derived image inherits the labels. So the history decides, which begins with this project's steps.
    """
    try:
        image = client.images.get(name)
    except ImageNotFound:
        return None
    if LABEL_SPEC not in image.labels:
        return None
    history = _steps(image)
    steps = [step.created_by for step in history]
    own = [number for number, step in enumerate(steps) if step.startswith(f"{PROJECT}: ")]
    if not own or own[-1] == len(steps) - 1:
        return None
    layers = facts_of(image).layers[: sum(map(_made_a_layer, history[: own[-1] + 1]))]
    base = None
    for candidate in list_images(client, f"{LABEL_SPEC}={image.labels[LABEL_SPEC]}"):
        if (facts := facts_of(candidate)).layers == layers:
            # The digest of its manifest, if that is known.
            known = [entry.partition("@")[2] for entry in facts.repo_digests or ()]
            base = next(iter(known), str(candidate.id))
            break
    lock_digest = image.labels.get(LABEL_LOCK, "")
    return Derivation(image.labels[LABEL_SPEC], lock_digest, base, tuple(steps[own[-1] + 1 :]))


# The engine itself pulls images: it uses Docker's credentials, and fetches only layers that it lacks. The
# command line is used instead of the SDK, because a process can be ended at any time.

#: Waits between attempts, in seconds. Each attempt continues where the last one stopped.
_PAUSES_S = (1.0, 3.0, 9.0)
#: The time limit of one attempt. An image has 4 GB, which takes an hour at 10 Mbit/s.
_TIMEOUT_S = 6 * 3600

_LAYER = re.compile(r"^([0-9a-f]{12}): \S")
_LAYER_DONE = re.compile(r": (Pull complete|Already exists)$")
_NOT_THERE = re.compile(r": not found$|manifest unknown|repository .* not found", re.IGNORECASE)
_ALTERED = re.compile(
    r"unexpected commit digest|failed verification|failed size validation|digest mismatch|hash mismatch",
    re.IGNORECASE,
)
_ENGINE_GONE = re.compile(r"Cannot connect to the Docker daemon|error during connect|docker\.sock: connect")


def pull(endpoint: Reached, reference: str, progress: Progress) -> None:
    """Pull an image. The engine verifies all digests.

    Raises ValidatorError if a layer or manifest does not match its digest, and MissingError if the registry
    does not have the image, can't be reached, denies access or keeps failing.
    """
    command = [endpoint.program, "pull"]
    if endpoint.is_podman and Repository.parse(reference.partition("@")[0]).is_loopback:
        # As Docker does by itself.
        command.append("--tls-verify=false")
    for pause in (*_PAUSES_S, None):
        # stderr is read as it arrives, but stdout only at the end.
        result = processes.run(
            ["sh", "-c", 'exec "$@" >&2', "sh", *command, reference],
            on_line=_counted(progress),
            timeout_s=_TIMEOUT_S,
        )
        if result.ok:
            return
        said = f"timed out after {_TIMEOUT_S // 3600} hours" if result.timed_out else result.stderr_tail
        error, is_temporary = _explain(reference, said, endpoint.responds)
        if pause is None or not is_temporary:
            raise error
        progress(f"retrying in {pause:.0f} s: {error}")
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline:
            processes.check_stopping()
            time.sleep(0.1)


def _explain(reference: str, said: str, answers: Callable[[], bool]) -> tuple[ValidatorError, bool]:
    """Return the error, and True if it may be temporary."""
    what, host = f"{reference} was not pulled", reference.partition("/")[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message from docker"]
    last = lines[-1].removeprefix("Error response from daemon: ").removeprefix("Error: ")
    if _ENGINE_GONE.search(said) or not answers():
        return engine_gone(reference), False
    if _ALTERED.search(last):
        text = f"{what}: the content from {host} does not match its digest: {last}"
        return ValidatorError(text, hint="do not use the image, and tell the registry's operator"), False
    if says_full_disk(last):
        return disk_full(reference), False
    if _NOT_THERE.search(last):
        hint = "push it there with `build-matrix --push`"
        return MissingError(f"{what}: the image is not in {host}", hint=hint), False
    # The engine hides the registry's status code, so an unknown error may be temporary, too.
    fault = fault_of(last)
    return explain(host, last, what=what), fault is None or fault.temporary


def _counted(progress: Progress) -> Callable[[str], None]:
    """Return a function that takes docker's messages about each layer, and reports how many are done."""
    seen: set[str] = set()
    done: set[str] = set()

    def take(line: str) -> None:
        if match := _LAYER.match(line):
            seen.add(match[1])
            if _LAYER_DONE.search(line):
                done.add(match[1])
            progress(f"{len(done)} of {len(seen)} layers")

    return take
