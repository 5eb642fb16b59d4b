"""Assemble an image: put its layers, its configuration and its manifest at their destination."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import BuildError
from ..model.lock import Wheel
from ..system.meter import Meter
from ..system.pools import map_in_threads, share_arenas
from . import encoding
from .base import Base, BaseLayer, compression
from .configuration import CONFIG_TYPE, MANIFEST_TYPE, Step, canonical_json, config_document, settings
from .destinations import Destination
from .layer_sources import ImagePlan
from .layer_table import LayerTable
from .layers import Encoded, LayerSource, Write, layer_key
from .progress import Progress

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
    """An image at its destination.

    digest: of the manifest. layers: lowest first, with those of the base.
    """

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

    fetch: called once with the wheels that are needed for that, before the layers are made.
    accept: called with the size of the blobs of layers together, in bytes, and True if these are all: first
        with those that the table knows, then after each layer, and before the image gets its name. An error
        that it raises passes through.
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
    work.meter = Meter(f"making {len(missing)} layers", total or None, progress)
    tasks: list[tuple[int, Callable[[], ImageLayer]]] = [
        *((0, partial(work.base_layer, layer, plan.base.name)) for layer in plan.base.layers),
        *((source.size, partial(work.layer, source)) for source in plan.layers),
    ]
    # The largest first, so that none of them is left to make on its own at the end. Byte code comes before
    # them: nobody knows its size, and it is mostly other processes that make it.
    order = sorted(range(len(tasks)), key=lambda number: -(tasks[number][0] or math.inf))

    def make(number: int) -> ImageLayer:
        layer = tasks[number][1]()
        sizes[number] = layer.encoded.size
        accept(sum(sizes), False)
        return layer

    made = dict(zip(order, map_in_threads(make, order, _AT_ONCE), strict=True))
    layers = (*(made[number] for number in range(len(tasks))), work.layer(plan.last()))
    steps = [Step(layer.name, layer.encoded.diff_id) for layer in layers]
    accept(sum(layer.encoded.size for layer in layers), True)
    configured = settings(plan.spec, plan.lock, plan.base, plan.recipe)
    config = config_document(configured, steps, plan.created)
    described = work.document(config, CONFIG_TYPE)
    table.add_content(described.digest)
    manifest = manifest_document(described, [layer.encoded for layer in layers])
    digest = destination.finish(manifest, MANIFEST_TYPE)
    if digest != _digest(manifest):
        raise BuildError(f"{plan.spec}: the destination stored {digest} instead of {_digest(manifest)}")
    return Assembled(digest, manifest, config, layers, plan.base)


def put_base(base: Base, destination: Destination, table: LayerTable) -> str:
    """Put only a base at a destination, as an image. Return the digest of its manifest."""
    work = _Work(destination, table)
    layers = [work.base_layer(layer, base.name) for layer in base.layers]
    steps = [Step(layer.name, layer.encoded.diff_id) for layer in layers]
    config = work.document(config_document(base.settings, steps, None), CONFIG_TYPE)
    return destination.finish(manifest_document(config, [layer.encoded for layer in layers]), MANIFEST_TYPE)


def manifest_document(config: Encoded, layers: Iterable[Encoded]) -> bytes:
    """Return the OCI manifest as JSON."""
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(config),
            "layers": [_descriptor(layer) for layer in layers],
        }
    )


class _Work:
    """Puts blobs at one destination. Methods may be called from several threads."""

    def __init__(self, destination: Destination, table: LayerTable) -> None:
        self._destination = destination
        self._table = table
        self._found: set[str] = set()
        self.meter = Meter("making layers", None, lambda _: None)

    def base_layer(self, layer: BaseLayer, name: str) -> ImageLayer:
        blob = layer.blob
        if blob is None:
            return self._made(f"base {name}", self._base_key(layer), layer.compress)
        is_new = not self._has(blob)
        if is_new:

            def copy(write: Write) -> Encoded:
                for part in layer.read():
                    write(part)
                return blob

            self._destination.receive(copy, blob)
        # It is part of the base with that digest, so nothing else can be expected of it.
        self._table.add_content(layer.diff_id)
        return ImageLayer(f"base {name}", blob, is_new)

    def known_size(self, layer: BaseLayer | LayerSource) -> int:
        """Return the size of the layer's blob in bytes, or 0 if nobody made it yet."""
        if isinstance(layer, LayerSource):
            row = self._table.row(self._key(layer))
        elif layer.blob is not None:
            return layer.blob.size
        else:
            row = self._table.row(self._base_key(layer))
        return row.encoded.size if row else 0

    def has(self, source: LayerSource) -> bool:
        """Return True if the layer is at the destination."""
        row = self._table.row(self._key(source))
        return row is not None and self._has(row.encoded)

    def layer(self, source: LayerSource) -> ImageLayer:
        return self._made(
            source.name, self._key(source), lambda write: encoding.encode(source.entries(), write)
        )

    def _key(self, source: LayerSource) -> str:
        return layer_key(encoding.RECIPE, source.made_from)

    def _base_key(self, layer: BaseLayer) -> str:
        return layer_key(compression(), [layer.diff_id])

    def _made(self, name: str, key: str, make: Callable[[Write], Encoded]) -> ImageLayer:
        row = self._table.row(key)
        if row is not None and self._has(row.encoded):
            return ImageLayer(name, row.encoded, is_new=False)

        def encode(write: Write) -> Encoded:
            def count(data: bytes) -> None:
                write(data)
                self.meter.add(len(data))

            encoded = make(count)
            if row is not None and encoded != row.encoded:
                raise self._table.refuse(row, encoded)
            # Before the destination keeps the layer: if this is killed then, the next run finds it, and does
            # not send it again.
            self._table.add(key, name, encoded)
            return encoded

        return ImageLayer(name, self._destination.receive(encode, row.encoded if row else None), is_new=True)

    def _has(self, blob: Encoded) -> bool:
        if blob.digest in self._found:
            return True
        if self._destination.has(blob):
            self._found.add(blob.digest)
            return True
        return False

    def document(self, content: bytes, media_type: str) -> Encoded:
        known = Encoded(_digest(content), len(content), "", media_type)
        if not self._has(known):

            def write_all(write: Write) -> Encoded:
                write(content)
                return known

            self._destination.receive(write_all, known)
        return known


def _descriptor(blob: Encoded) -> Mapping[str, Any]:
    found: dict[str, Any] = {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}
    if blob.annotations:
        found["annotations"] = dict(blob.annotations)
    return found


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
