"""Assemble images, and put them at their destinations: a registry, an OCI layout or a local engine."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from ..errors import BuildError, InputError, MissingError, ValidatorError
from ..model.spec import ImageSpec, Lock, Wheel, image_reference
from ..registry.blobs import Blobs, Known
from ..registry.client import NAME, Registry, blob_path
from ..registry.names import Repository, identifier_of
from ..system.files import write_atomically, writing
from ..system.pools import Meter, map_in_threads, share_arenas
from ..system.processes import Progress
from ..system.runs import temporary_directory
from . import layers as encoding
from .base import Base, BaseLayer, compression, read_config
from .base_finder import Bases
from .bytecode import CompiledWheels, Runner
from .configuration import CONFIG_TYPE, MANIFEST_TYPE, canonical_json, config_document, settings
from .layer_table import LayerTable
from .layers import Encoded, LayerSource, Write, layer_key
from .wheel_layers import ImagePlan, plan_image, recipe_digest
from .wheels import Wheelhouse


class Destination(Protocol):
    """Receive the blobs of images, and then their manifests. Several threads may call the methods.

    Nothing is visible under a name before `finish`, and what was received completely is kept and not sent
    again. Every method raises MissingError for faults of the network, the disk, the registry or the engine.
    """

    def has(self, blob: Encoded) -> bool:
        """Return True if the blob is there. A registry also tries to take it from another repository."""

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Store the blob that `encode` writes. known: its digest and size, where they are known in advance.

        Raises ValidatorError if `encode` then gives another digest; the destination keeps nothing of it. An
        error that `encode` raises passes through.
        """

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Store the manifest, whose blobs are all there, under the image's name. Return its digest."""


def differs(made: Encoded, known: Encoded) -> ValidatorError:
    """Return the error for a layer that is not what the layer table says."""
    return ValidatorError(
        f"a layer was made with the digest {made.digest}, but the layer table says {known.digest}:"
        " the table is wrong, or a wheel changed while it was read",
        hint="run the same command again; if the error persists, remove the layer's row from the table",
    )


def destinations(
    repository: Repository,
    base_repository: Callable[[ImageSpec], Repository | None],
    mount_from: Sequence[Repository] = (),
) -> Callable[[ImageSpec], RegistryDestination]:
    """Return a function that gives each image's destination in a repository, without a tag.

    base_repository: returns the repository of an image's base. If that is in the same registry, the layers of
    the base are mounted from it. mount_from: more repositories; from those of other registries, layers are
    copied.
    """

    @cache
    def destination(*others: Repository) -> RegistryDestination:
        return RegistryDestination(repository, None, others)

    def of(spec: ImageSpec) -> RegistryDestination:
        base = base_repository(spec)
        near = [base] if base is not None and base.host == repository.host else []
        return destination(*dict.fromkeys([*near, *mount_from]))

    return of


class RegistryDestination:
    """An image in a repository, under a tag or only by its digest. mount_from: as in `destinations`."""

    def __init__(
        self, repository: Repository, tag: str | None, mount_from: Sequence[Repository] = ()
    ) -> None:
        self._blobs, self._tag = Blobs.to_write(repository, mount_from), tag

    def has(self, blob: Encoded) -> bool:
        return self._blobs.has(blob.digest, blob.size)

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        made: list[Encoded] = []

        def produce(write: Write) -> str:
            # `send` calls this again after a failure.
            made.append(encode(write))
            return made[-1].digest

        self._blobs.send(produce, Known(known.digest, known.size) if known else None)
        return made[-1]

    def finish(self, manifest: bytes, media_type: str) -> str:
        return self._blobs.send_manifest(manifest, media_type, self._tag)


# Write images to a directory in the OCI image layout, and read them. No registry or engine is needed.
#
# https://github.com/opencontainers/image-spec/blob/main/image-layout.md
#
# `docker load` accepts an archive of such a directory. With containerd's image store it reads the name of an
# image from an annotation in `index.json`; with the older one it reads only `manifest.json`.

_VERSION = "1.0.0"
_INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER_NAME = "io.containerd.image.name"
#: The prefix that containerd adds to Docker's names of local images.
_LOCAL = "docker.io/library/"
_PLATFORM = {"architecture": "amd64", "os": "linux"}


