"""Push images to a registry, under tags that always name the same image, and pull them from there.

Only provenance that a trusted builder signed says what an image in the registry was made from; its labels
don't count.

In this module, the digest of an image is the one in the registry, because certificates are about that digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import __version__
from ..assemble.progress import Progress
from ..certify import signing
from ..certify.provenance import Inputs, Provenance, Refusal, attach_provenance, provenance_of
from ..certify.signing import Signer
from ..certify.trust_file import TrustFile
from ..engines.base import Built, ImageEngine
from ..errors import MissingError, ValidatorError
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.client import Registry
from ..registry.names import image_tag
from ..system.source import source_commit


class TagTaken(ValidatorError):
    """The tag names another image, and tags are not moved without --retag."""


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry.

    sent: True if this run pushed it, False if it was there already.
    """

    tag: str
    reference: str
    digest: str
    sent: bool

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class Publisher:
    """Pushes images to one repository, or pulls them from it.

    trust: the builders whose images are accepted. signer: signs the provenance of images when they are
    pushed; None: there is none, so they can't be certified. retag: move a tag that names another image.
    """

    engine: ImageEngine
    registry: Registry
    trust: TrustFile
    signer: Signer | None = None
    retag: bool = False

    def current(self, spec: ImageSpec, lock: Lock) -> PublishedImage | None:
        """Return the image that makes a push unnecessary, or None.

        It has the right tag, and a trusted builder made it from exactly this lock, base and recipe.
        """
        tag = image_tag(spec)
        digest = self.registry.digest_of(tag)
        # Without cosign, or without a builder to trust, nobody can tell where the image comes from.
        if digest is None or not self.trust.builders or not signing.is_installed():
            return None
        found = self._provenance(spec, lock, digest)
        if (
            isinstance(found, Refusal)
            or found.inputs.recipe_digest != self.engine.recipe()
            or not self.engine.is_current_base(spec, found.inputs.base)
        ):
            return None
        return self._published(tag, digest, sent=False)

    def push(self, built: Built, lock: Lock, progress: Progress) -> tuple[PublishedImage, Built]:
        """Publish an image that was built here under its tag, unless the registry has it already.

        What it was made from is signed and attached to it. Return the image as published, and `built` with
        the digest that the registry holds. Raises TagTaken if the tag names another image, and MissingError
        if the push fails; neither changes the registry. If the image was pushed and could not be signed,
        MissingError is raised too; the same command signs it when it is run again.
        """
        tag = image_tag(built.spec)
        before = self.registry.digest_of(tag)
        if before is not None and self._is_same_image(before, built):
            self._prove(built, lock, before, progress)
            return self._published(tag, before, sent=False), _as_held(built, before)
        if before is not None and not self.retag:
            raise TagTaken(
                f"{self._name(tag)} was not pushed: in the registry, this tag names another image ({before});"
                f" the image built here is {built.digest}",
                hint="use --retag to move the tag; the other image stays in the registry under its digest",
            )
        sent = self.engine.push(built, lock, self._name(tag), progress)
        after = self.registry.digest_of(tag)
        if after is None or after != sent.digest:
            raise ValidatorError(
                f"{self._name(tag)} was pushed as {sent.digest}, but the registry now has"
                f" {after or 'no such tag'}",
                hint="another run pushed to the same tag at the same time; run the same command again",
            )
        self._prove(sent, lock, after, progress)
        return self._published(tag, after, sent=True), sent

    def find(self, spec: ImageSpec, lock: Lock) -> PublishedImage:
        """Return the image that another run pushed.

        Raises MissingError if there is none, and ValidatorError if no trusted builder made it from this lock.
        """
        tag = image_tag(spec)
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

    def _prove(self, built: Built, lock: Lock, digest: str, progress: Progress) -> None:
        """Sign what an image was made from, if this machine signs and its base can be named."""
        if self.signer is None:
            return
        inputs = Inputs(
            built.spec.identifier, lock.digest, self.engine.recipe(), built.base or "an unknown base",
            source_commit(), __version__,
        )  # fmt: skip
        if inputs.base_digest is None:
            progress(f"not signed, so it can't be certified: its base {inputs.base} has no digest")
            return
        attach_provenance(self.registry, digest, inputs, self.signer)

    def _is_same_image(self, digest: str, built: Built) -> bool:
        if digest == built.digest:
            return True
        # An engine without manifests identifies an image by the digest of its configuration.
        manifest = self.registry.manifest(digest)
        config = manifest.config if manifest else None
        return config is not None and config.digest == built.digest


def _as_held(built: Built, digest: str) -> Built:
    """Return the image with the digest of its manifest in the registry."""
    return built if built.digest == digest else replace(built, digest=digest, engine_id=built.digest)
