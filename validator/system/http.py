"""Send HTTP requests and read the answers, for registries, token servers and package indexes alike.

Nothing in an answer is trusted: it has a limit in bytes after decoding, one deadline from the name of its
server to its last byte, and its headers and the addresses in them are read only here.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import io
import ipaddress
import math
import os
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from . import processes

# requests takes long to load, and most commands send no request. So it is imported where it is used.
if TYPE_CHECKING:
    import requests

#: Seconds to connect to one address of a server.
_CONNECT_S = 15.0
#: Seconds to find a server's addresses, reach one of them, and agree on TLS, through a proxy too.
_REACH_S = 60.0
#: A name with more addresses than this has its others left out.
_MOST_ADDRESSES = 8
_UNREACHED = "the server was not reached in time"
#: Seconds without a byte. Committing a large blob takes a registry a while.
SILENCE_S = 300.0
#: Seconds for an answer, after the request was sent, if the caller gives no deadline.
_ANSWER_S = 360.0
#: Whoever sends more slowly than this many bytes a second is not waited for.
_SLOWEST = 16 << 10
#: Seconds that every answer may take, however small it is.
_LEAST_S = 600.0
#: A server that asks for a longer pause is not waited for.
LONGEST_PAUSE_S = 120.0
_POLL_S = 0.2
_REDIRECTED = (301, 302, 303, 307, 308)
MOST_REDIRECTIONS = 5
_BLOCK = 1 << 20
_SMALL_BLOCK = 64 << 10
#: Bytes of an answer that is only about a request: an error, or the token of a login.
LARGEST_ANSWER = 1 << 20
#: Characters of an address. Signed addresses of blobs have about 2,000.
_LONGEST_ADDRESS = 16_000
#: Names longer than this are no host names (RFC 1035).
_LONGEST_HOST = 253
_PORTS = {"http": 80, "https": 443}
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
#: No size or offset has more digits, and `int` would read digits of other scripts.
_NUMBER = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,18})")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/(?:\*|[0-9]{1,18})")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::[0-9]*)?")
_UNUSABLE = re.compile(r"[\x00-\x20\x7f]")


class Kind(Enum):
    """Why a request has no usable answer."""

    LOST = "the connection was lost"
    SILENT = "the server stopped answering"
    UNKNOWN_HOST = "the host name is unknown"
    NO_TLS = "the server does not use TLS"
    UNTRUSTED = "the server's certificate is not trusted"
    ADDRESS = "an address is not usable"
    LARGE = "the answer is too large"
    STATUS = "the status is not the expected one"


class HttpFailure(Exception):
    """A request without a usable answer.

    status: 0 if there was no answer. content: the beginning of its body. pause_s: the seconds that the server
    asks to wait.
    """

    def __init__(
        self, kind: Kind, message: str, status: int = 0, content: bytes = b"", pause_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.kind, self.status, self.content, self.pause_s = kind, status, content, pause_s

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        passing = self.kind in (Kind.LOST, Kind.SILENT) or self.status in (408, 429, 500, 502, 503, 504)
        return passing and self.pause_s <= LONGEST_PAUSE_S


class Http:
    """Connections to servers. Usable from several threads. It neither follows redirections nor logs in.

    ca_bundle: the certificates to trust; None for those of requests. use_proxies: those of the environment.
    """

    def __init__(self, ca_bundle: Path | None, *, use_proxies: bool = True) -> None:
        import requests

        self._session, self._use_proxies = requests.Session(), use_proxies
        # Without this, requests would take logins from ~/.netrc and replace ours with them.
        self._session.trust_env = False
        self._session.headers["User-Agent"] = "tensorflow-gpu-matrix"
        if ca_bundle:
            self._session.verify = str(ca_bundle)
        for scheme in _PORTS:
            self._session.mount(f"{scheme}://", _adapter()())

    def send(
        self,
        method: str,
        address: str,
        *,
        headers: Mapping[str, str],
        data: Any = None,
        silence_s: float = SILENCE_S,
        deadline: float | None = None,
    ) -> requests.Response:
        """Send a request once, and return the answer, whose body is not read yet. Raises HttpFailure.

        data: bytes, a form, or an iterable. The request states its length, unless an iterable has none.
        silence_s: the longest wait for a byte. deadline: of `time.monotonic`; what comes later is not read.
        """
        from requests.utils import get_environ_proxies

        _limits.silence_s, _limits.deadline = silence_s, deadline
        if deadline is not None and time.monotonic() >= deadline:
            raise HttpFailure(Kind.SILENT, Kind.SILENT.value)
        with _failures():
            return self._session.request(
                method,
                address,
                headers={"Accept-Encoding": "identity", **headers},
                data=data,
                stream=True,
                proxies=get_environ_proxies(address) if self._use_proxies else {},
                timeout=(_CONNECT_S, silence_s),
                allow_redirects=False,
            )


def body(answer: requests.Response, block: int = _BLOCK, *, decode: bool = False) -> Iterator[bytes]:
    """Return the body of an answer in blocks, as it was sent or decoded. Raises HttpFailure."""
    while True:
        with _failures():
            part: bytes = answer.raw.read(block, decode_content=decode)
        if not part:
            return
        yield part


def content(answer: requests.Response, most: int, *, decode: bool = False) -> bytes:
    """Return the body of an answer of at most `most` bytes, decoded or as it was sent. Raises HttpFailure."""
    read = bytearray()
    for part in body(answer, _SMALL_BLOCK, decode=decode):
        read += part
        if len(read) > most:
            raise HttpFailure(Kind.LARGE, f"it sends more than {most >> 20} MiB")
    return bytes(read)


def small_body(answer: requests.Response) -> bytes:
    """Return what an answer to a request says, of which only the first MiB counts, and end the answer."""
    read = bytearray()
    with answer, contextlib.suppress(HttpFailure):
        for part in body(answer, _SMALL_BLOCK):
            read += part
            if len(read) > LARGEST_ANSWER:
                break
    return bytes(read[:LARGEST_ANSWER])


def failure_of(answer: requests.Response) -> HttpFailure:
    """Return the failure for an answer with an unexpected status, and end it."""
    return HttpFailure(
        Kind.STATUS,
        f"it answers with the status {answer.status_code}",
        answer.status_code,
        small_body(answer),
        pause_s(answer.headers.get("Retry-After", "")),
    )


def deadline_for(size: int) -> float:
    """Return the time of `time.monotonic` when a server that sends this many bytes must have finished.

    The server gets `_LEAST_S`, and as long as `size` bytes take at `_SLOWEST`.
    """
    return time.monotonic() + _LEAST_S + size / _SLOWEST


def wait(seconds: float) -> None:
    """Wait, but end with the program if it is stopped."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        processes.check_stopping()
        time.sleep(min(left, _POLL_S))


