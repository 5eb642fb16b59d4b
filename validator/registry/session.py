"""Send requests to one registry: logins, certificates, proxies, redirections, retries and clear errors.

Everything that a registry sends is read here: each body up to a limit, headers, and the addresses in them.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import email.utils
import hashlib
import os
import re
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import parse_http_list

import msgspec

from ..errors import MissingError, ValidatorError
from ..system import processes
from .errors import (
    DENIED,
    FULL,
    INTERNAL,
    LOST,
    NO_TLS,
    TOO_MANY,
    UNAUTHORIZED,
    UNKNOWN_HOST,
    UNTRUSTED,
    AlteredError,
    Fault,
)
from .names import Repository

if TYPE_CHECKING:
    import requests


# Log in to a registry with Docker's credentials: those of `docker login` and of its credential helpers.
#
# Implements Basic authentication and tokens (https://distribution.github.io/distribution/spec/auth/token/).
# Passwords go to the registry and to the token server that it names, and nowhere else; no message has one.


_CLIENT = "tensorflow-gpu-matrix"
#: Seconds that a token is valid if the server does not say.
_USUAL_LIFE_S = 60
#: A token is renewed this many seconds before it expires: a request may take that long to arrive.
_MARGIN_S = 10
_CHALLENGE = re.compile(r"\s*(?P<scheme>bearer|basic)\s+(?P<values>.*)", re.IGNORECASE | re.DOTALL)

#: Sends a request and returns the body of a successful response: method, address, headers, form.
Ask = Callable[[str, str, Mapping[str, str], Mapping[str, str] | None], bytes]


@dataclass(frozen=True)
class Login:
    """A login stored by `docker login`. identity: a token that stands for user and password."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str | None:
        """The value of a header for Basic authentication, or None without a password."""
        if not self.user:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


def stored_login(host: str) -> Login:
    """Return Docker's login for a registry, empty if there is none. Raises MissingError if a helper fails."""
    import docker.auth
    from docker.errors import DockerException

    try:
        with warnings.catch_warnings():
            # The SDK warns about a helper that is not installed, and then raises an error that says the same.
            warnings.simplefilter("ignore")
            found: Mapping[str, Any] = docker.auth.load_config().resolve_authconfig(host) or {}
    except (DockerException, OSError, ValueError) as error:
        raise MissingError(
            f"the login for {host} can't be read from Docker's configuration: {type(error).__name__}",
            hint=f"check ~/.docker/config.json and its credential helper, or run `docker login {host}` again",
        ) from error
    values = {name.lower(): str(value) for name, value in found.items() if value}
    return Login(values.get("username", ""), values.get("password", ""), values.get("identitytoken", ""))


class _Token(msgspec.Struct):
    """The answer of a token server."""

    token: str = ""
    access_token: str = ""
    expires_in: float = _USUAL_LIFE_S


