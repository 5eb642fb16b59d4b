"""A client for one repository of a registry: tags, manifests, configurations and attached artifacts.

Credentials are Docker's (`docker login`). All content is read up to a limit for its kind, whatever size the
registry claims, and verified against its digest. Temporary failures are retried. Large blobs: see `blobs`.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ..errors import InputError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..system.files import open_file, read_file
from .blobs import Blobs, Known, Write
from .names import Repository, identifier_of, is_digest, is_tag
from .session import Document, Session

# Parse what a registry sends as JSON: manifests, indexes, configurations of images, lists of tags.
#
# The formats are those of the OCI image specification (https://github.com/opencontainers/image-spec) and of
# Docker's own manifests, as far as this project reads them; other fields are ignored. Nothing in them is
# trusted, only their form is checked here.

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
#: For the header `Accept` of a request for a manifest.
MANIFEST_TYPES = (
    f"{INDEX_TYPE}, {MANIFEST_TYPE}, application/vnd.docker.distribution.manifest.list.v2+json,"
    " application/vnd.docker.distribution.manifest.v2+json"
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
    environment: tuple[str, ...] | None = msgspec.field(name="Env", default=None)


class ImageConfig(msgspec.Struct, frozen=True):
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


_ATTACH_TRIES = 8
_SHOWN_TAGS = 20
#: Seconds; longer than other clients take from reading the list of attached artifacts to writing it.
_SETTLE_S = 0.6
#: The configuration of an artifact that needs none (OCI image specification, 1.1).
_EMPTY, _EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"
#: What clients write for an artifact whose type is only in its manifest, and how many of these are read.
_UNTYPED, _MOST_UNTYPED = (None, "", _EMPTY_TYPE), 1000
_TITLE, _CREATED = "org.opencontainers.image.title", "org.opencontainers.image.created"


class ConcurrentChangeError(ValidatorError):
    """Another client changed the same tag, or the same list of attached artifacts, at the same time."""


class Registry:
    """Reads and writes one repository.

    Every method raises MissingError if the registry can't be reached, is full, denies access or keeps
    failing, and AlteredError if content does not match its digest.
    """

    def __init__(
        self, repository: Repository, *, plain_http: bool | None = None, layout: Layout | None = None
    ) -> None:
        """plain_http: use HTTP without TLS; None: only for a registry on this machine.

        layout: read from these files instead of a registry.
        """
        self.repository = repository
        self.plain_http = repository.is_loopback if plain_http is None else plain_http
        self.blobs: Blobs | Layout = layout or Blobs(
            Session(repository, push=False, plain_http=self.plain_http)
        )
        self._writing = Blobs(Session(repository, push=True, plain_http=self.plain_http))

    def digest_of(self, tag: str) -> str | None:
        """Return the digest that a tag points to, or None if the tag does not exist."""
        reference = self.repository.tagged(tag)
        what = f"{reference} can't be looked up"
        answer = self._manifest(tag, what, head=True)
        if answer is not None and not answer.digest:
            answer = self._manifest(tag, what)
        if answer is None:
            return None
        digest = answer.digest or _digest(answer.content)
        if not is_digest(digest):
            raise ValidatorError(f"{reference} can't be looked up: {digest[:80]!r} is not a SHA-256 digest")
        return digest

    def find(self, name: str) -> str | None:
        """Return the digest of an image, by its tag or its digest; None if it is not there."""
        digest = name if is_digest(name) else self.digest_of(name)
        return None if digest is None or self.manifest(digest) is None else digest

    def named(self, name: str) -> str:
        """Return the digest of an image, as `find` does. Raises InputError if it is not there."""
        digest = self.find(name)
        if digest is None:
            place = self.repository.at(name) if is_digest(name) else self.repository.tagged(name)
            raise InputError(f"{place} is not in the registry", hint=self.tags_hint())
        return digest

    def tags(self) -> list[str]:
        """Return all tags, in the registry's order; empty if the repository does not exist."""
        what = f"{self.repository} can't be listed"
        pages = self.blobs.session.pages(self._path("tags/list"), what=what, most=LARGEST_MANIFEST)
        listed = f"the list of tags of {self.repository}"
        tags = [tag for page in pages for tag in parse(page.content, Tags, listed).tags or ()]
        return [tag for tag in tags if is_tag(tag)]

    def tags_hint(self) -> str:
        """Return a hint for somebody who asked for a tag that does not exist."""
        tags = [identifier_of(tag) or tag for tag in self.tags()]
        more = f" and {len(tags) - _SHOWN_TAGS} more" if len(tags) > _SHOWN_TAGS else ""
        return f"it has {', '.join(tags[:_SHOWN_TAGS]) or 'none'}{more}"

    def manifest(self, digest: str) -> Manifest | None:
        """Return the manifest or index with this digest, or None if it does not exist."""
        answer = self.raw_manifest(digest)
        what = f"the manifest {self.repository.at(digest)}"
        return None if answer is None else parse(answer.content, Manifest, what)

    def raw_manifest(self, digest: str) -> Document | None:
        """Return a manifest or index as it was sent, or None if it does not exist."""
        return self._manifest(digest, f"{self.repository.at(digest)} can't be read")

    def config(self, digest: str) -> ImageConfig:
        """Return the configuration of an image; for an index, that of `PLATFORM`.

        Raises ValidatorError if the digest is not that of an image.
        """
        manifest = self.manifest(digest)
        if manifest is not None and manifest.manifests is not None:
            entry = manifest.for_platform()
            manifest = self.manifest(entry.digest) if entry else None
        if manifest is None or manifest.config is None:
            raise ValidatorError(f"{self.repository.at(digest)} is not an image for {'/'.join(PLATFORM)}")
        described = manifest.config.digest
        data = self.blob(described, LARGEST_CONFIG)
        return parse(data, ImageConfig, f"the configuration {self.repository.at(described)}")

    def blob(self, digest: str, most: int) -> bytes:
        """Return the content of a blob of at most `most` bytes, such as a configuration or a bundle."""
        what = f"{self.repository.at(digest)} can't be read"
        answer = self.blobs.session.document(
            self._path(f"blobs/{digest}"), what=what, most=most, digest=digest
        )
        if answer is None:
            raise ValidatorError(f"{what}: it is not in the registry")
        return answer.content

    def tag(self, digest: str, tag: str) -> None:
        """Point a tag to an existing manifest, and verify it."""
        reference = self.repository.tagged(tag)
        what = f"{reference} can't be set"
        answer = self._manifest(digest, what)
        if answer is None:
            raise ValidatorError(f"{what}: {digest} is not in the registry")
        self._writing.send_manifest(answer.content, answer.media_type, tag)
        now = self.digest_of(tag)
        if now != digest:
            raise ConcurrentChangeError(
                f"{reference} was set to {digest}, but now {f'points to {now}' if now else 'does not exist'}",
                hint="somebody else changed the tag at the same time; repeat the command",
            )

    def attached(self, digest: str, artifact_type: str) -> list[Descriptor]:
        """Return the artifacts of a type that are attached to a manifest (referrers API or its fallback)."""
        reference = self.repository.at(digest)
        what = f"the artifacts attached to {reference} can't be listed"
        pages = list(
            self.blobs.session.pages(self._path(f"referrers/{digest}"), what=what, most=LARGEST_MANIFEST)
        )
        if not pages or pages[0].media_type != INDEX_TYPE:
            # A registry without the API says that it does not exist, or answers with something else.
            listed = self._manifest(_fallback_tag(digest), what)
            pages = [listed] if listed else []
        listed_as = f"the list of artifacts attached to {reference}"
        entries = [
            entry for page in pages for entry in parse(page.content, Manifest, listed_as).manifests or ()
        ]
        # Without the referrers API, the list in the fallback tag may lack types. The manifests have them.
        untyped = sum(entry.artifact_type in _UNTYPED for entry in entries)
        if untyped > _MOST_UNTYPED:
            raise ValidatorError(
                f"{listed_as} has {untyped:,} entries without a type, of which {_MOST_UNTYPED:,} are read",
                hint="remove what nobody needs from it",
            )
        return [entry for entry in map(self._described, entries) if entry.artifact_type == artifact_type]

    def attach(
        self,
        digest: str,
        artifact_type: str,
        content: bytes,
        annotations: Mapping[str, str],
        *,
        media_type: str | None = None,
    ) -> str:
        """Attach a small file to a manifest, as an artifact that refers to it. Return the artifact's digest.

        media_type: of the file; None: the artifact's. If the registry has no referrers API, clients keep the
        list of attached artifacts under a tag, and if two add to it at the same time, an entry can be lost.
        So this checks that the entry stays, and retries.
        """
        reference = self.repository.at(digest)
        what = f"the artifact can't be attached to {reference}"
        image = self._manifest(digest, what)
        if image is None:
            raise ValidatorError(f"{what}: the image is not in the registry")
        layer = {**_descriptor(content, media_type or artifact_type), "annotations": {_TITLE: "content"}}
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        marks = {_CREATED: now, **annotations}
        manifest = msgspec.json.encode(
            {
                "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "artifactType": artifact_type,
                "config": _descriptor(_EMPTY, _EMPTY_TYPE), "layers": [layer],
                "subject": _descriptor(image.content, image.media_type), "annotations": marks,
            }
        )  # fmt: skip
        for part in (_EMPTY, content):
            self._send(part)
        attached, is_listed = self._writing.send_artifact(manifest, MANIFEST_TYPE, None)
        if is_listed:
            return attached
        entry = {
            **_descriptor(manifest, MANIFEST_TYPE), "artifactType": artifact_type, "annotations": marks
        }  # fmt: skip
        for _ in range(_ATTACH_TRIES):
            self._add_to_fallback(digest, entry, what)
            if self._stays(digest, artifact_type, attached):
                return attached
        raise ConcurrentChangeError(
            f"the artifact was attached to {reference}, but is missing from the list of attached artifacts",
            hint="somebody else attached to the same image at the same time; repeat the command",
        )

    def _send(self, content: bytes) -> None:
        known = Known(_digest(content), len(content))

        def produce(write: Write) -> str:
            write(content)
            return known.digest

        if not self._writing.has(known.digest, known.size):
            self._writing.send(produce, known)

    def _add_to_fallback(self, digest: str, entry: Mapping[str, Any], what: str) -> None:
        """Add an artifact to the list under the tag that stands for the referrers API."""
        tag = _fallback_tag(digest)
        answer = self._manifest(tag, what)
        index: dict[str, Any] = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}
        if answer is not None:
            # Its form is checked, but everything in it is kept.
            parse(answer.content, Manifest, f"the list of artifacts {self.repository.tagged(tag)}")
            index = msgspec.json.decode(answer.content)
        entries = index.get("manifests") or []
        if any(listed["digest"] == entry["digest"] for listed in entries):
            return
        index["manifests"] = [*entries, entry]
        self._writing.send_manifest(msgspec.json.encode(index), INDEX_TYPE, tag)

    def _stays(self, digest: str, artifact_type: str, attached: str) -> bool:
        """Return True if the artifact is listed, and still is when others may have written an older list."""
        if not any(entry.digest == attached for entry in self.attached(digest, artifact_type)):
            return False
        # Clients that collide wait for different times.
        time.sleep(_SETTLE_S * random.uniform(1, 2))
        return any(entry.digest == attached for entry in self.attached(digest, artifact_type))

    def _described(self, entry: Descriptor) -> Descriptor:
        manifest = self.manifest(entry.digest) if entry.artifact_type in _UNTYPED else None
        if manifest is None:
            return entry
        annotations = {**(entry.annotations or {}), **(manifest.annotations or {})}
        kind = manifest.artifact_type
        return msgspec.structs.replace(entry, artifact_type=kind, annotations=annotations)

    def _manifest(self, reference: str, what: str, *, head: bool = False) -> Document | None:
        """Return a manifest or index, verified if the reference is a digest. head: without its content."""
        return self.blobs.session.document(
            self._path(f"manifests/{reference}"), what=what, most=LARGEST_MANIFEST,
            digest=reference if is_digest(reference) else None, accept=MANIFEST_TYPES, head=head,
        )  # fmt: skip

    def _path(self, rest: str) -> str:
        return f"/v2/{self.repository.path}/{rest}"