class OciLayout:
    """An image in an OCI layout, under a tag. Other images stay. Several processes may write there."""

    def __init__(self, directory: Path, tag: str) -> None:
        """Make the directory unless it is there. Raises InputError if it has something else in it."""
        self._directory, self._tag = directory, tag
        self._blobs = directory / "blobs" / "sha256"
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            with self._alone():
                marker = directory / "oci-layout"
                if not marker.exists():
                    if any(directory.iterdir()):
                        raise InputError(
                            f"{directory}: is neither empty nor an OCI layout",
                            hint="give an empty or a new directory",
                        )
                    write_atomically(marker, msgspec.json.encode({"imageLayoutVersion": _VERSION}))
                self._blobs.mkdir(parents=True, exist_ok=True)

    def has(self, blob: Encoded) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self._blob(blob.digest).stat().st_size == blob.size
        return False

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        with temporary_directory("layout", self._directory) as place, writing(self._directory):
            partial = place / "blob"
            with partial.open("wb") as stream:
                encoded = encode(stream.write)
                stream.flush()
                os.fdatasync(stream.fileno())
            if known is not None and known.digest != encoded.digest:
                raise differs(encoded, known)
            partial.replace(self._blob(encoded.digest))
        return encoded

    def finish(self, manifest: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        write_atomically(self._blob(digest), manifest)
        descriptor = {
            "mediaType": media_type,
            "digest": digest,
            "size": len(manifest),
            "platform": _PLATFORM,
            "annotations": docker_annotations(image_reference(identifier_of(self._tag) or self._tag))
            | {NAME: self._tag},
        }
        path = self._directory / "index.json"
        with self._alone():
            listed = self._listed(path)
            others = [one for one in listed if (one.get("annotations") or {}).get(NAME) != self._tag]
            entries = [*others, descriptor]
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
            write_atomically(path, msgspec.json.encode(index))
            older = []
            for entry in entries:
                name = (entry.get("annotations") or {}).get(_DOCKER_NAME)
                # Only images that this program wrote have one.
                if isinstance(name, str):
                    image = self._blob(entry["digest"]).read_bytes()
                    older.append(docker_manifest(name.removeprefix(_LOCAL), image))
            write_atomically(self._directory / "manifest.json", msgspec.json.encode(older))
        return digest

    def _blob(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    def _listed(self, path: Path) -> list[Any]:
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Index).manifests
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(
                f"{path}: is not the index of an OCI layout: {error}", hint="give an empty or a new directory"
            ) from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes out while the directory or its index is changed."""
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class _Index(msgspec.Struct):
    manifests: list[dict[str, Any]] = []


def docker_annotations(name: str) -> dict[str, str]:
    """Return the annotations in `index.json` by which a Docker Engine names an image. name: with a tag."""
    return {_DOCKER_NAME: _LOCAL + name, NAME: name.partition(":")[2]}


def docker_manifest(name: str, manifest: bytes) -> dict[str, Any]:
    """Return the entry of an image in `manifest.json`. name: with a tag. manifest: in OCI's format."""
    document = msgspec.json.decode(manifest)
    paths = [blob_path(blob["digest"]) for blob in (document["config"], *document["layers"])]
    return {"Config": paths[0], "RepoTags": [name], "Layers": paths[1:]}


# Assemble an image: put its layers, its configuration and its manifest at their destination.

#: Layers that are made and sent at the same time. One that waits for the network does not hold up another.
_AT_ONCE = 3
_LOOKUPS_AT_ONCE = 8


@dataclass(frozen=True)
class ImageLayer:
    """A layer of an assembled image. is_new: it was made now, and not found at the destination."""

    name: str
    encoded: Encoded
    is_new: bool


@dataclass(frozen=True)
class Assembled:
    """An image at its destination. digest: of the manifest. layers: lowest first, with the base's."""

    digest: str
    manifest: bytes
    config: bytes
    layers: tuple[ImageLayer, ...]
    base: Base


def assemble(
    plan: ImagePlan,
    destination: Destination,
    table: LayerTable,
    progress: Progress,
    fetch: Callable[[Iterable[Wheel]], object] = lambda wheels: None,
    accept: Callable[[int, bool], None] = lambda size, is_whole: None,
) -> Assembled:
    """Put an image at its destination, making only the layers that are not there.

    fetch: called once with the wheels that are needed for that. accept: called with the size of the blobs of
    layers in bytes, and True if these are all: first with those that the table knows, then after each layer,
    and before the image gets its name. An error that it raises passes through.

    Raises ValidatorError for a wheel that does not match its lock, a wrong row of the table, and for faults
    of the network, the disk, the registry or the engine. Nothing is then visible under the image's name.
    """
    share_arenas()
    work = _Work(destination, table)
    known: list[BaseLayer | LayerSource] = [*plan.base.layers, *plan.layers]
    sizes = [work.known_size(layer) for layer in known]
    accept(sum(sizes), False)
    there = map_in_threads(work.has, plan.layers, _LOOKUPS_AT_ONCE)
    missing = [source for source, is_there in zip(plan.layers, there, strict=True) if not is_there]
    needed = {part for source in missing for part in (*source.made_from, *source.read_from)}
    fetch([wheel for wheel in plan.lock.wheels if wheel.sha256 in needed])
    total = sum(source.size for source in missing)
    word = "layer" if len(missing) == 1 else "layers"
    work.meter = Meter(f"making {len(missing)} {word}", total or None, progress)

    def rank(number: int) -> float:
        # Make the largest layers first, so that none of them is made alone at the end. Layers without a known
        # size come before them: those of the base, and byte code, most of which other processes make.
        layer = known[number]
        return -(layer.size if isinstance(layer, LayerSource) and layer.size else math.inf)

    def make(number: int) -> ImageLayer:
        layer = work.layer(known[number], plan.base.name)
        sizes[number] = layer.encoded.size
        accept(sum(sizes), False)
        return layer

    order = sorted(range(len(known)), key=rank)
    with work.meter:
        made = dict(zip(order, map_in_threads(make, order, _AT_ONCE), strict=True))
    layers = (*(made[number] for number in range(len(known))), work.layer(plan.last()))
    steps = [(layer.name, layer.encoded.diff_id) for layer in layers]
    accept(sum(layer.encoded.size for layer in layers), True)
    configured = settings(plan.spec, plan.lock, plan.base, plan.recipe)
    config = config_document(configured, steps, plan.created)
    described = work.config(config)
    table.add_content(described.digest)
    manifest = _manifest(described, layers)
    digest = destination.finish(manifest, MANIFEST_TYPE)
    if digest != _digest(manifest):
        raise BuildError(f"{plan.spec}: the destination stored {digest} instead of {_digest(manifest)}")
    return Assembled(digest, manifest, config, layers, plan.base)


def put_base(base: Base, destination: Destination, table: LayerTable) -> str:
    """Put only a base at a destination, as an image. Return the digest of its manifest."""
    work = _Work(destination, table)
    layers = [work.layer(layer, base.name) for layer in base.layers]
    steps = [(layer.name, layer.encoded.diff_id) for layer in layers]
    config = work.config(config_document(base.settings, steps, None))
    return destination.finish(_manifest(config, layers), MANIFEST_TYPE)


def _manifest(config: Encoded, layers: Iterable[ImageLayer]) -> bytes:
    descriptors: list[dict[str, Any]] = []
    for blob in (config, *(layer.encoded for layer in layers)):
        found = {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}
        descriptors.append({**found, "annotations": dict(blob.annotations)} if blob.annotations else found)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE}
    return canonical_json({**manifest, "config": descriptors[0], "layers": descriptors[1:]})


