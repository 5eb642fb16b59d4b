"""Images between the engine and a registry: pushed under tags that name one image for ever, and pulled.

`sha256:…` of an image is here what the registry holds, since certificates are about that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..engines.base import Built, ImageEngine, Progress
from ..errors import MissingError, ValidatorError
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.client import Registry
from ..registry.names import image_tag


class TagTaken(ValidatorError):
    """A tag names another image, and tags are not moved unless somebody says so."""


@dataclass(frozen=True)
class Published:
    """An image in a registry.

    sent: whether this run sent it; False when it was there.
    """

    tag: str
    reference: str
    digest: str
    sent: bool

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class Publisher:
    """Pushes images into one repository, or takes them from it.

    retag: whether a tag of another image may be moved.
    """

    engine: ImageEngine
    registry: Registry
    retag: bool = False

    def current(self, spec: ImageSpec, lock: Lock) -> Published | None:
        """The image that a push would find already there: under its tag, and made of this very lock by this
        very recipe. None when there is none."""
        tag = image_tag(spec)
        digest = self.registry.digest_of(tag)
        if digest is None or not self.engine.up_to_date(spec, lock, self._labels(digest)):
            return None
        return self._published(tag, digest, sent=False)

    def push(self, built: Built, lock: Lock, progress: Progress) -> tuple[Published, Built]:
        """Publish an image under its tag; what is there already is not sent.

        Gives the image with the digest that the registry holds. Raises TagTaken when the tag names another
        image, MissingError when the registry does not take it; nothing is changed in either case.
        """
        tag = image_tag(built.spec)
        before = self.registry.digest_of(tag)
        if before is not None and self._is(before, built):
            return self._published(tag, before, sent=False), _as_held(built, before)
        if before is not None and not self.retag:
            raise TagTaken(
                f"{self._name(tag)} is {before} in the registry, and this image is {built.digest}; it was not"
                " pushed",
                hint="--retag moves the tag; the other image stays there under its digest",
            )
        sent = self.engine.push(built, lock, self._name(tag), progress)
        after = self.registry.digest_of(tag)
        if after is None or after != sent.digest:
            raise ValidatorError(
                f"{self._name(tag)} was pushed as {sent.digest}, but is {after or 'gone'} in the registry",
                hint="somebody else pushed at the same time; run the same command again",
            )
        return self._published(tag, after, sent=True), sent

    def find(self, spec: ImageSpec, lock: Lock) -> Published:
        """The image that another run pushed.

        Raises MissingError when there is none, ValidatorError when it was built from another lock.
        """
        tag = image_tag(spec)
        digest = self.registry.digest_of(tag)
        if digest is None:
            raise MissingError(
                f"the registry has no {self._name(tag)}", hint="build-matrix --push puts it there, see --help"
            )
        if not self.engine.made_from(spec, lock, self._labels(digest)):
            raise ValidatorError(
                f"{self._name(tag)} was not built from the lock that is here ({lock.digest})",
                hint="check out what it was built from, or build and push it anew (--push with --retag)",
            )
        return self._published(tag, digest, sent=False)

    def pull(self, spec: ImageSpec, lock: Lock, published: Published, progress: Progress) -> Built:
        """Bring an image of the registry into the engine, unless it has the same one."""
        here = self.engine.existing(spec, lock)
        if here is not None and here.digest == published.digest:
            return here
        return self.engine.pull(spec, lock, published.reference, progress)

    def _published(self, tag: str, digest: str, *, sent: bool) -> Published:
        return Published(tag, self.registry.repository.at(digest), digest, sent)

    def _name(self, tag: str) -> str:
        return self.registry.repository.tagged(tag)

    def _labels(self, digest: str) -> Mapping[str, str]:
        labels: Any = (self.registry.config(digest).get("config") or {}).get("Labels")
        return labels if isinstance(labels, dict) else {}

    def _is(self, digest: str, built: Built) -> bool:
        if digest == built.digest:
            return True
        # An engine without manifests calls an image by its configuration.
        manifest = self.registry.manifest(digest) or {}
        return bool(built.digest) and (manifest.get("config") or {}).get("digest") == built.digest


def _as_held(built: Built, digest: str) -> Built:
    """The image, called by the digest of its manifest in the registry."""
    return built if built.digest == digest else replace(built, digest=digest, engine_id=built.digest)