def _fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


# Read the images in an OCI layout, a directory, as if they were in a registry.
#
# https://github.com/opencontainers/image-spec/blob/main/image-layout.md

#: The annotation of an image's tag in `index.json`.
NAME = "org.opencontainers.image.ref.name"
_LARGEST_BLOB, _BLOCK = 1 << 40, 1 << 20
_AGAIN = "write it again, to an empty directory: `build-matrix --no-validate --oci DIRECTORY`"


class Layout:
    """The files of a layout: answers what `Registry` asks its session and its blobs.

    attached: the directory with the list of what is attached to each image; None if there is none.
    """

    def __init__(self, directory: Path, attached: Path | None = None) -> None:
        self._directory, self._attached = directory, attached
        path = directory / "index.json"
        try:
            index = parse(read_file(path, LARGEST_MANIFEST), Manifest, str(path))
        except OSError as error:
            raise InputError(
                f"{directory} can't be read as an OCI layout: {path.name}: {error.strerror}",
                hint="`build-matrix --no-validate --oci DIRECTORY` writes one",
            ) from None
        except ValidatorError as error:
            raise InputError(str(error), hint=_AGAIN) from None
        entries = index.manifests or ()
        self._types = {entry.digest: entry.media_type for entry in entries}
        self._tags = {(entry.annotations or {}).get(NAME, ""): entry.digest for entry in entries}

    @property
    def session(self) -> Layout:
        return self

    def document(
        self, address: str, *, what: str, most: int, digest: str | None = None, accept: str = "",
        head: bool = False,
    ) -> Document | None:  # fmt: skip
        """Return a manifest or a small blob, None if it is not here. The parameters are those of Session."""
        name = address.rpartition("/")[2]
        found = name if is_digest(name) else self._tags.get(name)
        if found is None or (found not in self._types and not (self._directory / blob_path(found)).exists()):
            return None
        return Document(b"".join(self.read(found, most=most)), self._types.get(found, ""), found, None)

    def pages(self, address: str, *, what: str, most: int) -> Iterator[Document]:
        """Yield the list of tags, or of what is attached to an image."""
        name = address.rpartition("/")[2]
        if not is_digest(name):
            yield Document(json.dumps({"tags": sorted(filter(None, self._tags))}).encode(), "", "", None)
            return
        path = self._attached and self._attached / f"{name.replace(':', '-')}.json"
        if path and path.is_file():
            yield Document(read_file(path, most), INDEX_TYPE, "", None)

    def read(self, digest: str, size: int | None = None, most: int = _LARGEST_BLOB) -> Iterator[bytes]:
        """Yield the content of a blob in parts. Raises InputError, at the latest after the last part."""
        path, hashing, done = self._directory / blob_path(digest), hashlib.sha256(), 0
        try:
            with open_file(path, most) as stream:
                while part := stream.read(_BLOCK):
                    hashing.update(part)
                    done += len(part)
                    yield part
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror}", hint=_AGAIN) from None
        if f"sha256:{hashing.hexdigest()}" != digest or size not in (None, done):
            raise InputError(f"{path} is damaged: its content has another digest", hint=_AGAIN)


def blob_path(digest: str) -> str:
    """Return the path of a blob in a layout."""
    return f"blobs/{digest.replace(':', '/')}"


def in_layout(directory: Path, attached: Path | None = None) -> Registry:
    """Return the images of a layout as a registry, whose name is the directory. See `Layout`."""
    place = Repository("", str(directory.resolve()).removeprefix("/"))
    return Registry(place, layout=Layout(directory, attached))


def named_in_layout(directory: Path, tag: str) -> tuple[Registry, str]:
    """Return a layout and the digest of its image with this tag. Raises InputError if there is none."""
    registry = in_layout(directory)
    digest = registry.find(tag)
    if digest is None:
        has = ", ".join(registry.tags()) or "no image with a tag"
        raise InputError(f"{directory} has no image {tag}", hint=f"it has {has}")
    return registry, digest
