"""Explain the failures of a registry, also those in the messages of `docker`, with what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import MissingError, ValidatorError


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
