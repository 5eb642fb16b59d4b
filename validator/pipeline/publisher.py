"""Push images to a registry, under tags that always name the same image, and pull them from there.

Only provenance that a trusted builder signed says what an image in the registry was made from; its labels
don't count.

In this module, the digest of an image is the one in the registry, because certificates are about that digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from .. import __version__
from ..assemble.base_finder import contents
from ..assemble.configuration import attach_compatibility
from ..assemble.image import Assembled, Assembler, Destination
from ..assemble.layers import Encoded, Write
from ..certify import signatures
from ..certify.provenance import (
    Inputs,
    Provenance,
    Refusal,
    attach_provenance,
    attach_sbom,
    provenance_of,
    source_commit,
)
from ..certify.signatures import Signer
from ..certify.trust import TrustFile
from ..engines.protocol import Built, ImageEngine
from ..errors import MissingError, ValidatorError
from ..model.record import REHEARSAL, BaseOrigin
from ..model.spec import ImageSpec, Lock
from ..registry.client import Registry
from ..registry.names import image_tag
from ..sbom import document_of_lock
from ..system.processes import Progress


class RefusedError(ValidatorError):
    """The registry and this run disagree about an image."""


class TagTaken(RefusedError):
    """The tag names another image, and tags are not moved without --retag."""


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry."""

    tag: Annotated[str, "Its tag."]
    reference: Annotated[str, "`HOST/NAME@sha256:…`."]
    digest: Annotated[str, "The digest of the manifest."]
    sent: Annotated[bool, "Whether this run sent it; false if it was there already."]