def ca_bundle() -> Path | None:
    """Return the certificates that other clients trust, or None for those of requests."""
    found = next((value for name in _CA_VARIABLES if (value := os.environ.get(name))), None)
    bundle = found or ssl.get_default_verify_paths().cafile
    return Path(bundle) if bundle and Path(bundle).is_file() else None


def joined(base: str, reference: str) -> str:
    """Return the address that a reference in an answer stands for. base: the address of the answer.

    Raises HttpFailure for what is not an HTTP address without a user name. The message does not quote it,
    because addresses may contain credentials.
    """
    if len(reference) > _LONGEST_ADDRESS:
        raise _unusable(f"has more than {_LONGEST_ADDRESS:,} characters")
    if _UNUSABLE.search(reference):
        raise _unusable("contains spaces or control characters")
    try:
        address = urljoin(base, reference)
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        if not _SERVER.fullmatch(parts.netloc.rpartition("@")[2]):
            raise ValueError("not a host with a port")
        if ":" in host:
            ipaddress.IPv6Address(host)
        elif host and (len(host) > _LONGEST_HOST or not host.encode("idna")):
            raise ValueError("too long")
        address.encode("utf-8")
    except ValueError:
        raise _unusable("is not valid") from None
    if parts.scheme not in _PORTS:
        raise _unusable("is neither http nor https")
    if not host or port == 0:
        raise _unusable("has no host" if not host else "has an invalid port")
    if "@" in parts.netloc:
        raise _unusable("contains a user name")
    return address


def redirection(answer: requests.Response, method: str, address: str) -> str | None:
    """Return where an answer redirects a request that only reads, and end the answer; otherwise None.

    Raises HttpFailure if the address is not usable, or leaves TLS.
    """
    if answer.status_code not in _REDIRECTED or method not in ("GET", "HEAD"):
        return None
    with answer:
        following = joined(address, answer.headers.get("Location", ""))
    if urlsplit(address).scheme == "https" != urlsplit(following).scheme:
        raise HttpFailure(Kind.ADDRESS, "it redirects to a server without TLS")
    return following


