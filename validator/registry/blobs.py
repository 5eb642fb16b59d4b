"""Large content in a repository: find it, take it over from another repository, send it, read it.

Implements the OCI distribution specification
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import ValidatorError
from ..system import http
from ..system.http import HttpFailure, Kind
from ..system.pools import Produced
from .names import Repository
from .session import INTERNAL, LOST, AlteredError, FailedRequest, Retries, Session, explained

if TYPE_CHECKING:
    import requests


# Send one blob to a registry while it is made, and go on after a failure where the registry stopped.
#
# A blob is sent in one request. After a failure, or if the registry does not accept a request without a
# length, a blob whose size is unknown is sent in chunks. The registry says how much of an unfinished upload
# it has, and the blob is made again without what is there.

Write = Callable[[bytes], object]
#: Writes the content of a blob, and returns its digest.
Produce = Callable[[Write], str]

#: The size of a chunk, unless the registry wants larger ones, and the largest that it gets. One is in memory
#: at a time.
_CHUNK, _LARGEST_CHUNK = 8 << 20, 256 << 20
#: The responses of a registry that does not accept a request without a length or without a range.
_NO_STREAM = (400, 405, 411, 413, 416, 501)
_BINARY = {"Content-Type": "application/octet-stream"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """The digest and the size in bytes of a blob that is not made yet."""

    digest: str
    size: int


@dataclass
class _Place:
    """An unfinished upload. offset: what the registry has. resumed: the registry was asked for it."""

    location: str
    offset: int = 0
    chunk: int = _CHUNK
    resumed: bool = False


class _Repeat(Exception):
    """The blob must be made again, from a place or, with None, from the beginning."""

    def __init__(self, place: _Place | None) -> None:
        super().__init__()
        self.place = place


class Upload:
    """The upload of one blob. See `Blobs.send`."""

    def __init__(self, session: Session, produce: Produce, known: Known | None) -> None:
        self._session, self._produce, self._known = session, produce, known
        repository = session.repository
        self._blobs = f"/v2/{repository.path}/blobs"
        self._what = f"a layer can't be sent to {repository}"
        if known:
            self._what = f"{repository.at(known.digest)} can't be sent"
        self._retries = Retries(session.host, self._what)
        self._furthest = 0
        self._streamed = False

    def run(self) -> str:
        place: _Place | None = None
        try:
            while True:
                try:
                    place = place or self._started()
                    if self._known is not None and place.offset == 0:
                        return self._send_whole(place, self._known)
                    if self._known is None and not self._streamed and self._session.accepts_streams:
                        self._streamed = True
                        return self._send_stream(place)
                    with Produced(self._produce, skip=place.offset) as made:
                        for chunk in made.blocks_of(place.chunk):
                            self._send_chunk(place, chunk)
                        digest = made.result
                    return self._finished(place, digest)
                except FailedRequest as failure:
                    if place is not None and place.resumed and failure.code == "DIGEST_INVALID":
                        # The registry was wrong about what it had.
                        self._session.forget(place.location)
                        place = None
                        continue
                    self._wait(failure, started=place is not None)
                    place = place and self._recovered(place)
                except _Repeat as repeat:
                    place = repeat.place
        except Exception:
            if place is not None:
                self._session.forget(place.location)
            raise

    def _started(self) -> _Place:
        answer = self._session.send(
            "POST", f"{self._blobs}/uploads/", expect=(202,), headers={"Content-Length": "0"}
        )
        least = http.number(answer.headers.get("OCI-Chunk-Min-Length")) or 0
        if least > _LARGEST_CHUNK:
            raise ValidatorError(
                f"{self._what}: the registry only takes chunks of at least {least:,} bytes, and none has more"
                f" than {_LARGEST_CHUNK >> 20} MiB",
                hint="tell the registry's operator",
            )
        return _Place(self._location(answer, ""), chunk=max(_CHUNK, least))

    def _send_whole(self, place: _Place, known: Known) -> str:
        with Produced(self._produce) as made:
            body = _Body(made, known, self._differs)
            try:
                address = _with_digest(place.location, known.digest)
                self._session.send("PUT", address, expect=(201,), headers=_BINARY, data=body)
            except FailedRequest:
                # An error of the function's file looks like one of the connection here.
                if made.error is not None:
                    raise made.error from None
                if body.complete:
                    if made.result != known.digest:
                        raise self._differs(made.result) from None
                    if self._is_there(known.digest):
                        return made.result
                raise
            return made.result

    def _send_stream(self, place: _Place) -> str:
        """Send a blob of unknown size in one request, while it is made.

        Raises _Repeat if the registry wants a length, or does not have everything that was sent.
        """
        with Produced(self._produce) as made:
            sent = 0

            def counted() -> Iterator[bytes]:
                nonlocal sent
                try:
                    for block in made.blocks():
                        sent += len(block)
                        yield block
                except BaseException:
                    # End the request as usual, because a registry might keep what an aborted one sent.
                    if made.error is None:
                        raise

            try:
                answer = self._session.send(
                    "PATCH", place.location, expect=(202,), headers=_BINARY, data=counted()
                )
            except FailedRequest as failure:
                if failure.status in _NO_STREAM:
                    self._session.accepts_streams = False
                    raise _Repeat(self._recovered(place)) from None
                raise
            place.location = self._location(answer, place.location)
            if made.error is not None:
                raise made.error
            digest = made.result
        place.offset = http.received(answer, sent)
        if place.offset != sent:
            self._session.accepts_streams = False
            raise _Repeat(self._recovered(place))
        return self._finished(place, digest)

    def _finished(self, place: _Place, digest: str) -> str:
        if self._known is not None and digest != self._known.digest:
            raise self._differs(digest)
        try:
            headers = {**_BINARY, "Content-Length": "0"}
            self._session.send("PUT", _with_digest(place.location, digest), expect=(201,), headers=headers)
        except FailedRequest as failure:
            if not (failure.is_temporary and self._is_there(digest)):
                raise
        return digest

    def _send_chunk(self, place: _Place, chunk: bytes) -> None:
        """Send a chunk, with repetitions. Raises _Repeat if the registry lacks bytes before it."""
        start, end = place.offset, place.offset + len(chunk)
        while place.offset < end:
            headers = {**_BINARY, "Content-Range": f"{place.offset}-{end - 1}"}
            part = chunk[place.offset - start :] if place.offset > start else chunk
            try:
                answer = self._session.send(
                    "PATCH", place.location, expect=(202,), headers=headers, data=part
                )
                place.location = self._location(answer, place.location)
                taken = http.received(answer, end)
                if not place.offset < taken <= end:
                    raise FailedRequest(INTERNAL, f"it took {taken} bytes instead of {end}", 500)
                place.offset = taken
            except FailedRequest as failure:
                self._wait(failure, started=True)
                found = self._recovered(place)
                if found is None or not start <= found.offset <= end:
                    raise _Repeat(found) from failure
                place.location, place.offset, place.resumed = found.location, found.offset, True
            if place.offset > self._furthest:
                self._furthest = place.offset
                self._retries.progressed()

    def _wait(self, failure: FailedRequest, *, started: bool) -> None:
        """Wait before the next attempt. Raises MissingError if another one can't help.

        started: the upload was created; if the registry denies it, the registry lost it.
        """
        if started and failure.status in (404, 416):
            failure = FailedRequest(INTERNAL, str(failure), failure.status)
        self._retries.wait(failure)

    def _recovered(self, place: _Place) -> _Place | None:
        """Ask the registry how much it has of an upload. Return None if it no longer has the upload."""
        try:
            answer = self._session.request("GET", place.location, what=self._what, expect=(204,))
        except ValidatorError:
            return None
        location = self._location(answer, place.location)
        return _Place(location, http.received(answer, 0), place.chunk, resumed=True)

    def _is_there(self, digest: str) -> bool:
        answer = self._session.request("HEAD", f"{self._blobs}/{digest}", what=self._what, expect=(200, 404))
        return answer.status_code == 200

    def _location(self, answer: requests.Response, last: str) -> str:
        return self._session.absolute(answer.headers.get("Location") or last)

    def _differs(self, found: str) -> ValidatorError:
        return ValidatorError(
            f"{self._what}: it was made with {found}, which is not what was expected",
            hint="a file changed while it was read, or the layer table is wrong; run the same command again",
        )


class _Body:
    """A body with a length for requests, which is read once. complete: True when everything was read."""

    def __init__(self, made: Produced[str], known: Known, differs: Callable[[str], ValidatorError]) -> None:
        self._made, self._known, self._differs = made, known, differs
        self.complete = False

    def __len__(self) -> int:
        return self._known.size

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        for block in self._made.blocks():
            sent += len(block)
            if sent > self._known.size:
                raise self._differs(f"more than {self._known.size} bytes")
            yield block
        if sent < self._known.size:
            raise self._differs(f"{sent} bytes instead of {self._known.size}")
        self.complete = True


def _with_digest(location: str, digest: str) -> str:
    return f"{location}{'&' if '?' in location else '?'}digest={quote(digest)}"


@dataclass(frozen=True)
class Blobs:
    """The blobs and manifests of a repository.

    mount_from: others of the registry with the same blobs. copy_from: those of other registries.
    """

    session: Session
    mount_from: Sequence[Repository] = ()
    copy_from: Sequence[Blobs] = ()

    @classmethod
    def to_write(cls, repository: Repository, take_from: Sequence[Repository] = ()) -> Blobs:
        """take_from: other repositories, of this registry or others, that may have the same blobs."""
        near = [other for other in take_from if other.host == repository.host and other != repository]
        far = [cls.to_read(other) for other in take_from if other.host != repository.host]
        return cls(Session(repository, push=True, also=near), near, far)

    @classmethod
    def to_read(cls, repository: Repository) -> Blobs:
        return cls(Session(repository, push=False))

    def has(self, digest: str, size: int) -> bool:
        """Return True if the repository has a blob or can take it over.

        Raises MissingError if a registry can't be asked.
        """
        what = f"{self._repository.at(digest)} can't be looked up"
        answer = self.session.request("HEAD", self._path(digest), what=what, expect=(200, 404))
        if answer.status_code == 200:
            found = http.number(answer.headers.get("Content-Length"))
            if found not in (None, size):
                raise AlteredError(
                    f"{self._repository.at(digest)}: the registry has {found} of its {size} bytes",
                    hint="tell the registry's operator",
                )
            return True
        return any(self._mounted(digest, other) for other in self.mount_from) or any(
            self._copied(digest, size, other) for other in self.copy_from
        )

    def send(self, produce: Produce, known: Known | None = None) -> str:
        """Send a blob while `produce` writes it, and return its digest.

        known: its digest and size if they are known in advance. After a failure, `produce` is called again,
        and must write the same bytes. Raises what it raises, ValidatorError for other bytes than those that
        are known, and MissingError if the registry fails. Nothing is kept then.
        """
        return Upload(self.session, produce, known).run()

    def send_manifest(self, manifest: bytes, media_type: str, tag: str | None) -> str:
        """Send a manifest, whose blobs are all there. Return its digest. tag: None for no tag."""
        return self.send_artifact(manifest, media_type, tag)[0]

    def send_artifact(self, manifest: bytes, media_type: str, tag: str | None) -> tuple[str, bool]:
        """Send a manifest. Return its digest, and True if the registry lists what refers to its subject."""
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
                f"{reference}: the registry stored the manifest with the digest {stored[:80]} instead of"
                f" {digest}",
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
        found, done, deadline = hashlib.sha256(), 0, http.deadline_for(size)
        while done < size:
            try:
                for part in self._from(digest, done, deadline):
                    done += len(part)
                    found.update(part)
                    if done > size:
                        break
                    retries.progressed()
                    yield part
                if done < size:
                    raise FailedRequest(LOST, "it ends too early", kind=Kind.LOST)
            except FailedRequest as failure:
                if time.monotonic() > deadline:
                    raise failure.error(self.session.host, what) from failure
                retries.wait(failure)
        if done != size or f"sha256:{found.hexdigest()}" != digest:
            raise AlteredError(
                f"{what}: the registry sends content that does not match its digest",
                hint="do not use it, and tell the registry's operator",
            )

    def _from(self, digest: str, start: int, deadline: float) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        address = self._path(digest)
        with (
            self.session.send(
                "GET", address, expect=(200, 206), headers=headers, stream=True, deadline=deadline
            ) as answer,
            explained(),
        ):
            left_out = start if answer.status_code == 200 else 0
            if answer.status_code == 206 and http.first_byte(answer) not in (None, start):
                raise HttpFailure(Kind.LOST, "it sends another part than the one that was asked for")
            for part in http.body(answer):
                if part[left_out:]:
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

    def _copied(self, digest: str, size: int, other: Blobs) -> bool:
        """Send a blob if another registry has it. Return False if that fails: it can be made instead."""

        def copy(write: Write) -> str:
            for part in other.read(digest, size):
                write(part)
            return digest

        if not other.has(digest, size):
            return False
        try:
            self.send(copy, Known(digest, size))
        except ValidatorError as error:
            logger.warning("a layer was not taken from %s: %s", other.session.repository, error)
            return False
        return True

    def _path(self, digest: str) -> str:
        return f"/v2/{self._repository.path}/blobs/{digest}"

    @property
    def _repository(self) -> Repository:
        return self.session.repository