@dataclass(frozen=True)
class Publisher:
    """Assembles images in one repository, and pulls them from it.

    destination: returns where the blobs and manifests of images of a spec go in the repository.
    engine: pulls images; None: this machine has no engine for images, and only pushes.
    trust: the builders whose images are accepted. signer: signs the provenance of images when they are
    pushed; None: there is none, so they can't be certified. retag: move a tag that names another image.
    rehearsal: tags and provenance say so, and no tag is one of those that an image is pulled by.
    """

    maker: Assembler
    destination: Callable[[ImageSpec], Destination]
    registry: Registry
    trust: TrustFile
    engine: ImageEngine | None = None
    signer: Signer | None = None
    retag: bool = False
    rehearsal: bool = False

    def tag(self, spec: ImageSpec) -> str:
        """Return the tag that the image of a spec gets."""
        return f"{REHEARSAL}-{image_tag(spec)}" if self.rehearsal else image_tag(spec)

    def current(self, spec: ImageSpec, lock: Lock) -> PublishedImage | None:
        """Return the image that makes a push unnecessary, or None.

        It has the right tag, and a trusted builder made it from exactly this lock, base and recipe.
        """
        tag = self.tag(spec)
        digest = self.registry.digest_of(tag)
        # Without cosign, or without a builder to trust, nobody can tell where the image comes from.
        if digest is None or not self.trust.builders or not signatures.is_installed():
            return None
        found = self._provenance(spec, lock, digest)
        if (
            isinstance(found, Refusal)
            or found.inputs.recipe_digest != self.maker.recipe(spec)
            or not self.maker.bases.is_current(spec, base := str(found.inputs.base))
        ):
            return None
        self.maker.bases.warn_if_moved(spec, base)
        return self._published(tag, digest, sent=False)

    def push(self, spec: ImageSpec, lock: Lock, progress: Progress) -> PublishedImage:
        """Assemble an image in the registry and give it its tag, unless the registry has it already.

        What it was made from is signed and attached to it. Raises BuildError if the image can't be made,
        TagTaken if the tag names another image, and MissingError for faults of the network or the registry.
        None of them changes what the tag names. If the image was pushed and could not be signed, MissingError
        is raised too; the same command signs it when it is run again.
        """
        tag = self.tag(spec)
        into = _Tagged(self.destination(spec), self.registry, tag, self.retag)
        made = self.maker.make(spec, lock, into, progress)
        if (now := self.registry.digest_of(tag)) != made.digest:
            raise RefusedError(
                f"{self._name(tag)} was pushed as {made.digest}, but the registry now has"
                f" {now or 'no such tag'}",
                hint="another run pushed to the same tag at the same time; run the same command again",
            )
        self._prove(spec, lock, made, progress)
        return self._published(tag, made.digest, sent=into.changed)

    def find(self, spec: ImageSpec, lock: Lock) -> PublishedImage:
        """Return the image that another run pushed.

        Raises MissingError if there is none, and ValidatorError if no trusted builder made it from this lock.
        """
        tag = self.tag(spec)
        digest = self.registry.digest_of(tag)
        if digest is None:
            raise MissingError(
                f"{self._name(tag)} is not in the registry", hint="push it there with `build-matrix --push`"
            )
        found = self._provenance(spec, lock, digest)
        if isinstance(found, Refusal):
            raise ValidatorError(
                f"{self._name(tag)} is rejected: {found.why}",
                hint="use the trust.yaml and the commit that it was built with, or build and push it again"
                " with --push and --retag; `check --image` measures any image, but can't certify it",
            )
        return self._published(tag, digest, sent=False)

    def pull(self, spec: ImageSpec, lock: Lock, published: PublishedImage, progress: Progress) -> Built:
        """Pull a published image into the engine, unless the engine has it already."""
        assert self.engine is not None
        existing = self.engine.existing(spec, lock)
        if existing is not None and existing.digest == published.digest:
            return existing
        return self.engine.pull(spec, lock, published.reference, progress)

    def _published(self, tag: str, digest: str, *, sent: bool) -> PublishedImage:
        return PublishedImage(tag, self.registry.repository.at(digest), digest, sent)

    def _name(self, tag: str) -> str:
        return self.registry.repository.tagged(tag)

    def _provenance(self, spec: ImageSpec, lock: Lock, digest: str) -> Provenance | Refusal:
        return provenance_of(
            self.registry, digest, self.trust, image=spec.identifier, lock_digest=lock.digest
        )

    def _prove(self, spec: ImageSpec, lock: Lock, made: Assembled, progress: Progress) -> None:
        """Sign what an image was made from and has in it, if this machine signs and its base can be named."""
        if self.signer is None:
            return
        origin = BaseOrigin.parse(made.base.origin)
        if origin is None or origin.digest is None:
            progress(f"not signed, so it can't be certified: its base {made.base.origin} has no digest")
            return
        version = f"{__version__} ({REHEARSAL})" if self.rehearsal else __version__
        inputs = Inputs(
            spec.identifier, lock.digest, self.maker.recipe(spec), origin, source_commit(), version,
            made.base.added,
        )  # fmt: skip
        attach_compatibility(self.registry, made.digest, spec)
        attach_sbom(self.registry, made.digest, document_of_lock(lock, contents(made.base)), self.signer)
        # Last: an image that has provenance is not looked at again.
        attach_provenance(self.registry, made.digest, inputs, self.signer)


class _Tagged:
    """A repository where a finished image gets a tag; `changed` is True once the tag names a new image."""

    def __init__(self, inner: Destination, registry: Registry, tag: str, retag: bool) -> None:
        self.changed = False
        self._inner, self._registry, self._tag, self._retag = inner, registry, tag, retag

    def has(self, blob: Encoded) -> bool:
        return self._inner.has(blob)

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        return self._inner.receive(encode, known)

    def finish(self, manifest: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        before = self._registry.digest_of(self._tag)
        if before == digest:
            return digest
        if before is not None and not self._retag:
            name = self._registry.repository.tagged(self._tag)
            raise TagTaken(
                f"{name} was not pushed: in the registry, this tag names another image ({before}); the image"
                f" made here is {digest}",
                hint="use --retag to move the tag; the other image stays in the registry under its digest",
            )
        self._inner.finish(manifest, media_type)
        self._registry.tag(digest, self._tag)
        self.changed = True
        return digest
