"""Send images to a registry, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ..model.spec import ImageSpec
from ..registry.blobs import Blobs
from ..registry.names import Repository
from ..registry.upload import Known
from .layers import Encoded, Write


def destinations(
    repository: Repository,
    base_repository: Callable[[ImageSpec], Repository | None],
    mount_from: Sequence[Repository] = (),
) -> Callable[[ImageSpec], RegistryDestination]:
    """Return a function that gives each image's destination in a repository, without a tag.

    base_repository: returns the repository of an image's base. If that is in the same registry, the layers of
    the base are mounted from it. mount_from: more repositories of the same registry.
    """

    @cache
    def destination(*others: Repository) -> RegistryDestination:
        return RegistryDestination(repository, None, others)

    def of(spec: ImageSpec) -> RegistryDestination:
        base = base_repository(spec)
        near = [base] if base is not None and base.host == repository.host else []
        return destination(*dict.fromkeys([*near, *mount_from]))

    return of


class RegistryDestination:
    """An image in a repository, under a tag or only by its digest. A destination: see `destinations`.

    mount_from: other repositories of the same registry; blobs that they have are not sent again.
    """

    def __init__(
        self, repository: Repository, tag: str | None, mount_from: Sequence[Repository] = ()
    ) -> None:
        self._blobs, self._tag = Blobs.to_write(repository, mount_from), tag

    def has(self, blob: Encoded) -> bool:
        """Return True if the repository has the blob now, also if it is taken over from another one."""
        return self._blobs.has(blob.digest, blob.size)

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Send the blob that `encode` writes; it is called again after a failure."""
        expected = Known(known.digest, known.size) if known else None
        return self._blobs.send(encode, lambda encoded: encoded.digest, expected)

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Send the manifest, which makes the image visible. Return its digest."""
        return self._blobs.send_manifest(manifest, media_type, self._tag)
