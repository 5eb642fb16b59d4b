"""Parse what a registry sends as JSON: manifests, indexes, configurations of images, lists of tags.

The formats are those of the OCI image specification (https://github.com/opencontainers/image-spec) and of
Docker's own manifests, as far as this project reads them; other fields are ignored. Nothing in them is
trusted, only their form is checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ..errors import ValidatorError
from ..model import codec
from ..model.codec import DocumentError

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
#: For the header `Accept` of a request for a manifest.
MANIFEST_TYPES = ", ".join(
    (
        INDEX_TYPE,
        MANIFEST_TYPE,
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
#: Bytes of a manifest, an index, or a list of tags or referrers; also the limit of registries and clients.
LARGEST_MANIFEST = 4 << 20
#: Bytes of the configuration of an image. One with hundreds of layers has 100 kB.
LARGEST_CONFIG = 8 << 20
#: The platform to choose from an image index.
PLATFORM = ("linux", "amd64")
#: Characters that an error quotes from a document.
_LONGEST = 200

_Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
_Size = Annotated[int, Meta(ge=0)]


class Platform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to a blob or a manifest, with the size in bytes that the registry claims."""

    digest: _Digest
    size: _Size
    media_type: str = ""
    artifact_type: str | None = None
    annotations: dict[str, str] | None = None
    platform: Platform | None = None


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """A manifest of an image or artifact, or an index of several (then `manifests` is not None)."""

    media_type: str = ""
    artifact_type: str | None = None
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] | None = None
    manifests: tuple[Descriptor, ...] | None = None
    annotations: dict[str, str] | None = None

    def for_platform(self) -> Descriptor | None:
        """Return the entry of an index for `PLATFORM`, or None."""
        for entry in self.manifests or ():
            if entry.platform and (entry.platform.os, entry.platform.architecture) == PLATFORM:
                return entry
        return None


class _Settings(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = msgspec.field(name="Labels", default=None)
    exposed_ports: dict[str, object] | None = msgspec.field(name="ExposedPorts", default=None)


class ImageConfig(msgspec.Struct, frozen=True):
    """The configuration of an image."""

    config: _Settings | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        return (self.config and self.config.labels) or {}

    @property
    def ports(self) -> Collection[str]:
        """The ports on which the image's own command answers, such as `8888/tcp`."""
        return (self.config and self.config.exposed_ports) or ()


class Tags(msgspec.Struct, frozen=True):
    """A page of the list of tags."""

    tags: tuple[str, ...] | None = None


T = TypeVar("T", Manifest, ImageConfig, Tags)


def parse(data: bytes, kind: type[T], what: str) -> T:
    """Parse a document. what: its name, which begins the message. Raises ValidatorError."""
    try:
        return codec.convert(codec.parse_unique(data), kind)
    except DocumentError as error:
        raise ValidatorError(
            f"{what} is not valid: {' '.join(str(error).split())[:_LONGEST]}",
            hint="whoever writes to this registry must push it again",
        ) from None
