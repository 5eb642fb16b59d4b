"""Ask the configured package index which files a project has, and download one of them.

Reads the JSON form of the simple API (PEP 691) and its HTML form (PEP 503), from the index and the extra
indexes that pip and uv use. Addresses may contain credentials, so no message shows one.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from .._vendor.packaging.tags import Tag
from .._vendor.packaging.utils import InvalidWheelFilename, parse_wheel_filename
from .._vendor.packaging.version import InvalidVersion, Version
from ..errors import MissingError
from ..model.spec import Wheel
from ..system.files import full_disk_named
from ..system.package_sources import PackageSources

DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
#: Seconds to connect, and seconds without a byte.
_TIMEOUT_S = (15.0, 60.0)
#: A page of the largest projects has about 2 MB. Anything beyond this is not one.
_LARGEST_PAGE = 64 << 20
_BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Seconds before each retry of a download that was cut.
_PAUSES = (0.5, 2.0, 5.0)
_HINT = "check the index, the proxy and the CA bundle in uv's or pip's configuration, and try again"


@dataclass(frozen=True)
class IndexFile:
    """One wheel of a project on the index.

    sha256, size: None if the index does not say.
    """

    filename: str
    version: Version
    tags: frozenset[Tag]
    url: str
    sha256: str | None
    size: int | None
    yanked: bool

    @property
    def on_linux(self) -> bool:
        """True if the wheel installs on Linux with x86_64."""
        return any(
            tag.platform == "any" or (tag.platform.endswith("x86_64") and "linux" in tag.platform)
            for tag in self.tags
        )


class _JsonFile(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False


class _JsonPage(msgspec.Struct):
    files: list[_JsonFile]


class _Links(HTMLParser):
    """Collects the links of a PEP 503 page."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[_JsonFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (address := given.get("href")):
            name = unquote(urlsplit(address).path.rpartition("/")[2])
            found = re.search(r"#(?:.*&)?sha256=([0-9a-f]{64})", address)
            hashes = {"sha256": found[1]} if found else {}
            self.files.append(_JsonFile(name, address, hashes, yanked="data-yanked" in given))


