"""Send requests to one registry: logins, certificates, proxies, redirections, retries and clear errors.

`system.http` reads what a registry sends, and this module says what it means, also in the messages of
`docker`, with what to do next.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit
from urllib.request import parse_http_list

import msgspec

from ..errors import MissingError, ValidatorError
from ..system import http
from ..system.http import HttpFailure, Kind
from .names import Repository

if TYPE_CHECKING:
    import requests


class AlteredError(ValidatorError):
    """Content does not match its digest: it was altered, in the registry or in transit."""


@dataclass(frozen=True)
class Fault:
    """A kind of failure. temporary: a retry may help. altered: content does not match its digest."""

    pattern: str
    says: str
    hint: str
    temporary: bool = False
    altered: bool = False

    def error(self, host: str, what: str) -> ValidatorError:
        """Return the error of a registry. what: the failed action, which begins the message."""
        kind = AlteredError if self.altered else MissingError
        return kind(f"{what}: the registry {host} {self.says}", hint=self.hint.format(host=host))


_LOGIN = "log in with `docker login {host}`; to write, the account needs permission to push"
_LATER = "try again later; nothing was partially published"
_NETWORK = "check the name, the network and the proxy settings"

TOO_MANY = Fault(
    r"\b429\b|too ?many ?requests",
    "currently rejects requests because there were too many", _LATER, temporary=True,
)  # fmt: skip
FULL = Fault(
    r"\b507\b|no space left|insufficient storage|disk quota",
    "is full: it can't store the content",
    "free some space in the registry, then repeat the command",
)
UNAUTHORIZED = Fault(
    r"\b401\b|unauthorized|authentication required|credential not found|token.*expired|no basic auth",
    "requires a login, or rejects the current one", _LOGIN,
)  # fmt: skip
DENIED = Fault(r"\b403\b|forbidden|denied", "denies access", _LOGIN)
INTERNAL = Fault(
    r"\b50[0234]\b|internal server error|bad gateway|service unavailable|gateway time-?out",
    "reports an internal error", _LATER, temporary=True,
)  # fmt: skip
UNKNOWN_HOST = Fault(r"no such host|server misbehaving", "can't be found: its host name is unknown", _NETWORK)
NO_TLS = Fault(
    r"server gave HTTP response to HTTPS client",
    "uses HTTP without TLS, which is only allowed on this machine",
    "set up TLS for the registry",
)
UNTRUSTED = Fault(
    r"x509:|certificate (?:signed|is not|has expired)|tls: ",
    "has a TLS certificate that this machine does not trust",
    "add the authority's certificate to the system, or fix the registry's certificate",
)
ALTERED = Fault(
    r"digest mismatch|mismatch(?:ed)? digest|does not match|content digest|size mismatch|mismatch size",
    "returned content that does not match its digest",
    "it was altered, in the registry or in transit; do not use it",
    altered=True,
)
LOST = Fault(
    r"connection (?:refused|reset)|broken pipe|unexpected EOF|\bEOF\b|i/o timeout|deadline exceeded"
    r"|network is unreachable|no route to host|timed? ?out",
    "can't be reached, or the connection was lost", _NETWORK, temporary=True,
)  # fmt: skip

#: In order of precedence: a response of the registry says more than an error of the connection.
FAULTS = (
    TOO_MANY, FULL, UNAUTHORIZED, DENIED, INTERNAL, UNKNOWN_HOST, NO_TLS, UNTRUSTED, ALTERED, LOST,
)  # fmt: skip


def fault_of(message: str) -> Fault | None:
    """Return the kind of failure that a program's message is about, or None if it is unknown."""
    return next((fault for fault in FAULTS if re.search(fault.pattern, message, re.IGNORECASE)), None)


def explain(host: str, message: str, *, what: str) -> ValidatorError:
    """Return the error for a failed program. what: the failed action, which begins the message."""
    fault = fault_of(message)
    if fault is None:
        last = [line.strip() for line in message.splitlines() if line.strip()][-1:] or ["no message"]
        return MissingError(f"{what}: {last[0][:300]}")
    return fault.error(host, what)


# Log in to a registry with Docker's credentials: those of `docker login` and of its credential helpers.
#
# Implements Basic authentication and tokens (https://distribution.github.io/distribution/spec/auth/token/).
# Passwords go to the registry and to the token server that it names, and nowhere else; no message has one.

