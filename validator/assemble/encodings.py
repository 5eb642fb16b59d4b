"""The encodings of layers by name."""

from __future__ import annotations

from .gzip_encoding import GzipEncoding
from .layers import Encoding, Layers
from .zstd_encoding import ZstdEncoding


def encoding(choice: Layers) -> Encoding:
    """Return the encoding with this name."""
    return GzipEncoding() if choice is Layers.GZIP else ZstdEncoding()