class PackageIndex:
    """The indexes of these sources. Each project's page is read once. Methods may be called from threads."""

    def __init__(self, sources: PackageSources) -> None:
        self._sources = sources
        self._session = requests.Session()
        if sources.ca_bundle:
            self._session.verify = str(sources.ca_bundle)
        retries = Retry(total=3, backoff_factor=0.3, status_forcelist=(500, 502, 503, 504))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retries))
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
        """Return the file of a wheel in a lock, also if it was yanked.

        Raises MissingError if no index has the file, or another one has its name, and as `wheels` does.
        """
        file = (self._files(wheel.name) or {}).get(wheel.filename)
        again = "resolve the lock again with `python -m validator lock --upgrade`"
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
        if file.size is not None:
            return file.size
        with self._network(file.filename):
            answer = self._session.head(file.url, allow_redirects=True, timeout=_TIMEOUT_S)
        length = answer.headers.get("Content-Length", "")
        return int(length) if answer.ok and length.isdigit() else None

    def download(
        self, file: IndexFile, path: Path, received: Callable[[int], object] = lambda size: None
    ) -> None:
        """Download a file to a path. Continue a download that was cut or left unfinished by an earlier call.

        received: called with the number of bytes of each part; those that were there already count too.
        Raises MissingError if the network keeps failing, the disk is full, or the content has another hash.
        """
        partial = path.with_name(f"{path.name}.partial")
        received(partial.stat().st_size if partial.exists() else 0)
        for pause in (*_PAUSES, None):
            with full_disk_named(path), self._network(file.filename):
                try:
                    self._receive(file, partial, received)
                    break
                except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                    if pause is None:
                        raise
            time.sleep(pause)
        found = sha256_of(partial)
        if file.sha256 is not None and found != file.sha256:
            size = partial.stat().st_size
            partial.unlink()
            raise MissingError(
                f"{file.filename}: the download ({size:,} bytes) was removed: its SHA-256 is {found[:12]}…,"
                f" but it must be {file.sha256[:12]}…",
                hint="run the same command again, which downloads it from the beginning",
            )
        partial.replace(path)

    def _receive(self, file: IndexFile, partial: Path, received: Callable[[int], object]) -> None:
        """Append to a partial download."""
        there = partial.stat().st_size if partial.exists() else 0
        headers = {"Range": f"bytes={there}-"} if there else {}
        with self._session.get(file.url, headers=headers, stream=True, timeout=_TIMEOUT_S) as answer:
            # 416: the file was already complete. 200: the server can't continue, and starts again.
            if answer.status_code == 416:
                return
            if answer.status_code in (404, 410):
                raise MissingError(
                    f"{file.filename}: the package index lists this file, but its server no longer has it",
                    hint="try again later, or tell the index's operator",
                )
            answer.raise_for_status()
            if answer.status_code != 206:
                received(-there)
            with open(partial, "ab" if answer.status_code == 206 else "wb") as stream:
                for block in answer.iter_content(_BLOCK):
                    stream.write(block)
                    received(len(block))

    def _files(self, project: str) -> dict[str, IndexFile] | None:
        """Return the wheels of a project by their names, or None if no index has the project."""
        if project not in self._projects:
            indexes = (*self._sources.extra_index_urls, self._sources.index_url or DEFAULT_INDEX)
            pages = [page for index in indexes if (page := self._page(index, project)) is not None]
            found: dict[str, IndexFile] = {}
            for address, content in pages:
                for listed in content.files:
                    file = _wheel(listed, address)
                    if file is not None:
                        found.setdefault(file.filename, file)
            self._projects[project] = found if pages else None
        return self._projects[project]

    def _page(self, index: str, project: str) -> tuple[str, _JsonPage] | None:
        """Return the address and the content of a project's page, None if the index does not have it."""
        address = f"{index.rstrip('/')}/{project}/"
        with self._network(project):
            with self._session.get(
                address, headers={"Accept": _ACCEPT}, stream=True, timeout=_TIMEOUT_S
            ) as answer:
                if answer.status_code in (404, 410):
                    return None
                answer.raise_for_status()
                content = answer.raw.read(_LARGEST_PAGE + 1, decode_content=True)
                kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if len(content) > _LARGEST_PAGE:
                raise _nonsense(project, f"more than {_LARGEST_PAGE >> 20} MiB")
            return answer.url, _parsed(content, kind, project)

    @contextmanager
    def _network(self, what: str) -> Iterator[None]:
        try:
            yield
        except (requests.RequestException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None and error.errno in (28, 122):
                raise
            reason = self._sources.redact(" ".join(str(error).split()))[:200]
            raise MissingError(f"{what}: the package index can't be reached: {reason}", hint=_HINT) from None


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


def _parsed(content: bytes, kind: str, project: str) -> _JsonPage:
    if kind.endswith("json"):
        try:
            return msgspec.json.decode(content, type=_JsonPage)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise _nonsense(project, str(error)) from None
    if kind == "text/html" or kind.endswith("v1+html"):
        links = _Links()
        links.feed(content.decode("utf-8", "replace"))
        return _JsonPage(links.files)
    raise _nonsense(project, f"content of the type {kind[:60] or 'unknown'}")


def _nonsense(project: str, what: str) -> MissingError:
    return MissingError(
        f"{project}: the package index did not answer with a list of files: {what}", hint=_HINT
    )


def _wheel(listed: _JsonFile, address: str) -> IndexFile | None:
    """Return a listed file, or None if it is not a wheel with a valid name."""
    try:
        _, version, _, tags = parse_wheel_filename(listed.filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    sha256: Any = listed.hashes.get("sha256")
    return IndexFile(
        filename=listed.filename,
        version=version,
        tags=tags,
        url=urljoin(address, listed.url),
        sha256=sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
        size=listed.size,
        yanked=bool(listed.yanked),
    )