class Authorization:
    """The header `Authorization` for one registry, as far as it asks for one. Usable from several threads.

    scopes: what tokens are asked for, such as `repository:team/tensorflow:pull,push`.
    plain_http: allow a token server without TLS.
    """

    def __init__(self, host: str, scopes: Sequence[str], ask: Ask, *, plain_http: bool) -> None:
        self._host, self._scopes, self._ask, self._plain_http = host, tuple(scopes), ask, plain_http
        self._guard = threading.RLock()
        self._login: Login | None = None
        self._header: str | None = None
        self._challenge: Mapping[str, str] | None = None
        self._expires = float("inf")

    def header(self) -> str | None:
        """Return the header's value, None before the first challenge. Renews a token that expires soon."""
        with self._guard:
            if self._challenge is not None and time.monotonic() > self._expires:
                self._renew(self._challenge)
            return self._header

    def answer(self, challenge: str, refused: str | None) -> bool:
        """Log in as a response with the status 401 asks for. Return False if that can't help.

        challenge: its header `WWW-Authenticate`. refused: the value that was sent, None for none.
        """
        with self._guard:
            if self._header != refused:
                # Another thread has logged in meanwhile.
                return True
            found = _CHALLENGE.match(challenge)
            if found is None:
                return False
            if found["scheme"].lower() == "basic":
                self._header = self._stored().basic
                return self._header is not None and self._header != refused
            self._renew(_values(found["values"]))
            return True

    def _stored(self) -> Login:
        if self._login is None:
            self._login = stored_login(self._host)
        return self._login

    def _renew(self, challenge: Mapping[str, str]) -> None:
        realm, login = challenge.get("realm", ""), self._stored()
        address = urlsplit(realm)
        allowed = ("https", "http") if self._plain_http else ("https",)
        if not address.hostname or address.scheme not in allowed:
            raise MissingError(
                f"the registry {self._host} names a token server without TLS",
                hint="tell the registry's operator; no password was sent",
            )
        wanted = {"service": challenge.get("service", ""), "client_id": _CLIENT}
        started = time.monotonic()
        if login.identity:
            form = {**wanted, "scope": " ".join(self._scopes), "grant_type": "refresh_token"}
            answer = self._ask("POST", realm, {}, {**form, "refresh_token": login.identity})
        else:
            from requests import Request

            query = [(name, value) for name, value in wanted.items() if value]
            query += [("scope", scope) for scope in self._scopes]
            prepared = Request("GET", realm, params=query).prepare()
            headers = {"Authorization": login.basic} if login.basic else {}
            answer = self._ask("GET", str(prepared.url), headers, None)
        try:
            token = msgspec.json.decode(answer, type=_Token)
        except msgspec.DecodeError as error:
            raise MissingError(
                f"{self._host}: the token server {address.hostname} does not answer with a token",
                hint="tell the registry's operator",
            ) from error
        self._header = f"Bearer {token.token or token.access_token}"
        self._challenge = challenge
        self._expires = started + max(token.expires_in, _USUAL_LIFE_S) - _MARGIN_S


def _values(text: str) -> dict[str, str]:
    """Return the parameters of a challenge: `realm="https://…",service="…"`."""
    pairs = (part.partition("=") for part in parse_http_list(text))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


# requests takes long to load, and most commands read nothing from a registry.

#: Seconds to connect, and without a byte. Committing a large blob takes a registry a while.
_TIMEOUT_S = (15.0, 300.0)
#: Seconds for a small document with all its pages, and without a byte of it.
DOCUMENT_S, SILENCE_S = 120.0, 30.0
#: Seconds before each retry, unless the registry asks for more.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: The number of retries for a small document: after answers of the registry, and after lost connections.
_RETRIES, _LOST_RETRIES = 5, 2
#: A registry that asks for more seconds than this is not waited for.
_LONGEST_PAUSE_S = 120.0
_POLL_S = 0.2
_REDIRECTED = (301, 302, 303, 307, 308)
_MOST_REDIRECTIONS = 5
_BLOCK = 1 << 20
_SMALL_BLOCK = 64 << 10
#: Bytes of an answer that is only about a request: an error, or the token of a login.
_LARGEST_ANSWER = 1 << 20
#: Seconds for such an answer, once its headers are there.
_ANSWER_S = 60.0
#: Docker Hub's name for people, and the host of its registry.
_API_HOSTS = {"docker.io": "registry-1.docker.io"}
_FAULTS: Mapping[int, Fault] = {
    401: UNAUTHORIZED,
    403: DENIED,
    408: LOST,
    429: TOO_MANY,
    500: INTERNAL,
    502: INTERNAL,
    503: INTERNAL,
    504: INTERNAL,
    507: FULL,
}
_NO_SPACE = ("no space left", '"Err":28', "disk quota")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class FailedRequest(Exception):
    """A request without a usable response.

    fault: its kind, or None if it is unknown. status: 0 if there was no response. code: the registry's own,
    such as `BLOB_UPLOAD_UNKNOWN`. pause_s: the seconds that the registry asks to wait. is_silence: True if
    nothing came for too long.
    """

    def __init__(
        self,
        fault: Fault | None,
        message: str,
        status: int = 0,
        code: str = "",
        pause_s: float = 0.0,
        is_silence: bool = False,
    ) -> None:
        super().__init__(message)
        self.fault, self.status, self.code, self.pause_s = fault, status, code, pause_s
        self.is_silence = is_silence

    @property
    def is_temporary(self) -> bool:
        return self.fault is not None and self.fault.temporary and self.pause_s <= _LONGEST_PAUSE_S

    def error(self, host: str, what: str) -> ValidatorError:
        """Return the error to show. what: the failed action, which begins the message."""
        if self.fault is not None:
            return self.fault.error(host, what)
        return MissingError(f"{what}: the registry {host} answers: {self}")


