"""Send requests to one registry: logins, certificates, proxies, redirections, retries and clear errors.

For what `oras` can't do: sending and reading large blobs as streams. See `client` for everything else.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import os
import ssl
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
from requests.utils import get_environ_proxies

from ..errors import MissingError, ValidatorError
from ..system import processes
from .credentials import Authorization
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
    Fault,
)
from .names import Repository

#: Seconds to connect, and without a byte. Committing a large blob takes a registry a while.
_TIMEOUT_S = (15.0, 300.0)
#: Seconds before each retry, unless the registry asks for more.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: A registry that asks for more seconds than this is not waited for.
_LONGEST_PAUSE_S = 120.0
_POLL_S = 0.2
_REDIRECTED = (301, 302, 303, 307, 308)
_MOST_REDIRECTIONS = 5
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
    such as `BLOB_UPLOAD_UNKNOWN`. pause_s: the seconds that the registry asks to wait.
    """

    def __init__(
        self, fault: Fault | None, message: str, status: int = 0, code: str = "", pause_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.fault, self.status, self.code, self.pause_s = fault, status, code, pause_s

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

    host, what: for the error when there are no attempts left.
    """

    def __init__(self, host: str, what: str) -> None:
        self._host, self._what = host, what
        self._pauses = list(PAUSES)

    def wait(self, failure: FailedRequest) -> None:
        """Wait before the next attempt. Raises MissingError if another one can't help."""
        if not failure.is_temporary or not self._pauses:
            raise failure.error(self._host, self._what) from failure
        deadline = time.monotonic() + max(self._pauses.pop(0), failure.pause_s)
        while (left := deadline - time.monotonic()) > 0:
            processes.check_stopping()
            time.sleep(min(left, _POLL_S))

    def progressed(self) -> None:
        """Begin to count again, because the last attempt came further."""
        self._pauses = list(PAUSES)


class Session:
    """Connections to the registry of a repository. Usable from several threads.

    push: ask for permission to write. also: repositories of the same registry to read from.
    accepts_streams: False once the registry refused a body without a length.
    """

    def __init__(self, repository: Repository, *, push: bool, also: Sequence[Repository] = ()) -> None:
        self.repository = repository
        self.accepts_streams = True
        self.host = repository.host
        plain = repository.is_loopback
        self._base = f"{'http' if plain else 'https'}://{_API_HOSTS.get(self.host, self.host)}"
        scopes = [f"repository:{repository.path}:{'pull,push' if push else 'pull'}"]
        scopes += [f"repository:{other.path}:pull" for other in also]
        self._authorization = Authorization(self.host, scopes, self._ask, plain_http=plain)
        self._http = requests.Session()
        # Without this, requests would take logins from ~/.netrc and replace ours with them.
        self._http.trust_env = False
        self._http.headers["User-Agent"] = "tensorflow-gpu-matrix"
        if bundle := _ca_bundle():
            self._http.verify = str(bundle)

    def request(
        self,
        method: str,
        address: str,
        *,
        what: str,
        expect: Collection[int],
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> requests.Response:
        """Send a request that may be repeated, and return the response if its status is one of `expect`.

        what: the failed action, which begins the message of every error. Raises MissingError.
        """
        retries = Retries(self.host, what)
        while True:
            try:
                return self.send(method, address, expect=expect, headers=headers, data=data)
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
    ) -> requests.Response:
        """Send a request once. Raises FailedRequest if there is no response, or its status is not expected.

        address: absolute, or relative to the registry. data: bytes, or an iterable, sent as it comes.
        If it has no length, then neither has the request.
        """
        address = self.absolute(address)
        for _ in range(_MOST_REDIRECTIONS):
            answer = self._authorized(method, address, headers or {}, data, stream)
            if answer.status_code not in _REDIRECTED or method not in ("GET", "HEAD"):
                break
            address = urljoin(address, answer.headers.get("Location", ""))
            answer.close()
            self._refuse_unsafe(address)
        if answer.status_code not in expect:
            raise _failure(answer)
        return answer

    def forget(self, location: str) -> None:
        """Tell the registry that an unfinished upload is given up. It would forget it later without this."""
        with contextlib.suppress(FailedRequest, ValidatorError):
            self.send("DELETE", location, expect=(202, 204, 404))

    def absolute(self, address: str) -> str:
        """Return an address that may be relative to the registry, as in the header `Location`."""
        return urljoin(f"{self._base}/", address)

    def _authorized(
        self, method: str, address: str, headers: Mapping[str, str], data: Any, stream: bool
    ) -> requests.Response:
        # A login is only for the registry. Blobs are often redirected to a server of another owner.
        ours = _origin(address) == _origin(self._base)
        value = self._authorization.header() if ours else None
        answer = self._raw(method, address, _with(headers, value), data, stream)
        if answer.status_code != 401 or not ours:
            return answer
        challenge = answer.headers.get("WWW-Authenticate", "")
        if not self._authorization.answer(challenge, value):
            return answer
        answer.close()
        if not isinstance(data, bytes | None):
            raise FailedRequest(replace(UNAUTHORIZED, temporary=True), "the token expired", 401)
        return self._raw(method, address, _with(headers, self._authorization.header()), data, stream)

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> requests.Response:
        answer = self._raw(method, address, headers, form, False)
        if answer.status_code != 200:
            raise _failure(answer)
        return answer

    def _raw(
        self, method: str, address: str, headers: Mapping[str, str], data: Any, stream: bool
    ) -> requests.Response:
        # As other clients do, nothing on this machine is reached through a proxy.
        proxies = {} if self.repository.is_loopback else get_environ_proxies(address)
        try:
            return self._http.request(
                method,
                address,
                headers={"Accept-Encoding": "identity", **headers},
                data=data,
                stream=stream,
                proxies=proxies,
                timeout=_TIMEOUT_S,
                allow_redirects=False,
            )
        except (requests.RequestException, OSError) as error:
            raise lost(error) from error

    def _refuse_unsafe(self, address: str) -> None:
        if urlsplit(address).scheme != "https" and not self.repository.is_loopback:
            raise MissingError(
                f"the registry {self.host} redirects to a server without TLS",
                hint="tell the registry's operator; nothing was sent to it",
            )


def lost(error: Exception) -> FailedRequest:
    """Return the failure of a connection."""
    text = str(error)
    fault = LOST
    if isinstance(error, requests.exceptions.SSLError):
        fault = UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in text or "match" in text else NO_TLS
    elif "Failed to resolve" in text or "Name or service not known" in text:
        fault = UNKNOWN_HOST
    return FailedRequest(fault, type(error).__name__)


class _Listed(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Listed] = []


def _failure(answer: requests.Response) -> FailedRequest:
    """Return the failure that a response is about, and end the response."""
    status = answer.status_code
    try:
        content = answer.content[: 64 << 10]
    except requests.RequestException:
        content = b""
    finally:
        answer.close()
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
