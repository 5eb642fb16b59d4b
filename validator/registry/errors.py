"""What the messages of `oras`, `cosign` and `docker` about a registry mean, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import MissingError, ValidatorError


class AlteredError(ValidatorError):
    """What came is not what its digest says: it was altered, in the registry or on the way."""


@dataclass(frozen=True)
class Fault:
    """A kind of failure. again: whether trying again may help. altered: content is not its digest's."""

    pattern: re.Pattern[str]
    says: str
    hint: str
    again: bool = False
    altered: bool = False


def _fault(pattern: str, says: str, hint: str, *, again: bool = False, altered: bool = False) -> Fault:
    return Fault(re.compile(pattern, re.IGNORECASE), says, hint, again, altered)


_LOGIN = "log in with `docker login {host}`; for writing, the account needs the right to push"
_LATER = "try again later; nothing was published half-way"
_NETWORK = "check the name, the network and the proxy"

#: In the order to look for them: an answer of the registry says more than the connection that brought it.
FAULTS: tuple[Fault, ...] = (
    _fault(r"\b429\b|too ?many ?requests", "refuses for now: too many requests", _LATER, again=True),
    _fault(
        r"\b507\b|no space left|insufficient storage|disk quota",
        "is full: it can't store what was sent",
        "free space in the registry, then repeat the command",
    ),
    _fault(
        r"\b401\b|unauthorized|authentication required|credential not found|token.*expired|no basic auth",
        "wants a login, or no longer takes the one it was given",
        _LOGIN,
    ),
    _fault(r"\b403\b|forbidden|denied", "does not permit this", _LOGIN),
    _fault(
        # oras names no status beside the registry's own words, and `unknown` is the word for faults.
        r"\b50[0234]\b|internal server error|bad gateway|service unavailable|gateway time-?out"
        r"|response from registry: un(?:known|available)\b",
        "answers with an error of its own",
        _LATER,
        again=True,
    ),
    _fault(r"no such host|server misbehaving", "is not known by that name", _NETWORK),
    _fault(
        r"server gave HTTP response to HTTPS client",
        "speaks plain HTTP, which is taken from this machine alone",
        "put TLS before the registry",
    ),
    _fault(
        r"x509:|certificate (?:signed|is not|has expired)|tls: ",
        "has a TLS certificate that is not trusted here",
        "give the authority's certificate to the system, or mend the registry's",
    ),
    _fault(
        r"digest mismatch|mismatch(?:ed)? digest|does not match|content digest|size mismatch|mismatch size",
        "gave content that is not what its digest says",
        "somebody altered it, in the registry or on the way; do not use it",
        altered=True,
    ),
    _fault(
        r"connection (?:refused|reset)|broken pipe|unexpected EOF|\bEOF\b|i/o timeout|deadline exceeded"
        r"|network is unreachable|no route to host|timed? ?out",
        "can't be reached, or the connection breaks",
        _NETWORK,
        again=True,
    ),
)


def fault_of(message: str) -> Fault | None:
    """The kind of failure that a program's message speaks of."""
    return next((fault for fault in FAULTS if fault.pattern.search(message)), None)


def explain(host: str, message: str, *, what: str) -> ValidatorError:
    """The error for a person.

    what: what was tried, as a sentence's beginning (`2.21.0-… can't be pushed`).
    """
    fault = fault_of(message)
    if fault is None:
        last = [line.strip() for line in message.splitlines() if line.strip()][-1:] or ["it said nothing"]
        return MissingError(f"{what}: {last[0][:300]}")
    kind = AlteredError if fault.altered else MissingError
    return kind(f"{what}: the registry {host} {fault.says}", hint=fault.hint.format(host=host))