class Retries:
    """Counts attempts, and waits between them with growing pauses.

    host, what: for the error when there are no attempts left. few: give up sooner, for a small document.
    """

    def __init__(self, host: str, what: str, *, few: bool = False) -> None:
        self._host, self._what = host, what
        self._pauses = list(PAUSES[:_RETRIES] if few else PAUSES)
        self._lost_left = _LOST_RETRIES if few else len(PAUSES)

    def wait(self, failure: FailedRequest) -> None:
        """Wait before the next attempt. Raises MissingError if another one can't help."""
        self._lost_left -= not failure.status
        if not failure.is_temporary or not self._pauses or self._lost_left < 0:
            raise failure.error(self._host, self._what) from failure
        deadline = time.monotonic() + max(self._pauses.pop(0), failure.pause_s)
        while (left := deadline - time.monotonic()) > 0:
            processes.check_stopping()
            time.sleep(min(left, _POLL_S))

    def progressed(self) -> None:
        """Begin to count again, because the last attempt came further."""
        self._pauses, self._lost_left = list(PAUSES), len(PAUSES)


@dataclass(frozen=True)
class Document:
    """A small document, as the registry sent it. digest: the header's, not verified."""

    content: bytes
    media_type: str
    digest: str
    next_page: str | None


class Session:
    """Connections to the registry of a repository. Usable from several threads.

    push: ask for permission to write. also: repositories of the same registry to read from.
    plain_http: use HTTP without TLS; None: only for a registry on this machine.
    accepts_streams: False once the registry refused a body without a length.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        push: bool,
        also: Sequence[Repository] = (),
        plain_http: bool | None = None,
    ) -> None:
        self.repository = repository
        self.accepts_streams = True
        self.host = repository.host
        self._plain = plain = repository.is_loopback if plain_http is None else plain_http
        self._base = f"{'http' if plain else 'https'}://{_API_HOSTS.get(self.host, self.host)}"
        scopes = [f"repository:{repository.path}:{'pull,push' if push else 'pull'}"]
        scopes += [f"repository:{other.path}:pull" for other in also]
        self._authorization = Authorization(self.host, scopes, self._ask, plain_http=plain)
        import requests

        self._http = requests.Session()
        # Without this, requests would take logins from ~/.netrc and replace ours with them.
        self._http.trust_env = False
        self._http.headers["User-Agent"] = "tensorflow-gpu-matrix"
        if bundle := _ca_bundle():
            self._http.verify = str(bundle)

    def document(
        self,
        address: str,
        *,
        what: str,
        most: int,
        digest: str | None = None,
        accept: str = "*/*",
        head: bool = False,
    ) -> Document | None:
        """Return a small document, or None if the registry says that it does not exist.

        what: the failed action, which begins the message of every error. most: its limit in bytes. digest:
        what its content must match. head: ask only for its headers. Raises AlteredError if it does not match,
        ValidatorError if it is larger, and MissingError if the registry can't be reached, denies access,
        keeps failing or is silent.
        """
        deadline = time.monotonic() + DOCUMENT_S
        found = self._document("HEAD" if head else "GET", address, accept, what, most, 0, deadline)
        if found is not None and digest is not None and not head:
            sent = f"sha256:{hashlib.sha256(found.content).hexdigest()}"
            if sent != digest:
                raise AlteredError(
                    f"{what}: it was altered, its content has the digest {sent}",
                    hint="do not use it, and tell the registry's operator",
                )
        return found

    def pages(self, address: str, *, what: str, most: int) -> Iterator[Document]:
        """Return the pages of a list; none if the registry says that it does not exist.

        The limits of `document` are for all pages together.
        """
        deadline, read, next_page = time.monotonic() + DOCUMENT_S, 0, address
        while page := self._document("GET", next_page, "*/*", what, most, read, deadline):
            yield page
            read += len(page.content)
            if page.next_page is None:
                return
            next_page = page.next_page
            if _origin(next_page) != _origin(self._base):
                raise ValidatorError(
                    f"{what}: the registry {self.host} continues the list on another server",
                    hint="tell the registry's operator; nothing was sent to it",
                )

    def _document(
        self, method: str, address: str, accept: str, what: str, most: int, read: int, deadline: float
    ) -> Document | None:
        """Return a document. read: the bytes of the pages before it, which count too."""
        retries = Retries(self.host, what, few=True)
        while True:
            try:
                with self.send(
                    method,
                    address,
                    expect=(200, 404),
                    headers={"Accept": accept},
                    stream=True,
                    silence_s=max(0.01, min(SILENCE_S, deadline - time.monotonic())),
                ) as answer:
                    content = bytearray()
                    for part in body(answer, _SMALL_BLOCK, deadline):
                        content += part
                        if read + len(content) > most:
                            raise ValidatorError(
                                f"{what}: the registry sends more than {most >> 20} MiB",
                                hint="do not use it, and tell the registry's operator",
                            )
                    if answer.status_code == 404:
                        return None
                    link = answer.links.get("next", {}).get("url")
                    return Document(
                        bytes(content),
                        answer.headers.get("Content-Type", "").partition(";")[0].strip(),
                        answer.headers.get("Docker-Content-Digest", ""),
                        urljoin(answer.url, link) if link else None,
                    )
            except FailedRequest as failure:
                if failure.is_silence or time.monotonic() > deadline:
                    raise MissingError(
                        f"{what}: the registry {self.host} stopped answering",
                        hint="check the network, or try again later",
                    ) from failure
                retries.wait(failure)

    def request(
        self,
        method: str,
        address: str,
        *,
        what: str,
        expect: Collection[int],
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request that may be repeated, and return the response if its status is one of `expect`.

        Its body is not kept. what: the failed action, which begins the message of every error. Raises
        MissingError.
        """
        retries = Retries(self.host, what)
        while True:
            try:
                return self.send(method, address, expect=expect, headers=headers)
            except FailedRequest as failure:
                retries.wait(failure)

    def send(
        self,
        method: str,
        address: str,
        *,
        expect: Collection[int],
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        stream: bool = False,
        silence_s: float = _TIMEOUT_S[1],
    ) -> requests.Response:
        """Send a request once. Raises FailedRequest if there is no response, or its status is not expected.

        address: absolute, or relative to the registry. data: bytes, or an iterable, sent as it comes.
        If it has no length, then neither has the request. stream: the caller reads the body, with `body`,
        and closes the response; otherwise nobody can. silence_s: the longest wait for a byte.
        """
        address = self.absolute(address)
        for _ in range(_MOST_REDIRECTIONS):
            answer = self._authorized(method, address, headers or {}, data, silence_s)
            if answer.status_code not in _REDIRECTED or method not in ("GET", "HEAD"):
                break
            address = urljoin(address, answer.headers.get("Location", ""))
            answer.close()
            self._refuse_unsafe(address)
        if answer.status_code not in expect:
            raise _failure(answer)
        if not stream:
            small_body(answer)
        return answer

    def forget(self, location: str) -> None:
        """Tell the registry that an unfinished upload is given up. It would forget it later without this."""
        with contextlib.suppress(FailedRequest, ValidatorError):
            self.send("DELETE", location, expect=(202, 204, 404))

    def absolute(self, address: str) -> str:
        """Return an address that may be relative to the registry, as in the header `Location`."""
        return urljoin(f"{self._base}/", address)

    def _authorized(
        self, method: str, address: str, headers: Mapping[str, str], data: Any, silence_s: float
    ) -> requests.Response:
        # A login is only for the registry. Blobs are often redirected to a server of another owner.
        ours = _origin(address) == _origin(self._base)
        value = self._authorization.header() if ours else None
        answer = self._raw(method, address, _with(headers, value), data, silence_s)
        if answer.status_code != 401 or not ours:
            return answer
        challenge = answer.headers.get("WWW-Authenticate", "")
        try:
            answers = self._authorization.answer(challenge, value)
        except BaseException:
            answer.close()
            raise
        if not answers:
            return answer
        answer.close()
        if not isinstance(data, bytes | None):
            raise FailedRequest(replace(UNAUTHORIZED, temporary=True), "the token expired", 401)
        return self._raw(method, address, _with(headers, self._authorization.header()), data, silence_s)

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> bytes:
        answer = self._raw(method, address, headers, form, _TIMEOUT_S[1])
        if answer.status_code != 200:
            raise _failure(answer)
        return small_body(answer)

    def _raw(
        self, method: str, address: str, headers: Mapping[str, str], data: Any, silence_s: float
    ) -> requests.Response:
        import requests
        from requests.utils import get_environ_proxies

        # As other clients do, nothing on this machine is reached through a proxy.
        proxies = {} if self.repository.is_loopback else get_environ_proxies(address)
        try:
            return self._http.request(
                method,
                address,
                headers={"Accept-Encoding": "identity", **headers},
                data=data,
                stream=True,
                proxies=proxies,
                timeout=(_TIMEOUT_S[0], silence_s),
                allow_redirects=False,
            )
        except (requests.RequestException, OSError) as error:
            raise lost(error) from error

    def _refuse_unsafe(self, address: str) -> None:
        if urlsplit(address).scheme != "https" and not self._plain:
            raise MissingError(
                f"the registry {self.host} redirects to a server without TLS",
                hint="tell the registry's operator; nothing was sent to it",
            )


