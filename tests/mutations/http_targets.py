"""What servers send: index pages, wheels' names, headers, addresses, tokens and errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from validator.assemble.base import read_config
from validator.assemble.wheel import FormatError, parse_record
from validator.errors import ValidatorError
from validator.locks.index import _parsed, _wheel
from validator.registry.client import Manifest
from validator.registry.session import Authorization, FailedRequest, explained
from validator.supply import parts
from validator.supply.news import _python
from validator.system import http
from validator.system.http import HttpFailure, Kind
from validator.versions import InvalidWheelName, wheel_name

from .mutators import mutate_json, mutate_text

DIGEST = "sha256:" + "1" * 64
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"
NAMES = (
    "tensorflow-2.21.0-cp312-cp312-manylinux_2_27_x86_64.whl",
    "nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl",
    "six-1.17.0-1-py2.py3-none-any.whl",
)


def page_seeds() -> list[bytes]:
    listed = [
        {
            "filename": name,
            "url": f"../files/{name}",
            "hashes": {"sha256": "1" * 64},
            "size": 9,
            "yanked": False,
        }
        for name in NAMES
    ]
    links = "".join(f'<a href="/files/{name}#sha256={"1" * 64}" data-yanked>{name}</a>' for name in NAMES)
    return [json.dumps({"files": listed}).encode(), f"<html><body>{links}</body></html>".encode()]


def mutate_page(chance: random.Random, data: bytes) -> bytes:
    return (
        mutate_json(chance, data) if data[:1] == b"{" and chance.random() < 0.7 else mutate_text(chance, data)
    )


def read_page(data: bytes, _: Path) -> None:
    for kind in (JSON, HTML):
        with suppress(ValidatorError):
            for listed in _parsed(data, kind, "ours"):
                file = _wheel(listed, "https://index.example/simple/ours/", "ours")
                if file is not None:
                    assert "/" not in file.filename
                    _python(file)


def name_seeds() -> list[bytes]:
    return [name.encode() for name in NAMES]


def read_name(data: bytes, _: Path) -> None:
    with suppress(InvalidWheelName):
        _name, version, tags = wheel_name(data.decode("utf-8", "surrogateescape"))
        assert len(tags) <= 200 and str(version)


HEADERS = {
    "Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT",
    "Range": "bytes=0-1023",
    "Content-Range": "bytes 5-9/10",
    "Content-Length": "1024",
    "Content-Type": "application/json; charset=utf-8",
    "Location": "https://[2001:db8::1]:5000/v2/x/blobs/uploads/1?state=a%20b",
    "Link": '</v2/x/tags/list?last=b&n=9>; rel="next"',
    "WWW-Authenticate": 'Bearer realm="https://auth.example/token?a=b",service="x",scope="repository:x:pull"',
}


def header_seeds() -> list[bytes]:
    return [json.dumps(HEADERS).encode(), *(f"{name}: {value}".encode() for name, value in HEADERS.items())]


def read_headers(data: bytes, _: Path) -> None:
    """Read an answer with these headers everywhere where headers are read."""
    import requests

    answer = requests.Response()
    answer.status_code = 302
    answer.raw = _Empty()
    try:
        found: Any = json.loads(data)
        pairs = list(found.items()) if isinstance(found, dict) else []
    except (ValueError, RecursionError):
        name, _colon, value = data.decode("latin-1").partition(": ")
        pairs = [(name, value)]
    for name, value in pairs:
        answer.headers[str(name)] = str(value)
    assert http.received(answer, 0) >= 0
    http.first_byte(answer), http.media_type(answer)
    http.number(answer.headers.get("Content-Length"))
    assert http.pause_s(answer.headers.get("Retry-After", "")) >= 0
    address = "https://registry.example/v2/x"
    readers: tuple[Callable[[], object], ...] = (
        lambda: http.redirection(answer, "GET", address),
        lambda: http.next_page(answer, address),
    )
    for read in readers:
        with suppress(HttpFailure):
            read()
    for text in answer.headers.values():
        with suppress(HttpFailure):
            assert http.origin(http.joined(address, text))[0] in ("http", "https")
    login(answer.headers.get("WWW-Authenticate", ""), b'{"token": "x"}')


def login(challenge: str, token: bytes) -> None:
    authorization = Authorization("127.0.0.1:9", ["repository:x:pull"], lambda *_: token, plain_http=False)
    with suppress(ValidatorError):
        authorization.answer(challenge, None)
        (authorization.header() or "").encode("ascii")


class _Empty:
    def close(self) -> None:
        """Nothing is open."""

    def release_conn(self) -> None:
        """Nothing is open."""


def token_seeds() -> list[bytes]:
    answers = (
        {"token": "abc", "expires_in": 300},
        {"access_token": "abc", "issued_at": "2026-11-20T01:00:00Z"},
    )
    errors = {"errors": [{"code": "DIGEST_INVALID", "message": "no space left", "detail": {}}]}
    return [json.dumps(answer).encode() for answer in (*answers, errors)]


def read_token(data: bytes, _: Path) -> None:
    login(HEADERS["WWW-Authenticate"], data)
    for status in (400, 429, 500):
        with suppress(FailedRequest), explained():
            raise HttpFailure(Kind.STATUS, "no", status, data)


def config_seeds() -> list[bytes]:
    settings = {"Labels": {"a": "b"}, "Env": ["PATH=/bin"], "ExposedPorts": {"8888/tcp": {}}, "Cmd": ["x"]}
    base = {"os": "linux", "architecture": "amd64", "config": settings}
    return [json.dumps({**base, "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}).encode()]


class _Registry:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def blob(self, *_: object) -> bytes:
        return self._content


def read_configuration(data: bytes, _: Path) -> None:
    layer = {"digest": DIGEST, "size": 9}
    manifest = msgspec.convert({"config": layer, "layers": [layer]}, Manifest)
    config, _ids = read_config(_Registry(data), manifest, "the image")  # type: ignore[arg-type]
    for line in (config.get("config") or {}).get("Env") or ():
        line.partition("=")
    for label in ((config.get("config") or {}).get("Labels") or {}).values():
        label.partition(":")


def record_seeds() -> list[bytes]:
    return [b"six.py,sha256=AAAA,12\nsix-1.dist-info/RECORD,,\n", b'"a,b.py",sha256=AAAA,1\n']


def read_record(data: bytes, _: Path) -> None:
    with suppress(FormatError):
        parse_record(data)


def apt_seeds() -> list[bytes]:
    return [
        b"'http://deb.debian.org/debian/pool/main/g/git/git_2.39_amd64.deb' git_1%3a2.39_amd64.deb 99 SHA256:"
        + b"1" * 64,
        b"Package: git\nVersion: 1:2.39\nSource: git (1:2.38)\n\nPackage: b\nVersion: 1\n",
    ]


def read_apt(data: bytes, _: Path) -> None:
    text = data.decode("utf-8", "replace")
    for match in parts._URI.finditer(text):
        unquote(match["file"]).partition("_"), int(match["size"])
    parts._source_versions(text)
