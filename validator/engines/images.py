"""The images of an engine: list them, read their layers with sizes, pull them, and load assembled ones.

An assembled image is loaded as an archive that is sent while it is made, also to a remote engine: an OCI
layout, with the file `manifest.json` for engines with the older image store. What the engine has need not be
in it: with containerd's image store, every layer of any image; the older store finds a layer only on top of
the same lower layers, which can't be known in advance, so everything is sent there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker
import msgspec
import requests
from docker.errors import DockerException, ImageNotFound
from docker.models.images import Image

from ..assemble.base import read_config
from ..assemble.image import Destination, differs, docker_annotations, docker_manifest
from ..assemble.layers import Encoded, Write
from ..errors import InputError, MissingError, ValidatorError
from ..model.record import Layer
from ..model.spec import LABEL_LOCK, LABEL_SPEC, PROJECT
from ..registry.client import blob_path, in_layout
from ..registry.names import Repository, check_image_name
from ..registry.session import explain, fault_of
from ..system import http, processes, runs
from ..system.files import cache_directory, full_disk_named, says_full_disk, writing
from ..system.pools import BLOCK, Abandoned, CutError, Pipe
from ..system.processes import Progress
from . import containers
from .endpoint import Endpoint, answering, disk_full, engine_gone, read

T = TypeVar("T")

#: Instructions that change only the configuration of an image, not its files.
_CONFIGURATION = (
    *("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
)


def find_image(client: docker.DockerClient, name: str) -> Image | None:
    """Return the image of this name or ID, or None if the engine does not have it.

    Raises InputError if nothing can have this name, and the errors of `answering`.
    """
    check_image_name(name)
    with answering(name), contextlib.suppress(ImageNotFound):
        return client.images.get(name)
    return None


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


def derivation_of(client: docker.DockerClient, name: str) -> Derivation | None:
    """Return what an image was derived from; None for an image of this project, or of another.

    A derived image inherits the labels. So the history decides, which begins with this project's steps.
    """
    image = find_image(client, name)
    if image is None or LABEL_SPEC not in image.labels:
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


def pull(endpoint: Endpoint, reference: str, progress: Progress) -> None:
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
        http.wait(pause)


def _explain(reference: str, said: str, answers: Callable[[], bool]) -> tuple[ValidatorError, bool]:
    """Return the error, and True if it may be temporary."""
    what, host = f"{reference} was not pulled", reference.partition("/")[0]
    last = processes.last_line(said, "no message from docker")
    last = last.removeprefix("Error response from daemon: ").removeprefix("Error: ")
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


# Load an assembled image.

_INDEX = "application/vnd.oci.image.index.v1+json"
_RECORD = 512
#: Layers that are on the disk at the same time: one is made while another is sent.
_ON_DISK = 2
#: The messages of an engine that lacks a blob: with containerd's image store, and with the older one.
_LACKS = ("not found", "no such file or directory")


class _LacksLayersError(Exception):
    """The engine lacks layers that were left out."""


def load(
    endpoint: Endpoint, reference: str, send: Callable[[Destination], T], progress: Progress = lambda _: None
) -> T:
    """Load an image into the engine under a name, and return what `send` returns.

    send: puts the image at the destination. It is called again, with everything to send, if layers turn out
    to be missing that the engine seemed to have.
    Raises MissingError if the engine stops responding or its disk is full; the name is then unchanged.
    """
    for note in containers.leftovers(endpoint, containers.LOADING):
        containers.remove_image_name(endpoint.client, note)
    if endpoint.has_image_store:
        try:
            with _Loading(endpoint, reference, _diff_ids(endpoint, reference), progress) as loading:
                return send(loading)
        except _LacksLayersError:
            pass
    with _Loading(endpoint, reference, frozenset(), progress) as loading:
        return send(loading)


def load_from_layout(
    endpoint: Endpoint, reference: str, directory: Path, digest: str, progress: Progress = lambda _: None
) -> None:
    """Give the engine an image of an OCI layout under a name. digest: of its manifest.

    Raises InputError for a blob that is missing or damaged, and what `load` raises.
    """
    registry = in_layout(directory)
    manifest, raw = registry.manifest(digest), registry.raw_manifest(digest)
    if manifest is None or raw is None:
        raise InputError(f"{directory} has no image {digest}", hint="receive the bundle again")
    _, diff_ids = read_config(registry, manifest, f"{directory}: {digest}")

    def send(destination: Destination) -> str:
        for blob, diff_id in zip((manifest.config, *(manifest.layers or ())), ("", *diff_ids), strict=True):
            assert blob is not None
            known = Encoded(blob.digest, blob.size, diff_id, blob.media_type)

            def copy(write: Write, known: Encoded = known) -> Encoded:
                for part in registry.blobs.read(known.digest, known.size):
                    write(part)
                return known

            if not destination.has(known):
                destination.receive(copy, known)
        return destination.finish(raw.content, manifest.media_type)

    load(endpoint, reference, send, progress)


class _Loading:
    """One archive on its way to the engine, a `Destination`.

    there: the diff_ids of layers that need not be sent.
    """

    def __init__(self, endpoint: Endpoint, reference: str, there: frozenset[str], progress: Progress) -> None:
        self._endpoint, self._client, self._reference = endpoint, endpoint.client, reference
        self._there, self._progress = there, progress
        self._sent: set[str] = set()
        self._pipe = Pipe()
        #: Held while one file is written to the archive.
        self._archive = threading.Lock()
        #: Held while a layer is on the disk.
        self._disk = threading.Semaphore(_ON_DISK)
        self._thread = threading.Thread(target=self._run, name="docker-load", daemon=True)
        self._errors: list[str] = []
        #: Why the archive ended early, if that was not the engine's doing.
        self._cause: BaseException | None = None
        # An image that can't be unpacked keeps its name with containerd's image store, so the engine gets
        # the image under this name first.
        self._name = f"{PROJECT}:loading-{secrets.token_hex(8)}"
        self._note = containers.intend(endpoint, containers.LOADING, self._name)

    def __enter__(self) -> _Loading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._pipe.cut()
        self._thread.join()
        containers.remove_image_name(self._client, self._note)

    def has(self, blob: Encoded) -> bool:
        """Return True if the engine seems to have a layer."""
        return blob.digest in self._sent or blob.diff_id in self._there

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Send the blob that `encode` writes. Raises the errors of `Destination.receive`.

        The archive has the size before the content, so a blob is stored on the disk first if its size is not
        known, or another one is being sent.
        """
        if known is not None and self._archive.acquire(blocking=False):
            try:
                return self._send(encode, known)
            finally:
                self._archive.release()
        # Not the directory for temporary files, which may be in memory.
        directory = cache_directory()
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        with self._disk, runs.temporary_directory("load", directory) as place:
            spooled = place / "blob"
            with full_disk_named(spooled), spooled.open("wb") as stream:
                encoded = encode(stream.write)
            if known is not None and encoded.digest != known.digest:
                raise differs(encoded, known)
            with self._archive:
                return self._send(lambda write: _copy(spooled, encoded, write), encoded)

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Send the manifest and give the image its name. Return the manifest's digest."""
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        entry = {
            "mediaType": media_type,
            "digest": digest,
            "size": len(manifest),
            "annotations": docker_annotations(self._name),
        }
        older = docker_manifest(self._name, manifest)
        with self._archive:
            self._write_file(blob_path(digest), manifest)
            self._write_file("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
            self._write_file("index.json", json.dumps(index).encode())
            self._write_file("manifest.json", json.dumps([older]).encode())
            self._write(bytes(2 * _RECORD))
            with self._reading():
                self._pipe.end()
        self._progress("the engine unpacks the image")
        self._thread.join()
        self._check_answer()
        try:
            loaded = self._client.images.get(self._name)
            if len(facts_of(loaded).layers) != len(older["Layers"]):
                raise self._failed("layers are not found")
            # Pass the tag separately: Podman rejects a name that contains it.
            loaded.tag(*self._reference.rsplit(":", 1))
        except (DockerException, requests.RequestException) as error:
            raise self._failed(str(error)) from error
        return digest

    def _send(self, encode: Callable[[Write], Encoded], known: Encoded) -> Encoded:
        """Write a blob of known size to the archive. After an error, the archive can't be continued."""
        written = 0

        def write(data: bytes) -> None:
            nonlocal written
            written += len(data)
            if written <= known.size:
                self._write(data)

        try:
            self._write(_header(blob_path(known.digest), known.size))
            encoded = encode(write)
            if encoded.digest != known.digest or written != known.size:
                raise differs(encoded, known)
            self._write(bytes(-known.size % _RECORD))
            # Send the blob to its end: containerd locks it until then, and a base that is loaded meanwhile to
            # compile byte code waits for the same blob.
            with self._reading():
                self._pipe.flush()
        except BaseException as error:
            self._cause = self._cause or error
            self._pipe.cut()
            raise
        self._sent.add(known.digest)
        return encoded

    def _write_file(self, path: str, content: bytes) -> None:
        self._write(_header(path, len(content)) + content + bytes(-len(content) % _RECORD))

    def _write(self, data: bytes) -> None:
        with self._reading():
            self._pipe.write(data)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise the engine's error if it stopped reading."""
        try:
            yield
        except Abandoned:
            self._thread.join()
            self._check_answer()
            raise self._failed("it stopped reading") from None

    def _run(self) -> None:
        """Send the archive and keep the errors of the answer."""
        try:
            for part in self._client.api.load_image(self._pipe.blocks()):
                if "error" in part or "Error unpacking" in str(part.get("stream", "")):
                    self._errors.append(str(part.get("error") or part.get("stream")))
        except (DockerException, requests.RequestException, CutError) as error:
            self._errors.append(str(error) or type(error).__name__)
        finally:
            self._pipe.abandon()

    def _check_answer(self) -> None:
        if self._cause is not None:
            raise self._cause
        if self._errors:
            raise self._failed(self._errors[0])

    def _failed(self, reason: str) -> Exception:
        """Return the error for a message of the engine."""
        if says_full_disk(reason):
            return disk_full(self._reference)
        if self._there and any(mark in reason for mark in _LACKS):
            return _LacksLayersError()
        if not self._endpoint.responds():
            return engine_gone(self._reference)
        return ValidatorError(
            f"{self._reference}: the engine can't load the image: {' '.join(reason.split())[:300]}",
            hint="look at the engine's log, and run the same command again",
        )


def _diff_ids(endpoint: Endpoint, reference: str) -> frozenset[str]:
    """Return the layers of the images of this project that the engine has."""
    found: set[str] = set()
    with answering(reference):
        for image in list_images(endpoint.client, LABEL_SPEC):
            found.update(facts_of(image).layers)
    return frozenset(found)


def _header(path: str, size: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = size, 0o644
    return entry.tobuf(tarfile.USTAR_FORMAT)


def _copy(path: Path, encoded: Encoded, write: Write) -> Encoded:
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            write(block)
    return encoded