class _Work:
    """Puts blobs at one destination. Methods may be called from several threads."""

    def __init__(self, destination: Destination, table: LayerTable) -> None:
        self._destination = destination
        self._table = table
        self._found: set[str] = set()
        self.meter = Meter("making layers", None, lambda _: None)

    def known_size(self, layer: BaseLayer | LayerSource) -> int:
        """Return the size of the layer's blob in bytes, or 0 if nobody made it yet."""
        if isinstance(layer, BaseLayer) and layer.blob is not None:
            return layer.blob.size
        row = self._table.row(self._key(layer))
        return row.encoded.size if row else 0

    def has(self, source: LayerSource) -> bool:
        row = self._table.row(self._key(source))
        return row is not None and self._has(row.encoded)

    def layer(self, layer: BaseLayer | LayerSource, base: str = "") -> ImageLayer:
        """Put a layer at the destination; make it unless it is there. base: the base's name."""
        if isinstance(layer, LayerSource):
            name, size = layer.name, layer.size
        else:
            name, size = f"base {base}", 0
        if isinstance(layer, BaseLayer) and layer.blob is not None:
            is_new = self._copy(layer.blob, layer.read)
            # The base's digest fixes the content of this layer, so it counts as computed here.
            self._table.add_content(layer.diff_id)
            return ImageLayer(name, layer.blob, is_new)
        key = self._key(layer)
        row = self._table.row(key)
        if row is not None and self._has(row.encoded):
            return ImageLayer(name, row.encoded, is_new=False)
        # A diff_id in a shared row is only somebody else's claim, so don't rely on it.
        diff_id = row.diff_id if row is not None and row.made_here else None

        def encode(write: Write) -> Encoded:
            def write_counted(data: bytes) -> None:
                write(data)
                count(len(data))

            if isinstance(layer, LayerSource):
                encoded = encoding.encode(layer.entries(), write_counted, diff_id)
            else:
                encoded = layer.compress(write_counted)
            if row is not None and encoded != row.encoded:
                raise self._table.refuse(row, encoded)
            # Before the destination keeps the layer: if this is killed then, the next run finds it, and does
            # not send it again.
            self._table.add(key, name, encoded)
            return encoded

        with self.meter.part(name, size) as count:
            encoded = self._destination.receive(encode, row.encoded if row else None)
        return ImageLayer(name, encoded, is_new=True)

    def _key(self, layer: BaseLayer | LayerSource) -> str:
        if isinstance(layer, LayerSource):
            return layer_key(encoding.RECIPE, layer.made_from)
        return layer_key(compression(), [layer.diff_id])

    def _has(self, blob: Encoded) -> bool:
        if blob.digest in self._found:
            return True
        if self._destination.has(blob):
            self._found.add(blob.digest)
            return True
        return False

    def config(self, content: bytes) -> Encoded:
        known = Encoded(_digest(content), len(content), "", CONFIG_TYPE)
        self._copy(known, lambda: [content])
        return known

    def _copy(self, blob: Encoded, read: Callable[[], Iterable[bytes]]) -> bool:
        """Store a blob as it is, unless it is there. Return True if it was stored now."""
        if self._has(blob):
            return False

        def copy(write: Write) -> Encoded:
            for part in read():
                write(part)
            return blob

        self._destination.receive(copy, blob)
        return True


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


