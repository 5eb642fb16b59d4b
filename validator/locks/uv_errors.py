"""Turn the output of a failed uv into an error that says what is wrong: the input, the network or the disk.

The phrases are those of uv 0.8 to 0.13. For an unknown failure, the error has the last lines of the output.
"""

from __future__ import annotations

import re

from ..errors import BuildError, InputError, MissingError, ValidatorError
from ..system.files import says_full_disk

_NETWORK = re.compile(
    r"dns error|error sending request|[Cc]onnection refused|Connection reset|Could not connect"
    r"|client error \(Connect\)|operation timed out|tls handshake|invalid peer certificate"
    r"|Failed to fetch: |Network is unreachable|Network connectivity is disabled"
    r"|HTTP status (?:server|client) error \((?:401|403|407|429|5\d\d)",
)
_CERTIFICATE = re.compile(r"invalid peer certificate|UnknownIssuer|self.signed certificate", re.IGNORECASE)
_PIN = r"[`']?(?P<pin>[A-Za-z0-9._-]+==[A-Za-z0-9.!+_*-]+)"
_NO_HASH = re.compile(rf"Hash mismatch for {_PIN}")
_GONE = (
    re.compile(rf"there is no version of {_PIN}"),
    re.compile(rf"was not found in the package registry and you require {_PIN}"),
)
_NO_WHEEL = re.compile(rf"{_PIN} has no (?:usable )?wheels\b")
_UNSOLVABLE = re.compile(r"No solution found|requirements are unsatisfiable", re.IGNORECASE)


def explain(text: str, what: str, *, timed_out: bool = False) -> ValidatorError:
    """Return the error for what uv wrote to stderr. Never raises.

    what: what was being done, as the beginning of the sentence.
    """
    last = " ".join(line.strip() for line in text.strip().splitlines()[-12:])
    # uv wraps its explanations; one line makes them searchable.
    flat = " ".join(text.split())
    if timed_out:
        return MissingError(f"{what}: uv did not finish in time", hint="try again; the index may be slow")
    if says_full_disk(text):
        return MissingError(f"{what}: no space left on the disk", hint="free some space and run it again")
    if _CERTIFICATE.search(flat):
        return MissingError(
            f"{what}: the index's certificate is not trusted here",
            hint="set SSL_CERT_FILE to the CA bundle of your network",
        )
    if _NETWORK.search(flat):
        return MissingError(
            f"{what}: the package index can't be reached",
            hint="check the index, proxy and CA settings of pip or uv on this machine",
        )
    if match := _NO_HASH.search(flat):
        return InputError(
            f"{what}: the index's file for {match['pin']} has a different hash than the lock",
            hint="resolve again with `python -m validator lock --upgrade`, and find out why the file changed",
        )
    for pattern in _GONE:
        if match := pattern.search(flat):
            return InputError(
                f"{what}: the index does not have {match['pin'].rstrip('.,')}",
                hint="resolve again with `python -m validator lock --upgrade`, or use an index that has it",
            )
    if match := _NO_WHEEL.search(flat):
        return InputError(
            f"{what}: the index has no wheel of {match['pin']} for this Python and platform",
            hint="choose another Python or another release",
        )
    if _UNSOLVABLE.search(flat):
        return InputError(f"{what}: {last}", hint="choose versions that work together")
    return BuildError(f"{what}: {last[-600:] or 'uv failed without a message'}", log=text)
