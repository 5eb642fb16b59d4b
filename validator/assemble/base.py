"""The base of an image: its configuration, its layers as they are, and the few of its files that matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .base_files import BaseFiles
from .layers import Encoded, Write


@dataclass(frozen=True)
class BaseLayer:
    """A layer of a base, which becomes part of the image without a change.

    blob: as it is in the image. copy: writes its bytes; raises ValidatorError if they don't match the digest.
    """

    blob: Encoded
    copy: Callable[[Write], None]


@dataclass(frozen=True)
class Base:
    """The base of an image.

    origin: `registry:python:3.12-slim-bookworm@sha256:…` or `bootstrap:bookworm@sha256:…`, as in records.
    name, digest: for the OCI labels; the digest is None if the base is not from a registry.
    settings: the field `config` of its configuration: `Env`, `Labels`, and so on.
    """

    origin: str
    name: str
    digest: str | None
    settings: Mapping[str, Any]
    layers: tuple[BaseLayer, ...]
    files: BaseFiles