def body(answer: requests.Response, block: int = _BLOCK, deadline: float | None = None) -> Iterator[bytes]:
    """Return the body of a response in parts, as they were sent. Raises FailedRequest.

    deadline: of `time.monotonic`; what comes later is not read.
    """
    import urllib3

    # `read` waits for a whole block. Before urllib3 2.2 there is nothing else.
    read = answer.raw.read if deadline is None else getattr(answer.raw, "read1", answer.raw.read)
    try:
        while part := read(block, decode_content=False):
            if deadline is not None and time.monotonic() > deadline:
                raise FailedRequest(LOST, "its answer was not complete in time", is_silence=True)
            yield part
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise lost(error) from error


def small_body(answer: requests.Response) -> bytes:
    """Return what a response to a request says, of which only the first MiB counts, and end the response."""
    content = bytearray()
    with answer, contextlib.suppress(FailedRequest):
        for part in body(answer, _SMALL_BLOCK, time.monotonic() + _ANSWER_S):
            content += part
            if len(content) > _LARGEST_ANSWER:
                break
    return bytes(content[:_LARGEST_ANSWER])


def lost(error: Exception) -> FailedRequest:
    """Return the failure of a connection."""
    import requests
    import urllib3

    text = str(error)
    fault = LOST
    if isinstance(error, requests.exceptions.SSLError):
        fault = UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in text or "match" in text else NO_TLS
    elif "Failed to resolve" in text or "Name or service not known" in text:
        fault = UNKNOWN_HOST
    is_silence = isinstance(error, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError)
    return FailedRequest(fault, type(error).__name__, is_silence=is_silence)