def origin(address: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address that `joined` accepts: whom a login is for."""
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def without_login(address: str) -> tuple[str, str | None]:
    """Return an address without user name and password, and these as a value of the header `Authorization`.

    Raises ValueError for what is not an address.
    """
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address, None
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), basic(login)


def without_secrets(address: str) -> str:
    """Return an address without login, query and fragment. Raises ValueError for what is not an address."""
    return urlunsplit(urlsplit(without_login(address)[0])._replace(query="", fragment=""))


def basic(login: str) -> str:
    """Return the value of the header `Authorization` for `user:password`."""
    return "Basic " + base64.b64encode(login.encode()).decode("ascii")


def _unusable(why: str) -> HttpFailure:
    return HttpFailure(Kind.ADDRESS, f"it names an address that {why}")


def number(text: str | None) -> int | None:
    """Return a size in a header, or None for anything but decimal digits."""
    found = _NUMBER.fullmatch((text or "").strip(" \t"))
    return int(found[0]) if found else None


def media_type(answer: requests.Response) -> str:
    """Return the media type without its parameters, in lower case; empty if it is not given."""
    return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def pause_s(header: str) -> float:
    """Return the seconds of a header `Retry-After`, which has seconds or a date; 0 for anything else."""
    if re.fullmatch(r"[0-9]+", text := header.strip(" \t")):
        return float(text[:18]) if len(text) <= 18 else math.inf
    try:
        date = email.utils.parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0


def received(answer: requests.Response, usual: int) -> int:
    """Return the number of bytes of an upload that a registry has, from the header `Range`.

    usual: the number if the header is missing or is not such a range.
    """
    found = _RANGE.fullmatch(answer.headers.get("Range", "").strip())
    if found is None:
        return usual
    # `0-0` means nothing for most registries, because the header can't say that. No chunk has one byte.
    return int(found[1]) + 1 if int(found[1]) else 0


def first_byte(answer: requests.Response) -> int | None:
    """Return the offset at which a partial answer begins, or None if its `Content-Range` does not say."""
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
    return int(found[1]) if found else None


def next_page(answer: requests.Response, address: str) -> str | None:
    """Return the address of the next page of a list. Raises HttpFailure if it is not usable."""
    link = answer.links.get("next", {}).get("url")
    return joined(address, link) if link else None


#: The limits of the request that a thread is sending.
_limits = threading.local()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn the errors of a connection into HttpFailure."""
    import requests
    import urllib3

    try:
        yield
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
        text, kind = str(error), Kind.LOST
        if isinstance(error, requests.exceptions.SSLError):
            kind = Kind.UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in text or "match" in text else Kind.NO_TLS
        elif "Failed to resolve" in text or "Name or service not known" in text:
            kind = Kind.UNKNOWN_HOST
        elif isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError) or _UNREACHED in text:
            kind = Kind.SILENT
        elif isinstance(error, ValueError | http.client.InvalidURL) and not isinstance(
            error, requests.ConnectionError
        ):
            kind = Kind.ADDRESS
        raise HttpFailure(kind, type(error).__name__) from error


class _Limited(io.RawIOBase):
    """What a server sends, status line and headers included, until the deadline."""

    def __init__(self, stream: io.BufferedReader, connection: socket.socket) -> None:
        self._stream, self._connection = stream, connection
        self._silence_s: float = _limits.silence_s
        deadline: float | None = _limits.deadline
        self._deadline = time.monotonic() + _ANSWER_S if deadline is None else deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._connection.settimeout(min(self._silence_s, left))
        return self._stream.raw.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Limited(self.fp, sock))


def _addresses(host: str, port: int, seconds: float) -> list[str]:
    """Return the addresses of a host, asked in a thread: a resolver may take any time. Raises OSError."""
    host = host.strip("[]")
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(address[0]) for *_, address in found)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError("the resolver did not answer") from None
    if isinstance(answer, list):
        return answer[:_MOST_ADDRESSES]
    raise answer


def _left() -> float:
    """Return the seconds that this thread's request has left."""
    left: float = _limits.deadline - time.monotonic()
    return max(0.001, left)


@cache
def _adapter() -> type[requests.adapters.HTTPAdapter]:
    """Return the adapter of requests whose connections have the limits of `_limits` from their beginning."""
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

    class Plain(HTTPConnection):
        response_class = _Response

        def connect(self) -> None:
            """Connect, but not for longer than the request has, whatever the other side sends meanwhile."""
            asked = _limits.deadline
            _limits.deadline = min(asked or math.inf, time.monotonic() + _REACH_S)
            try:
                super().connect()
            except Exception as error:
                if time.monotonic() < _limits.deadline:
                    raise
                raise ConnectTimeoutError(self, _UNREACHED) from error
            finally:
                _limits.deadline = asked

        def _new_conn(self) -> socket.socket:
            name = self._dns_host
            failure: Exception = NewConnectionError(self, "it has no address")
            try:
                for address in _addresses(name, self.port or 0, _left()):
                    self._dns_host = address
                    self.timeout = min(_CONNECT_S, _left())
                    try:
                        reached = super()._new_conn()
                        # Python ends a handshake of TLS after this time, even if bytes still arrive.
                        reached.settimeout(_left())
                        return reached
                    except (NewConnectionError, ConnectTimeoutError) as error:
                        failure = error
            except socket.gaierror as error:
                raise NameResolutionError(name, self, error) from error
            except UnicodeError as error:
                raise http.client.InvalidURL("the name of the host is not valid") from error
            finally:
                self._dns_host = name
            raise failure

    class Encrypted(Plain, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    pools = {"http": PlainPool, "https": EncryptedPool}

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
            super().init_poolmanager(*arguments, **named)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **named)
            # A SOCKS proxy has connections of its own, which have no limit but that of silence.
            if hasattr(manager, "proxy_headers"):
                manager.pool_classes_by_scheme = pools
            return manager

    return Adapter