# Make the image of a spec and its lock: find its base, plan its layers, and put it at a destination.

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assembler:
    """Makes images from bases and wheels, on this machine. Methods may be called from any thread.

    runner: returns what runs the Python of a base, to compile byte code; None if nothing can. accept: called
    with the size of an image in bytes, as a pull downloads it, and True if that is all of it: whenever more
    of the size is known, and before the image gets its name.
    """

    bases: Bases
    wheels: Wheelhouse
    table: LayerTable
    runner: Callable[[Base], Runner | None]
    accept: Callable[[ImageSpec, Lock, int, bool], None] = lambda spec, lock, size, is_whole: None
    _compiled: CompiledWheels = field(default_factory=CompiledWheels)

    def recipe(self, spec: ImageSpec) -> str:
        """Return the digest of everything but the lock and the base that decides what is in an image."""
        return recipe_digest(spec.variant)

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        """Put the image at its destination, making only the layers that are not there.

        Raises BuildError if it can't be made, MissingError if something that it needs is missing, and the
        destination's errors.
        """
        base = self.bases.base(spec, progress)
        runner = self.runner(base)
        if runner is None:
            # A line of progress would soon be replaced by the next one.
            logger.warning(
                "%s gets no byte code, so its imports take longer: neither a Docker Engine nor bubblewrap can"
                " run the base's Python here",
                spec,
            )
        plan = plan_image(spec, lock, base, self.wheels, self.table, runner, self._compiled)
        return assemble(
            plan, destination, self.table, progress,
            fetch=lambda needed: self.wheels.fetch(needed, progress),
            accept=lambda size, is_whole: self.accept(spec, lock, size, is_whole),
        )  # fmt: skip


# Find out if an image in a registry is exactly what its lock and base give, by making every layer again.

_REBUILD_AT_ONCE = 2