_CLIENT = "tensorflow-gpu-matrix"
#: Seconds that a token is valid if the server does not say.
_USUAL_LIFE_S = 60
#: A token is renewed this many seconds before it expires: a request may take that long to arrive.
_MARGIN_S = 10
#: What a header can carry.
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_CHALLENGE = re.compile(r"\s*(?P<scheme>bearer|basic)\s+(?P<values>.*)", re.IGNORECASE | re.DOTALL)

#: Sends a request and returns the body of a successful response: method, address, headers, form.
Ask = Callable[[str, str, Mapping[str, str], Mapping[str, str] | None], bytes]


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: float = _USUAL_LIFE_S


class Authorization:
    """The header `Authorization` for one registry, as far as it asks for one. Usable from several threads.

    scopes: such as `repository:team/tensorflow:pull,push`. plain_http: allow a token server without TLS.
    """

    def __init__(self, host: str, scopes: Sequence[str], ask: Ask, *, plain_http: bool) -> None:
        self._host, self._scopes, self._ask, self._plain_http = host, tuple(scopes), ask, plain_http
        self._guard = threading.RLock()
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
        """Log in as a response 401 with this challenge asks for. refused: the value that was sent."""
        with self._guard:
            if self._header != refused:
                # Another thread has logged in meanwhile.
                return True
            found = _CHALLENGE.match(challenge)
            if found is None:
                return False
            if found["scheme"].lower() == "basic":
                self._header = self._login[0]
                return self._header is not None and self._header != refused
            # Its parameters: `realm="https://…",service="…"`.
            pairs = (part.partition("=") for part in parse_http_list(found["values"]))
            self._renew({name.strip().lower(): value.strip().strip('"') for name, _, value in pairs})
            return True

    @cached_property
    def _login(self) -> tuple[str | None, str]:
        """The credentials that `docker login` stored. Raises MissingError if a credential helper fails.

        They are the value of a header for Basic authentication, or None, and a token that replaces user and
        password, or an empty text.
        """
        import docker.auth
        from docker.errors import DockerException

        try:
            with warnings.catch_warnings():
                # The SDK warns about a helper that is not installed. Then it raises an error that says so.
                warnings.simplefilter("ignore")
                found: Mapping[str, Any] = docker.auth.load_config().resolve_authconfig(self._host) or {}
        except (DockerException, OSError, ValueError) as error:
            raise MissingError(
                f"the login for {self._host} can't be read from Docker's configuration:"
                f" {type(error).__name__}",
                hint="check ~/.docker/config.json and its credential helper, or run"
                f" `docker login {self._host}` again",
            ) from error
        values = {name.lower(): str(value) for name, value in found.items() if value}
        user = values.get("username")
        basic = http.basic(f"{user}:{values.get('password', '')}") if user else None
        return basic, values.get("identitytoken", "")

    def _renew(self, challenge: Mapping[str, str]) -> None:
        realm, (basic, identity) = challenge.get("realm", ""), self._login
        try:
            address = urlsplit(http.joined("", realm))
        except HttpFailure as failure:
            raise MissingError(
                f"the registry {self._host} names a token server that can't be used: {failure}",
                hint="tell the registry's operator; no password was sent",
            ) from failure
        if address.scheme != "https" and not self._plain_http:
            raise MissingError(
                f"the registry {self._host} names a token server without TLS",
                hint="tell the registry's operator; no password was sent",
            )
        wanted = {"service": challenge.get("service", ""), "client_id": _CLIENT}
        started = time.monotonic()
        if identity:
            form = {**wanted, "scope": " ".join(self._scopes), "grant_type": "refresh_token"}
            answer = self._ask("POST", realm, {}, {**form, "refresh_token": identity})
        else:
            query = [(name, value) for name, value in wanted.items() if value]
            query += [("scope", scope) for scope in self._scopes]
            asked = f"{realm}{'&' if address.query else '?'}{urlencode(query)}"
            headers = {"Authorization": basic} if basic else {}
            answer = self._ask("GET", asked, headers, None)
        try:
            found = msgspec.json.decode(answer, type=_Token)
        except (msgspec.DecodeError, RecursionError, ValueError):
            found = _Token()
        token = found.token or found.access_token
        if not _TOKEN.fullmatch(token):
            raise MissingError(
                f"{self._host}: the token server {address.hostname} does not answer with a token",
                hint="tell the registry's operator",
            )
        self._header = f"Bearer {token}"
        self._challenge = challenge
        self._expires = started + max(found.expires_in, _USUAL_LIFE_S) - _MARGIN_S


