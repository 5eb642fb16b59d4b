"""Large content in a repository: find it, take it over from another repository, send it, read it.

Implements the OCI distribution specification
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from ..errors import ValidatorError
from .errors import INTERNAL, AlteredError
from .names import Repository
from .session import FailedRequest, Retries, Session, body, lost
from .upload import Known, Upload, Write

T = TypeVar("T")


@dataclass(frozen=True)
class Blobs:
    """The blobs and manifests of one repository, over a session.

    mount_from: other repositories of the same registry, which may have the same blobs.
    """

    session: Session
    mount_from: Sequence[Repository] = ()

    @classmethod
    def to_write(cls, repository: Repository, mount_from: Sequence[Repository] = ()) -> Blobs:
        """Return the blobs of a repository to push to."""
        others = [other for other in mount_from if other.host == repository.host and other != repository]
        return cls(Session(repository, push=True, also=others), others)

    @classmethod
    def to_read(cls, repository: Repository) -> Blobs:
        """Return the blobs of a repository to read from."""
        return cls(Session(repository, push=False))

    def has(self, digest: str, size: int) -> bool:
        """Return True if the repository has a blob, or could take it over from another repository.

        Raises MissingError if the registry can't be reached or denies access.
        """
        what = f"{self._repository.at(digest)} can't be looked up"
        answer = self.session.request("HEAD", self._path(digest), what=what, expect=(200, 404))
        if answer.status_code == 200:
            found = answer.headers.get("Content-Length")
            if found is not None and found != str(size):
                raise AlteredError(
                    f"{self._repository.at(digest)}: the registry has {found} of its {size} bytes",
                    hint="tell the registry's operator",
                )
            return True
        return any(self._mounted(digest, other) for other in self.mount_from)

    def send(
        self, produce: Callable[[Write], T], digest_of: Callable[[T], str], known: Known | None = None
    ) -> T:
        """Send a blob while `produce` writes it, and return what that returned.

        digest_of: the digest of the blob, from the result. known: its digest and size if they are known in
        advance. After a failure, `produce` is called again, and must write the same bytes. Raises what it
        raises, ValidatorError if the bytes are not those that are known, and MissingError if the registry
        can't be reached, denies access, is full or keeps failing. Nothing is kept then.
        """
        return Upload(self.session, produce, digest_of, known).run()

    def send_manifest(self, manifest: bytes, media_type: str, tag: str | None) -> str:
        """Send a manifest, whose blobs are all there. Return its digest. tag: None for no tag."""
        digest, _ = self.send_artifact(manifest, media_type, tag)
        return digest

    def send_artifact(self, manifest: bytes, media_type: str, tag: str | None) -> tuple[str, bool]:
        """Send a manifest as `send_manifest` does.

        Return its digest, and True if the registry lists it among what refers to its subject.
        """
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        reference = self._repository.tagged(tag) if tag else self._repository.at(digest)
        address = f"/v2/{self._repository.path}/manifests/{tag or digest}"
        retries = Retries(self.session.host, f"{reference} can't be pushed")
        while True:
            try:
                answer = self.session.send(
                    "PUT", address, expect=(201,), headers={"Content-Type": media_type}, data=manifest
                )
                break
            except FailedRequest as failure:
                if failure.code == "DIGEST_INVALID":
                    # docker-registry read its note of a layer while it wrote it again, because somebody else
                    # sent the same layer.
                    retries.wait(FailedRequest(INTERNAL, str(failure), failure.status))
                else:
                    retries.wait(failure)
        stored = answer.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise ValidatorError(
                f"{reference}: the registry stored the manifest with the digest {stored} instead of {digest}",
                hint="tell the registry's operator",
            )
        return digest, "OCI-Subject" in answer.headers

    def read(self, digest: str, size: int) -> Iterator[bytes]:
        """Return the content of a blob in parts, and continue where a connection was lost.

        Raises AlteredError, at the end at the latest, if the content does not match digest and size, and
        MissingError if the registry does not have it, can't be reached or denies access.
        """
        what = f"{self._repository.at(digest)} can't be read"
        retries = Retries(self.session.host, what)
        found, done = hashlib.sha256(), 0
        while done < size:
            try:
                for part in self._from(digest, done):
                    done += len(part)
                    found.update(part)
                    if done > size:
                        break
                    retries.progressed()
                    yield part
                if done < size:
                    raise lost(EOFError("too short"))
            except FailedRequest as failure:
                retries.wait(failure)
        if done != size or f"sha256:{found.hexdigest()}" != digest:
            raise AlteredError(
                f"{what}: the registry sends content that does not match its digest",
                hint="do not use it, and tell the registry's operator",
            )

    def _from(self, digest: str, start: int) -> Iterator[bytes]:
        """Return the content of a blob from an offset on."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self.session.send(
            "GET", self._path(digest), expect=(200, 206), headers=headers, stream=True
        ) as answer:
            left_out = start if answer.status_code == 200 else 0
            for part in body(answer):
                yield part[left_out:]
                left_out = max(0, left_out - len(part))

    def _mounted(self, digest: str, other: Repository) -> bool:
        address = f"{self._path('uploads')}/?mount={quote(digest)}&from={quote(other.path, safe='')}"
        try:
            # Some registries refuse what they don't have, or what this login can't read there.
            answer = self.session.request(
                "POST",
                address,
                what=f"{self._repository.at(digest)} can't be taken over from {other}",
                expect=(201, 202, 400, 401, 403, 404, 405),
                headers={"Content-Length": "0"},
            )
        except ValidatorError:
            return False
        if answer.status_code == 202 and (location := answer.headers.get("Location")):
            # It does not have the blob and expects it to be sent, which happens in an upload of its own.
            self.session.forget(location)
        return answer.status_code == 201

    def _path(self, digest: str) -> str:
        return f"/v2/{self._repository.path}/blobs/{digest}"

    @property
    def _repository(self) -> Repository:
        return self.session.repository
