"""Units for tests."""

from __future__ import annotations

import hashlib
from typing import Any

from validator.fleet.protocol import Unit

HOST_CLASS = "r580-h100"


def digest(text: object) -> str:
    return f"sha256:{hashlib.sha256(str(text).encode()).hexdigest()}"


def unit(number: int = 0, host_class: str = HOST_CLASS, **changes: Any) -> Unit:
    """Return the first attempt at the cell of image `number`."""
    image = digest(f"image {number}")
    fields: dict[str, Any] = {
        "image": f"tf2.{number}.0-cuda12.5-cudnn9.3-py312",
        "reference": f"registry.test/ours@{image}",
        "image_digest": image,
        "lock_digest": digest(f"lock {number}"),
        "probe_version": "1.0.0+0123456789ab",
        "depth": "quick",
        "host_class": host_class,
    }
    return Unit(**{**fields, **changes})