#: Seconds for a small document with all its pages, and without a byte of it.
DOCUMENT_S, SILENCE_S = 120.0, 30.0
#: The pages of a list. Registries send from 50 to 1,000 tags on each.
MOST_PAGES = 1000
#: Seconds before each retry, unless the registry asks for more.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: The number of retries for a small document: after answers of the registry, and after lost connections.
_RETRIES, _LOST_RETRIES = 5, 2
#: Docker Hub's name for people, and the host of its registry.
_API_HOSTS = {"docker.io": "registry-1.docker.io"}
_FAULTS: Mapping[int, Fault] = {
    401: UNAUTHORIZED, 403: DENIED, 408: LOST, 429: TOO_MANY, 507: FULL,
    **dict.fromkeys((500, 502, 503, 504), INTERNAL),
}  # fmt: skip
_NO_SPACE = ("no space left", '"Err":28', "disk quota")
_KINDS: Mapping[Kind, Fault] = {
    Kind.LOST: LOST, Kind.SILENT: LOST, Kind.UNKNOWN_HOST: UNKNOWN_HOST,
    Kind.NO_TLS: NO_TLS, Kind.UNTRUSTED: UNTRUSTED,
}  # fmt: skip


class FailedRequest(Exception):
    """A request without a usable response. fault: None if it is unknown. status: 0 without a response.

    code: the registry's own, such as `BLOB_UPLOAD_UNKNOWN`. pause_s: the seconds that the registry asks for.
    """

    def __init__(
        self,
        fault: Fault | None,
        message: str,
        status: int = 0,
        code: str = "",
        pause_s: float = 0.0,
        kind: Kind = Kind.STATUS,
    ) -> None:
        super().__init__(message)
        self.fault, self.status, self.code = fault, status, code
        self.pause_s, self.kind = pause_s, kind

    @property
    def is_temporary(self) -> bool:
        return self.fault is not None and self.fault.temporary and self.pause_s <= http.LONGEST_PAUSE_S

    def error(self, host: str, what: str) -> ValidatorError:
        """Return the error to show. what: the failed action, which begins the message."""
        if self.fault is not None:
            return self.fault.error(host, what)
        return MissingError(f"{what}: the registry {host} answers: {self}")


