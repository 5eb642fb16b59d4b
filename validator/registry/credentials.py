"""Log in to a registry with Docker's credentials: those of `docker login` and of its credential helpers.

Implements Basic authentication and tokens (https://distribution.github.io/distribution/spec/auth/token/).
Passwords go to the registry and to the token server that it names, and nowhere else; no message has one.
"""

from __future__ import annotations

import base64
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import parse_http_list

import msgspec

from ..errors import MissingError

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
