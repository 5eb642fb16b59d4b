"""How large the images are, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model.record import Layer


@dataclass(frozen=True)
class Size:
    """One image. size: all of its layers, in bytes, unpacked. shared: what other images have too."""

    image: str
    size: int
    shared: int
    layers: int

    @property
    def own(self) -> int:
        return self.size - self.shared


@dataclass(frozen=True)
class Storage:
    """images: in order. together: bytes of all of them as if nothing were shared. stored: each layer once."""

    images: tuple[Size, ...]
    together: int
    stored: int


def storage(layers: Mapping[str, Sequence[Layer]], images: Sequence[str]) -> Storage:
    """Of those images whose layers are known.

    layers: of an image spec, by its identifier. images: the identifiers to tell of, in order.
    """
    # An image may have the same layer twice; it is stored once all the same.
    known = {
        image: {layer.digest: layer.size for layer in layers[image]} for image in images if image in layers
    }
    users = Counter(digest for found in known.values() for digest in found)
    sizes = tuple(
        Size(
            image,
            sum(found.values()),
            sum(size for digest, size in found.items() if users[digest] > 1),
            len(found),
        )
        for image, found in known.items()
    )
    stored = {digest: size for found in known.values() for digest, size in found.items()}
    return Storage(sizes, sum(size.size for size in sizes), sum(stored.values()))


def readable(size: int) -> str:
    """`885.8 MB`, `8.1 GB`."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"
