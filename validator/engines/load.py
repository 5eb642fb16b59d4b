"""Load assembled images into a Docker engine, also a remote one, as an archive that is sent while it is made.

The archive is an OCI layout, with the file `manifest.json` for engines with the older image store. What the
engine has need not be in it: with containerd's image store, every layer of any image; the older store finds
a layer only on top of the same lower layers, which can't be known in advance, so everything is sent there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import requests
from docker.errors import DockerException

from ..assemble.base import read_config
from ..assemble.image import Destination, differs, docker_annotations, docker_manifest
from ..assemble.layers import Encoded, Write
from ..errors import InputError, ValidatorError
from ..model.spec import LABEL_SPEC, PROJECT
from ..registry.client import blob_path, in_layout
from ..system import runs
from ..system.files import cache_directory, full_disk_named, says_full_disk, writing
from ..system.pools import BLOCK, Abandoned, CutError, Pipe
from ..system.processes import Progress
from . import containers
from .endpoint import Endpoint, disk_full, engine_gone
from .images import facts_of, list_images

_INDEX = "application/vnd.oci.image.index.v1+json"
_RECORD = 512
#: Layers that are on the disk at the same time: one is made while another is sent.
_ON_DISK = 2
#: The messages of an engine that lacks a blob: with containerd's image store, and with the older one.
_LACKS = ("not found", "no such file or directory")

T = TypeVar("T")


class _LacksLayersError(Exception):
    """The engine lacks layers that were left out."""


def load(
    endpoint: Endpoint,
    reference: str,
    send: Callable[[Destination], T],
    progress: Progress = lambda _: None,
) -> T:
    """Give the engine an image under a name, and return what `send` returns.

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
    """One archive on its way to the engine. A destination: see `validator.assemble.destinations`.

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
            # Podman rejects a name with its tag.
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
            # Containerd locks a blob until it has all of it. The load of a base in the meantime, to compile
            # byte code, waits for the same blob.
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
    try:
        for image in list_images(endpoint.client, LABEL_SPEC):
            found.update(facts_of(image).layers)
    except (DockerException, requests.RequestException) as error:
        raise engine_gone(reference) from error
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