class _Listed(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Listed] = []


def _failure(answer: requests.Response) -> FailedRequest:
    """Return the failure that a response is about, and end the response."""
    status, content = answer.status_code, small_body(answer)
    try:
        listed = msgspec.json.decode(content, type=_Errors).errors
    except msgspec.DecodeError:
        listed = []
    first = listed[0] if listed else _Listed()
    fault = _FAULTS.get(status)
    if fault is INTERNAL and any(mark in content.decode("utf-8", "replace") for mark in _NO_SPACE):
        fault = FULL
    message = " ".join(f"{status} {first.code} {first.message}".split())[:300]
    return FailedRequest(fault, message, status, first.code, _pause(answer.headers.get("Retry-After", "")))


def _pause(header: str) -> float:
    """Return the seconds of a header `Retry-After`, which has seconds or a date."""
    if header.strip().isdigit():
        return float(header)
    try:
        date = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    return max(0.0, (date - datetime.datetime.now(datetime.timezone.utc)).total_seconds())


def _with(headers: Mapping[str, str], authorization: str | None) -> dict[str, str]:
    return {**headers, **({"Authorization": authorization} if authorization else {})}


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _ca_bundle() -> Path | None:
    """Return the certificates that other clients of registries trust, or None for those of requests."""
    found = next((value for name in _CA_VARIABLES if (value := os.environ.get(name))), None)
    bundle = found or ssl.get_default_verify_paths().cafile
    return Path(bundle) if bundle and Path(bundle).is_file() else None