class Finding(str, Enum):
    """The result of comparing a layer or the configuration of an image with what the lock and the base give.

    BASE: not from wheels, but a layer of the base. EXTRA: they don't give it. MISSING: the image lacks it.
    """

    EQUAL = "equal"
    DIFFERS = "differs"
    BASE = "base"
    EXTRA = "extra"
    MISSING = "missing"


@dataclass(frozen=True)
class Compared:
    """A layer of an image, or its configuration, next to what its lock gives."""

    name: Annotated[str, "Which layer it is, or `configuration`."]
    finding: Annotated[Finding, "What the comparison showed."]
    found: Annotated[
        str | None,
        "The diff_id of the layer in the image, or the digest of its configuration; null if the image"
        " lacks it.",
    ]
    expected: Annotated[str | None, "The right digest; null if there should be none, or for a base layer."]

    @property
    def is_right(self) -> bool:
        return self.finding in (Finding.EQUAL, Finding.BASE)


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry. diff_ids: of its layers, lowest first. config: as JSON values."""

    diff_ids: tuple[str, ...]
    config_digest: str
    config: dict[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return (self.config.get("config") or {}).get("Labels") or {}


def published_image(registry: Registry, digest: str) -> PublishedImage:
    """Return what an image says about itself. Raises InputError if it is not an image, and MissingError."""
    what = f"the image {registry.repository.at(digest)}"
    manifest = registry.manifest(digest)
    if manifest is None:
        raise MissingError(f"{what} is not in the registry", hint="check its name")
    config, diff_ids = read_config(registry, manifest, what)
    assert manifest.config is not None
    return PublishedImage(tuple(diff_ids), manifest.config.digest, config)


def rebuild(
    image: PublishedImage, plan: ImagePlan, table: LayerTable, progress: Progress
) -> tuple[Compared, ...]:
    """Make every layer of a plan again, without the layer table, and compare it with the image's.

    Layers and a configuration that are equal count from now on as computed by this machine. Raises
    ValidatorError for a wheel that does not match its lock, and MissingError if one can't be downloaded.
    """
    compared = list(_compare_layers(image, plan, table, progress))
    # The names of layers are free text, so they are not compared.
    steps = [("", diff_id) for diff_id in image.diff_ids]
    configured = settings(plan.spec, plan.lock, plan.base, plan.recipe)
    wanted = msgspec.json.decode(config_document(configured, steps, plan.created), type=dict[str, Any])
    keys = {*image.config, *wanted} - {"history"}
    if different := sorted(key for key in keys if image.config.get(key) != wanted.get(key)):
        name = f"configuration ({', '.join(different)})"
        compared.append(Compared(name, Finding.DIFFERS, image.config_digest, None))
    else:
        table.add_content(image.config_digest)
        compared.append(Compared("configuration", Finding.EQUAL, image.config_digest, None))
    return tuple(compared)


def uncomputed(image: PublishedImage, table: LayerTable) -> tuple[str, ...]:
    """Return the diff_ids, and the digest of the configuration, that this machine has not computed itself."""
    return tuple(part for part in (*image.diff_ids, image.config_digest) if not table.has_content(part))


def _compare_layers(
    image: PublishedImage, plan: ImagePlan, table: LayerTable, progress: Progress
) -> Iterator[Compared]:
    base, below = plan.base, len(plan.base.layers)
    for number, layer in enumerate(base.layers):
        found = image.diff_ids[number] if number < len(image.diff_ids) else None
        is_same = found == layer.diff_id
        if is_same:
            table.add_content(layer.diff_id)
        finding = Finding.BASE if is_same else Finding.MISSING if found is None else Finding.DIFFERS
        yield Compared(f"base {base.name}", finding, found, layer.diff_id)

    def diff_id(source: LayerSource) -> str:
        progress(f"making {source.name} again")
        return encoding.encode(source.entries(), lambda part: None).diff_id

    expected = map_in_threads(diff_id, plan.layers, _REBUILD_AT_ONCE)
    sources = [*plan.layers, plan.last()]
    expected.append(diff_id(sources[-1]))
    for source, found, wanted in zip_longest(sources, image.diff_ids[below:], expected):
        name = source.name if source else "a layer that the lock does not have"
        finding = Finding.DIFFERS
        if wanted is None:
            finding = Finding.EXTRA
        elif found is None:
            finding = Finding.MISSING
        elif found == wanted:
            finding = Finding.EQUAL
            table.add_content(found)
        yield Compared(name, finding, found, wanted)
