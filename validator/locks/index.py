"""Ask the configured package index which files a project has, and download one of them.

Reads the JSON form of the simple API (PEP 691) and its HTML form (PEP 503), from the index and the extra
indexes that pip and uv use. Addresses may contain credentials, so no message shows one.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from .._vendor.packaging.tags import Tag
from ..errors import MissingError
from ..model.spec import Wheel
from ..system import http
from ..system.files import full_disk_named
from ..system.http import HttpFailure, Kind
from ..system.package_sources import PackageSources
from ..versions import InvalidWheelName, Version, wheel_name

if TYPE_CHECKING:
    import requests

DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
#: Seconds for a page, for the answer to a question about a file, and without a byte.
_PAGE_S, _QUESTION_S, _SILENCE_S = 180.0, 60.0, 60.0
#: A page of the largest projects has about 6 MB and 10,000 files. Anything beyond this is not one.
_LARGEST_PAGE = 32 << 20
_MOST_FILES = 100_000
#: Bytes of a file whose size nobody says. No wheel is larger.
_LARGEST_FILE = 16 << 30
_BLOCK = 1 << 20
#: Characters of a page in HTML that are parsed at a time, and those that may be one tag.
_SHARE, _LONGEST_TAG = 64 << 10, 256 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Seconds before each retry.
_PAUSES = (0.5, 2.0, 5.0)
_HINT = "check the index, the proxy and the CA bundle in uv's or pip's configuration, and try again"


@dataclass(frozen=True)
class IndexFile:
    """One wheel of a project on the index. sha256, size: None if the index does not say."""

    filename: str
    version: Version
    url: str
    sha256: str | None
    size: int | None
    yanked: bool

    @property
    def tags(self) -> frozenset[Tag]:
        """The tags of its name. They are not kept, because a page may have many files with many tags."""
        return wheel_name(self.filename)[2]

    @property
    def on_linux(self) -> bool:
        """True if the wheel installs on Linux with x86_64."""
        return any(
            tag.platform == "any" or (tag.platform.endswith("x86_64") and "linux" in tag.platform)
            for tag in self.tags
        )


class _Hashes(msgspec.Struct, frozen=True):
    sha256: str | None = None


class _File(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: _Hashes = _Hashes()
    size: Annotated[int, Meta(ge=0, lt=1 << 60)] | None = None
    yanked: bool | str = False


class _Page(msgspec.Struct):
    files: list[_File]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[_File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (address := given.get("href")):
            if len(self.files) >= _MOST_FILES:
                raise ValueError(f"more than {_MOST_FILES:,} files")
            name = unquote(urlsplit(address).path.rpartition("/")[2])
            found = re.search(r"#(?:.*&)?sha256=([0-9a-f]{64})", address)
            hashes = _Hashes(found[1] if found else None)
            self.files.append(_File(name, address, hashes, yanked="data-yanked" in given))


T = TypeVar("T")


class PackageIndex:
    """The indexes of these sources. Each project's page is read once. Methods may be called from threads."""

    def __init__(self, sources: PackageSources) -> None:
        self._sources = sources
        self._http = http.Http(sources.ca_bundle)
        given = (*sources.extra_index_urls, sources.index_url or DEFAULT_INDEX)
        self._indexes: list[str] = []
        #: Logins that the configured addresses contain, by the server that they are for.
        self._logins: dict[object, str] = {}
        for index in given:
            try:
                address, login = http.without_login(index)
                self._indexes.append(http.joined("", address))
            except (ValueError, HttpFailure):
                raise MissingError(
                    "the configured address of a package index is not an HTTP address", hint=_HINT
                ) from None
            if login is not None:
                self._logins[http.origin(address)] = login
        self._projects: dict[str, dict[str, IndexFile] | None] = {}

    def wheels(self, project: str) -> tuple[IndexFile, ...]:
        """Return the wheels of a project, without those that were yanked, oldest version first.

        Raises MissingError if an index can't be reached or does not answer as an index, and if no index has
        the project.
        """
        found = self._files(project)
        if found is None:
            raise MissingError(f"the package index does not have {project}", hint=_HINT)
        if not found:
            raise MissingError(f"the package index lists no wheel of {project}", hint=_HINT)
        kept = [file for file in found.values() if not file.yanked]
        return tuple(sorted(kept, key=lambda file: (file.version, file.filename)))

    def locked(self, wheel: Wheel) -> IndexFile:
        """Return a locked wheel's file, also a yanked one. Raises MissingError if it is gone or differs."""
        if wheel.path is not None:
            # This wheel has its own address.
            try:
                address, login = http.without_login(wheel.address or wheel.path)
                url = http.joined("", address)
            except (ValueError, HttpFailure) as error:
                raise MissingError(f"{wheel.filename}: its address can't be used: {error}") from None
            if login is not None:
                self._logins[http.origin(url)] = login
            version = Version(wheel.version)
            return IndexFile(wheel.filename, version, url, wheel.sha256, wheel.size, yanked=False)
        file = (self._files(wheel.name) or {}).get(wheel.filename)
        again = "resolve the lock again with `validator lock --upgrade`"
        if file is None:
            raise MissingError(
                f"{wheel}: the package index does not have {wheel.filename}, which the lock names",
                hint="if it is on another index, add that to uv's or pip's configuration; if it is gone,"
                f" {again}",
            )
        if file.sha256 not in (None, wheel.sha256):
            raise MissingError(
                f"{wheel}: the package index has another file under the name {wheel.filename}: its SHA-256 is"
                f" {file.sha256[:12]}…, but the lock says {wheel.sha256[:12]}…",
                hint=f"find out who replaced it, then {again}",
            )
        return replace(file, sha256=wheel.sha256, size=wheel.size or file.size)

    def size(self, file: IndexFile) -> int | None:
        """Return the bytes of a file, asking its server if the index does not say; None if nobody does."""
        return self.size_at(file.url) if file.size is None else file.size

    def size_at(self, url: str, within_s: float = _QUESTION_S) -> int | None:
        """Return the bytes of a file according to its server, None if it does not say. It is asked once."""
        try:
            address = http.joined("", http.without_login(url)[0])
            with self._answer("HEAD", address, time.monotonic() + within_s) as answer:
                return http.number(answer.headers.get("Content-Length")) if answer.ok else None
        except (HttpFailure, ValueError):
            return None

    def download(
        self, file: IndexFile, path: Path, received: Callable[[int], object] = lambda size: None
    ) -> None:
        """Download a file to a path. Continue a download that was cut or left unfinished by an earlier call.

        received: called with the number of bytes of each part; those that were there already count too.
        Raises MissingError if the network keeps failing, the disk is full, or the content has another hash.
        """
        partial = path.with_name(f"{path.name}.partial")
        received(partial.stat().st_size if partial.exists() else 0)
        with full_disk_named(path):
            self._tried(file.filename, lambda: self._receive(file, partial, received), "its server")
        found = sha256_of(partial)
        if file.sha256 is not None and found != file.sha256:
            size = partial.stat().st_size
            partial.unlink()
            raise MissingError(
                f"{file.filename}: the download ({size:,} bytes) was removed: its SHA-256 is {found[:12]}…,"
                f" but it must be {file.sha256[:12]}…",
                hint="run the same command again, which downloads it from the beginning; if the SHA-256 stays"
                " the same, the file is another one than the one that was pinned",
            )
        partial.replace(path)

    def _receive(self, file: IndexFile, partial: Path, received: Callable[[int], object]) -> None:
        """Append to a partial download, up to the size of the file."""
        there = partial.stat().st_size if partial.exists() else 0
        most = _LARGEST_FILE if file.size is None else file.size
        if there > most:
            received(-there)
            partial.unlink()
            there = 0
        headers = {"Range": f"bytes={there}-"} if there else {}
        with self._answer("GET", file.url, http.deadline_for(most - there), headers) as answer:
            # 416: the file was already complete. 200: the server can't continue, and starts again.
            if answer.status_code == 416 and there:
                return
            if answer.status_code in (404, 410):
                raise MissingError(
                    f"{file.filename}: its server does not have this file",
                    hint="check its address; if the package index lists it, tell the index's operator",
                )
            if answer.status_code not in (200, 206):
                raise http.failure_of(answer)
            if answer.status_code == 206 and http.first_byte(answer) not in (None, there):
                raise HttpFailure(Kind.LOST, "it sends another part than the one that was asked for")
            if answer.status_code != 206:
                received(-there)
                there = 0
            with open(partial, "ab" if there else "wb") as stream:
                for block in http.body(answer, _BLOCK):
                    there += len(block)
                    if there > most:
                        raise MissingError(
                            f"{file.filename}: its server sends more than its {most:,} bytes",
                            hint="run the same command again; if this stays so, tell the index's operator",
                        )
                    stream.write(block)
                    received(len(block))

    def _files(self, project: str) -> dict[str, IndexFile] | None:
        if project not in self._projects:
            pages = [page for index in self._indexes if (page := self._page(index, project)) is not None]
            found: dict[str, IndexFile] = {}
            for address, files in pages:
                for listed in files:
                    file = _wheel(listed, address, project)
                    if file is not None:
                        found.setdefault(file.filename, file)
            self._projects[project] = found if pages else None
        return self._projects[project]

    def _page(self, index: str, project: str) -> tuple[str, list[_File]] | None:
        def read() -> tuple[str, list[_File]] | None:
            deadline = time.monotonic() + _PAGE_S
            headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip"}
            with self._answer("GET", f"{index.rstrip('/')}/{project}/", deadline, headers) as answer:
                if answer.status_code in (404, 410):
                    return None
                if answer.status_code != 200:
                    raise http.failure_of(answer)
                content = http.content(answer, _LARGEST_PAGE, decode=True)
                return answer.url, _parsed(content, http.media_type(answer), project)

        return self._tried(project, read)

    def _answer(
        self, method: str, address: str, deadline: float, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Return the answer to a request, after redirections. A login is only for the server that has it."""
        from requests.utils import get_netrc_auth

        for _ in range(http.MOST_REDIRECTIONS):
            login = self._logins.get(http.origin(address))
            if login is None and (found := get_netrc_auth(address)):
                login = http.basic(":".join(found))
            sent = {**(headers or {}), **({"Authorization": login} if login else {})}
            answer = self._http.send(method, address, headers=sent, silence_s=_SILENCE_S, deadline=deadline)
            following = http.redirection(answer, method, address)
            if following is None:
                return answer
            address = following
        raise HttpFailure(Kind.ADDRESS, f"it redirects more than {http.MOST_REDIRECTIONS} times")

    def _tried(self, what: str, attempt: Callable[[], T], place: str = "the package index") -> T:
        for pause in (*_PAUSES, None):
            try:
                return attempt()
            except HttpFailure as failure:
                if failure.kind is Kind.LARGE:
                    raise _nonsense(what, str(failure)) from None
                if pause is None or not failure.is_temporary:
                    reason = self._sources.redact(" ".join(f"{failure}".split()))[:200]
                    raise MissingError(f"{what}: {place} can't be reached: {reason}", hint=_HINT) from None
                http.wait(max(pause, failure.pause_s))
        raise AssertionError("the last attempt returns or raises")


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


def _parsed(content: bytes, kind: str, project: str) -> list[_File]:
    if kind.endswith("json"):
        try:
            files = msgspec.json.decode(content, type=_Page).files
        except (ValueError, RecursionError) as error:
            raise _nonsense(project, str(error)) from None
        if len(files) > _MOST_FILES:
            raise _nonsense(project, f"more than {_MOST_FILES:,} files")
        return files
    if kind == "text/html" or kind.endswith("v1+html"):
        links = _Links()
        try:
            text = content.decode("utf-8", "replace")
            for at in range(0, len(text), _SHARE):
                links.feed(text[at : at + _SHARE])
                if len(links.rawdata) > _LONGEST_TAG:
                    raise ValueError(f"a tag of more than {_LONGEST_TAG >> 10} KiB")
        except (ValueError, AssertionError) as error:
            raise _nonsense(project, str(error)) from None
        return links.files
    raise _nonsense(project, f"content of the type {kind[:60] or 'unknown'}")


def _nonsense(project: str, what: str) -> MissingError:
    return MissingError(
        f"{project}: the package index did not answer with a list of files: {what}", hint=_HINT
    )


def _wheel(listed: _File, address: str, project: str) -> IndexFile | None:
    try:
        _, version, _ = wheel_name(listed.filename)
        url = http.joined(address, listed.url)
    except InvalidWheelName:
        return None
    except HttpFailure as failure:
        raise _nonsense(project, f"for {listed.filename}, {failure}") from None
    sha256 = listed.hashes.sha256
    if sha256 and not _SHA256.fullmatch(sha256):
        sha256 = None
    return IndexFile(listed.filename, version, url, sha256 or None, listed.size, bool(listed.yanked))
