"""Turn the output of a failed uv into an error that says what is wrong: the input, the network or the disk.

The phrases are those of uv 0.8 to 0.13. For an unknown failure, the error has the last lines of the output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

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
    re.compile(r"Because (?P<pin>[A-Za-z0-9._-]+) was not found in the package registry"),
)
_NO_WHEEL = re.compile(rf"{_PIN} has no (?:usable )?wheels\b")
_UNSOLVABLE = re.compile(r"No solution found|requirements are unsatisfiable", re.IGNORECASE)


#: The conditions of a requirement, which uv writes into its name.
_CONDITION = re.compile(r"\{[^}]*\}")
#: What uv derives from what it said before.
_DERIVED = re.compile(r"we can conclude that .*?(?=\.\s|\.?$)")
_SPECIFIER = r"(?:\[[^\]]*\])?(?:[=<>!~]=?|===)[^\s;]+"
#: If the index has only one version of a package, uv says `all versions of torch depend on …`.
_SIDE = re.compile(
    r"(?:all versions of (?P<each>[A-Za-z0-9]\S*) depend|(?P<who>[A-Za-z0-9]\S*) depends) on"
    rf" (?P<name>[A-Za-z0-9._-]+)(?P<range>{_SPECIFIER})"
)
_REQUIRED = re.compile(
    rf"(?:you require|and) (?P<name>[A-Za-z0-9._-]+)(?P<range>{_SPECIFIER})(?! depends on)"
)


def explain(text: str, what: str, *, timed_out: bool = False, pinned: Collection[str] = ()) -> ValidatorError:
    """Return the error for what uv wrote to stderr. Never raises.

    what: what was being done, as the beginning of the sentence.
    pinned: the requirements of the image itself, as opposed to those that the user added.
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
    if pinned and (conflict := _conflict(flat, pinned)):
        return InputError(
            f"{what}: {conflict}",
            hint="change or remove one of the two, or choose another TensorFlow, CUDA or cuDNN",
        )
    if _UNSOLVABLE.search(flat):
        return InputError(f"{what}: {last}", hint="choose versions that work together")
    return BuildError(f"{what}: {last[-600:] or 'uv failed without a message'}", log=text)


def _conflict(flat: str, pinned: Collection[str]) -> str | None:
    """Return which two sides want different versions of one package, or None if that can't be told.

    flat: uv's explanation in one line.
    """
    stated = _DERIVED.sub("", _CONDITION.sub("", flat))
    sides: dict[str, dict[str, str]] = {}
    for name, wanted, who in _sides(stated, {line.partition(";")[0].strip() for line in pinned}):
        sides.setdefault(name, {}).setdefault(wanted, who)
    for wants in sides.values():
        if len(wants) > 1:
            (first, one), (second, other) = list(wants.items())[:2]
            return f"{one} {first}, but {other} {second}"
    return None


def _sides(stated: str, pinned: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name of a package, the wanted versions with the name, and who wants them."""
    for match in _SIDE.finditer(stated):
        yield (
            match["name"].lower(),
            match["name"] + match["range"].rstrip(",."),
            f"{match['who'] or match['each']} needs",
        )
    for match in _REQUIRED.finditer(stated):
        wanted = match["name"] + match["range"].rstrip(",.")
        who = "this image pins" if wanted in pinned else "the matrix asks for"
        yield match["name"].lower(), wanted, who
