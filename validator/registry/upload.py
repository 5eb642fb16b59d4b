"""Send one blob to a registry while it is made, and go on after a failure where the registry stopped.

A blob is sent in one request. After a failure, or if the registry does not accept a request without a length,
a blob whose size is unknown is sent in chunks. The registry says how much of an unfinished upload it has, and
the blob is made again without what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

from ..errors import ValidatorError
from ..system.thread_pipe import Produced
from .errors import INTERNAL
from .session import FailedRequest, Retries, Session

if TYPE_CHECKING:
    import requests

Write = Callable[[bytes], object]

#: The size of a chunk, unless the registry wants larger ones. One is in memory at a time.
_CHUNK = 8 << 20
#: The responses of a registry that does not accept a request without a length or without a range.
_NO_STREAM = (400, 405, 411, 413, 416, 501)
_BINARY = {"Content-Type": "application/octet-stream"}

T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """The digest and the size in bytes of a blob that is not made yet."""

    digest: str
    size: int


@dataclass
class _Place:
    """An unfinished upload: its address, the bytes that the registry has, and the size of chunks.

    resumed: True if the registry was asked how much it has.
    """

    location: str
    offset: int = 0
    chunk: int = _CHUNK
    resumed: bool = False


class _Repeat(Exception):
    """The blob must be made again, because the registry lacks bytes that are gone here.

    place: where to go on, or None for a new upload.
    """

    def __init__(self, place: _Place | None) -> None:
        super().__init__()
        self.place = place


class Upload(Generic[T]):
    """The upload of one blob. See `Blobs.send`."""

    def __init__(
        self,
        session: Session,
        produce: Callable[[Write], T],
        digest_of: Callable[[T], str],
        known: Known | None,
    ) -> None:
        self._session, self._produce, self._digest_of, self._known = session, produce, digest_of, known
        repository = session.repository
        self._blobs = f"/v2/{repository.path}/blobs"
        self._what = (
            f"{repository.at(known.digest)} can't be sent"
            if known
            else f"a layer can't be sent to {repository}"
        )
        self._retries = Retries(session.host, self._what)
        self._furthest = 0
        self._streamed = False

    def run(self) -> T:
        """Send the blob and return what `produce` returned."""
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
                    return self._send_chunks(place)
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
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        chunk = max(_CHUNK, int(least)) if least.isdigit() else _CHUNK
        return _Place(self._location(answer, ""), chunk=chunk)

    def _send_whole(self, place: _Place, known: Known) -> T:
        with Produced(self._produce) as made:
            body = _Body(made, known, self._differs)
            try:
                self._session.send(
                    "PUT",
                    _with_digest(place.location, known.digest),
                    expect=(201,),
                    headers=_BINARY,
                    data=body,
                )
            except FailedRequest:
                # An error of the function's file looks like one of the connection here.
                if made.error is not None:
                    raise made.error from None
                if body.complete:
                    if (digest := self._digest_of(made.result)) != known.digest:
                        raise self._differs(digest) from None
                    if self._is_there(known.digest):
                        return made.result
                raise
            return made.result

    def _send_stream(self, place: _Place) -> T:
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
            result = made.result
        place.offset = _received(answer, sent)
        if place.offset != sent:
            self._session.accepts_streams = False
            raise _Repeat(self._recovered(place))
        return self._finished(place, result)

    def _send_chunks(self, place: _Place) -> T:
        with Produced(self._produce, skip=place.offset) as made:
            for chunk in made.blocks_of(place.chunk):
                self._send_chunk(place, chunk)
            result = made.result
        return self._finished(place, result)

    def _finished(self, place: _Place, result: T) -> T:
        """Give an upload the digest of its blob, which ends it. Return the result."""
        digest = self._digest_of(result)
        if self._known is not None and digest != self._known.digest:
            raise self._differs(digest)
        try:
            self._session.send(
                "PUT",
                _with_digest(place.location, digest),
                expect=(201,),
                headers={**_BINARY, "Content-Length": "0"},
            )
        except FailedRequest as failure:
            if not (failure.is_temporary and self._is_there(digest)):
                raise
        return result

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
                place.offset = _received(answer, end)
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
        return _Place(self._location(answer, place.location), _received(answer, 0), place.chunk, resumed=True)

    def _is_there(self, digest: str) -> bool:
        """Return True if the registry finished an upload, but its response was lost."""
        answer = self._session.request("HEAD", f"{self._blobs}/{digest}", what=self._what, expect=(200, 404))
        return answer.status_code == 200

    def _location(self, answer: requests.Response, last: str) -> str:
        return self._session.absolute(answer.headers.get("Location") or last)

    def _differs(self, found: str) -> ValidatorError:
        return ValidatorError(
            f"{self._what}: it was made with {found}, which is not what was expected",
            hint="a file changed while it was read, or the layer table is wrong; run the same command again",
        )


class _Body(Generic[T]):
    """A body with a length for requests, which is read once.

    complete: True when everything was read.
    """

    def __init__(self, made: Produced[T], known: Known, differs: Callable[[str], ValidatorError]) -> None:
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


def _received(answer: requests.Response, usual: int) -> int:
    """Return the number of bytes that the registry has, from the header `Range`.

    usual: the number if there is no such header.
    """
    first, _, last = answer.headers.get("Range", "").removeprefix("bytes=").partition("-")
    if first != "0" or not last.isdigit():
        return usual
    # `0-0` means nothing for most registries, because the header can't say that. No chunk has one byte.
    return int(last) + 1 if int(last) else 0


def _with_digest(location: str, digest: str) -> str:
    return f"{location}{'&' if '?' in location else '?'}digest={quote(digest)}"
