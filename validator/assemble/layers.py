"""Layers: their sources, and the blobs that are made from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .entries import Entry

#: Receives the encoded bytes of a layer, in order.
Write = Callable[[bytes], object]


@dataclass(frozen=True)
class Encoded:
    """A layer as a blob.

    digest: of the blob, `sha256:…`. size: of the blob in bytes. diff_id: the digest of the uncompressed tar
    archive. annotations: for the layer's descriptor in the manifest.
    """

    digest: str
    size: int
    diff_id: str
    media_type: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerSource:
    """A layer that can be made: its name for people, its key, and its entries.

    made_from: what decides every byte before encoding, in order: digests of wheels and of recipes.
    size: about how many bytes it will have, for progress, or 0 if that is unknown.
    read_from: the SHA-256 of a wheel to read the entries from, if any wheel with the same file would do.
    entries: makes the entries; called once for each time that the layer is encoded.
    """

    name: str
    made_from: tuple[str, ...]
    entries: Callable[[], Iterable[Entry]]
    read_from: tuple[str, ...] = ()
    size: int = 0


def layer_key(recipe: str, made_from: Iterable[str]) -> str:
    """Return the key of a layer in a layer table. recipe: of its encoding. made_from: see `LayerSource`."""
    # As JSON, because no other way to join texts is simpler and unambiguous.
    return hashlib.sha256(json.dumps([recipe, *made_from]).encode()).hexdigest()