class Retries:
    """Counts attempts, and waits between them with growing pauses. few: for a small document."""

    def __init__(self, host: str, what: str, *, few: bool = False) -> None:
        self._host, self._what = host, what
        self._pauses = list(PAUSES[:_RETRIES] if few else PAUSES)
        self._lost_left = _LOST_RETRIES if few else len(PAUSES)

    def wait(self, failure: FailedRequest) -> None:
        """Wait before the next attempt. Raises MissingError if another one can't help."""
        self._lost_left -= not failure.status
        if not failure.is_temporary or not self._pauses or self._lost_left < 0:
            raise failure.error(self._host, self._what) from failure
        http.wait(max(self._pauses.pop(0), failure.pause_s))

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
    """Connections to the registry of a repository. Usable from several threads. push: ask to write.

    also: repositories of the same registry to read from. plain_http: None: only for this machine.
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
        # Like other clients, use no proxy for this machine.
        self._http = http.Http(http.ca_bundle(), use_proxies=not repository.is_loopback)

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

        what: the failed action, which begins every error. most: its limit in bytes. digest: what it must
        match. head: only its headers. Raises AlteredError if it does not match, ValidatorError if it is
        larger, and MissingError if the registry can't be reached, denies access, keeps failing or is silent.
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
        """Return the pages of a list, none if there is none. `document` has the limits, for all together."""
        deadline, read, next_page = time.monotonic() + DOCUMENT_S, 0, address
        for _ in range(MOST_PAGES):
            page = self._document("GET", next_page, "*/*", what, most, read, deadline)
            if page is None:
                return
            yield page
            read += len(page.content)
            if page.next_page is None:
                return
            next_page = page.next_page
            if http.origin(next_page) != http.origin(self._base):
                raise ValidatorError(
                    f"{what}: the registry {self.host} continues the list on another server",
                    hint="tell the registry's operator; nothing was sent to it",
                )
        raise ValidatorError(
            f"{what}: the registry {self.host} sends more than {MOST_PAGES:,} pages",
            hint="tell the registry's operator",
        )

    def _document(
        self, method: str, address: str, accept: str, what: str, most: int, read: int, deadline: float
    ) -> Document | None:
        """Return a document. read: the bytes of the pages before it, which count too."""
        retries = Retries(self.host, what, few=True)
        while True:
            try:
                sent = self.send(
                    method, address, expect=(200, 404), headers={"Accept": accept}, stream=True,
                    silence_s=SILENCE_S, deadline=deadline,
                )  # fmt: skip
                with sent as answer, explained():
                    found = http.content(answer, most - read)
                    if answer.status_code == 404:
                        return None
                    digest = answer.headers.get("Docker-Content-Digest", "")
                    following = http.next_page(answer, answer.url)
                    return Document(found, http.media_type(answer), digest, following)
            except FailedRequest as failure:
                if failure.kind is Kind.LARGE:
                    raise ValidatorError(
                        f"{what}: the registry sends more than {most >> 20} MiB",
                        hint="do not use it, and tell the registry's operator",
                    ) from failure
                if failure.kind is Kind.SILENT or time.monotonic() > deadline:
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
        """Send a request that may be repeated. what: the failed action, for errors. Raises MissingError."""
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
        silence_s: float = http.SILENCE_S,
        deadline: float | None = None,
    ) -> requests.Response:
        """Send a request once. Raises FailedRequest if there is no response, or its status is not expected.

        address: absolute, or relative to the registry. data: bytes, or an iterable, sent as it comes. If it
        has no length, then neither has the request. stream: the caller reads the body and closes the
        response; otherwise nobody can. silence_s, deadline: those of `Http.send`.
        """
        with explained():
            address = self.absolute(address)
            for _ in range(http.MOST_REDIRECTIONS):
                answer = self._authorized(
                    method, address, headers or {}, data=data, silence_s=silence_s, deadline=deadline
                )
                following = http.redirection(answer, method, address)
                if following is None:
                    break
                address = following
            if answer.status_code not in expect:
                raise http.failure_of(answer)
        if not stream:
            http.small_body(answer)
        return answer

    def forget(self, location: str) -> None:
        """Tell the registry that an unfinished upload is given up. It would forget it later without this."""
        with contextlib.suppress(FailedRequest, ValidatorError):
            self.send("DELETE", location, expect=(202, 204, 404))

    def absolute(self, address: str) -> str:
        """Return an address that may be relative to the registry, as in the header `Location`."""
        with explained():
            return http.joined(f"{self._base}/", address)

    def _authorized(
        self, method: str, address: str, headers: Mapping[str, str], data: Any, **options: Any
    ) -> requests.Response:
        """Send a request with the login. options: silence_s and deadline of `Http.send`."""
        # A login is only for the registry. Blobs are often redirected to a server of another owner.
        ours = http.origin(address) == http.origin(self._base)

        def sent(value: str | None) -> requests.Response:
            login = {"Authorization": value} if value else {}
            return self._http.send(method, address, headers={**headers, **login}, data=data, **options)

        value = self._authorization.header() if ours else None
        answer = sent(value)
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
        return sent(self._authorization.header())

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> bytes:
        with explained():
            answer = self._http.send(method, address, headers=headers, data=form)
            if answer.status_code != 200:
                raise http.failure_of(answer)
        return http.small_body(answer)


class _Listed(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Listed] = []


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn HttpFailure into FailedRequest, which says what it means for a registry."""
    try:
        yield
    except HttpFailure as failure:
        if failure.kind is not Kind.STATUS:
            message = str(failure)
            raise FailedRequest(_KINDS.get(failure.kind), message, kind=failure.kind) from failure
        try:
            listed = msgspec.json.decode(failure.content, type=_Errors).errors
        except (msgspec.DecodeError, RecursionError, ValueError):
            listed = []
        first = listed[0] if listed else _Listed()
        fault = _FAULTS.get(failure.status)
        text = failure.content.decode("utf-8", "replace")
        if fault is INTERNAL and any(mark in text for mark in _NO_SPACE):
            fault = FULL
        message = " ".join(f"{failure.status} {first.code} {first.message}".split())[:300]
        raise FailedRequest(fault, message, failure.status, first.code, failure.pause_s) from failure
