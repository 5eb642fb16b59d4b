"""Pushes images to a registry, under tags that name one image forever, and pulls them from there.

An image's digest is here the one that the registry holds, because certificates are about that digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..engines.base import Built, ImageEngine, Progress
from ..errors import MissingError, ValidatorError
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.client import Registry
from ..registry.names import image_tag


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

    retag: move a tag that names another image.
    """

    engine: ImageEngine
    registry: Registry
    retag: bool = False

    def current(self, spec: ImageSpec, lock: Lock) -> PublishedImage | None:
        """Return the image that makes a push unnecessary, or None.

        It has the right tag, and was built from exactly this lock with exactly this recipe.
        """
        tag = image_tag(spec)
        digest = self.registry.digest_of(tag)
        if digest is None or not self.engine.up_to_date(spec, lock, self._labels(digest)):
            return None
        return self._published(tag, digest, sent=False)

    def push(self, built: Built, lock: Lock, progress: Progress) -> tuple[PublishedImage, Built]:
        """Publish an image under its tag, unless the registry has it already.

        Return the image as published, and `built` with the digest that the registry holds. Raises TagTaken if
        the tag names another image, and MissingError if the push fails; neither changes the registry.
        """
        tag = image_tag(built.spec)
        before = self.registry.digest_of(tag)
        if before is not None and self._is_same_image(before, built):
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
        return self._published(tag, after, sent=True), sent

    def find(self, spec: ImageSpec, lock: Lock) -> PublishedImage:
        """Return the image that another run pushed.

        Raises MissingError if there is none, and ValidatorError if it was built from another lock.
        """
        tag = image_tag(spec)
        digest = self.registry.digest_of(tag)
        if digest is None:
            raise MissingError(
                f"{self._name(tag)} is not in the registry", hint="push it there with `build-matrix --push`"
            )
        if not self.engine.made_from(spec, lock, self._labels(digest)):
            raise ValidatorError(
                f"{self._name(tag)} was built from another lock than the local one ({lock.digest})",
                hint="check out the commit that it was built from, or build and push it again with"
                " --push and --retag",
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

    def _labels(self, digest: str) -> Mapping[str, str]:
        return self.registry.config(digest).labels

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
