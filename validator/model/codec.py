"""Reads and writes the project's JSON documents: reports, records and certificates.

Every document that may come from another machine is parsed here, under the same limits, and turned into typed
values by msgspec. The JSON is parsed by the standard library: reports quote environment variables and paths
that are not valid UTF-8, and msgspec's own parser rejects the lone surrogates that stand for such bytes.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import msgspec

from ..errors import InputError

# Read and write times as ISO 8601, in records, in certificates and in people's input.
#
# One rule for all of them: a time without an offset is UTC.

#: How far apart the clocks of the machines that measure, sign and verify may be.
TOLERANCE = timedelta(minutes=10)
#: Earlier than every timestamp; unreadable ones are sorted as if they were this one.
NEVER = datetime.min.replace(tzinfo=timezone.utc)

_AGO = re.compile(r"([0-9]{1,6})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def now_utc() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(timezone.utc)


def format_timestamp(when: datetime, timespec: str = "seconds") -> str:
    """Return `2026-11-01T06:30:00+00:00`."""
    return when.astimezone(timezone.utc).isoformat(timespec=timespec)


def parse_timestamp(text: str) -> datetime | None:
    """Return the moment in UTC, or None for anything but ISO 8601."""
    try:
        # Python 3.10 does not read the Z.
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        if found.tzinfo is None:
            return found.replace(tzinfo=timezone.utc)
        return found.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def parse_time(text: str, now: datetime) -> datetime:
    """Read a time that a person gave.

    text: `2026-11-01` (midnight), `2026-11-01T06:30`, `2026-11-01T06:30+02:00`, or `36h`, `7d`, `2w`
        before `now`. Raises InputError for anything else.
    """
    try:
        ago = _AGO.fullmatch(text)
        found = now - int(ago[1]) * _UNITS[ago[2]] if ago else parse_timestamp(text)
    except OverflowError:
        found = None
    if found is None:
        raise InputError(
            f"{text}: not a time", hint="for example 2026-11-01, 2026-11-01T06:30, 36h, 7d or 2w (ago)"
        )
    return found


#: Bytes of one document. A report with all its logs has less than 1 MiB.
LARGEST = 64 << 20
#: How deep arrays and objects may be nested. A report has less than 10 levels.
DEEPEST = 64
#: Values of one document. A report has less than 10,000, and each takes up to 100 bytes of memory.
MOST_VALUES = 1_000_000

#: The most characters of a number that may fit in 64 bits, with a sign.
_DIGITS = 20
_SMALLEST_INTEGER, _LARGEST_INTEGER = -(1 << 63), (1 << 64) - 1
#: How msgspec ends its messages.
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class DocumentError(ValueError):
    """A document can't be read. The message says where and why."""


def parse(data: bytes | str, *, unique: bool = False) -> Any:
    """Parse JSON of at most `LARGEST` bytes.

    unique: see `parse_unique`. Raises DocumentError for what is not JSON, is nested deeper than `DEEPEST`,
    has more than `MOST_VALUES` values, or holds a number that is not finite or doesn't fit in 64 bits.
    """
    _check_size(data)
    try:
        text = data.decode("utf-8") if unique and isinstance(data, bytes) else data
        document = json.loads(text, parse_int=_integer, object_pairs_hook=_unique if unique else None)
        # An escaped lone surrogate is valid JSON but not valid text, and readers replace it in different
        # ways.
        if unique and "\\u" in str(text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise DocumentError(f"it is nested more than {DEEPEST} levels deep") from None
    except DocumentError:
        raise
    except ValueError as error:
        is_text = not (unique and isinstance(error, UnicodeError))
        raise DocumentError(f"it is not JSON: {error}" if is_text else "it is not text in UTF-8") from None
    check_limits(document)
    return document


def parse_unique(data: bytes) -> Any:
    """Parse JSON in UTF-8 in which no object repeats a key, so that every reader understands it the same way.

    For what is signed. Raises DocumentError, also for what `parse` refuses and for text that is not Unicode.
    """
    return parse(data, unique=True)


def check_limits(document: object) -> None:
    """Raise DocumentError for the depth and the numbers that `parse` refuses."""
    _check({"": document}, ())


def convert(document: object, kind: type[T], where: str = "") -> T:
    """Turn parsed JSON into a typed value. where: its place, for the error. Raises DocumentError."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise DocumentError(_explained(str(error), where)) from None
    except UnicodeEncodeError:
        raise DocumentError(f"{where or 'the document'}: the name of a field is not text") from None


def convert_what_fits(document: Mapping[str, Any], kind: type[S]) -> S:
    """Turn old, unchecked JSON into a struct; leave out values of other types. All fields need defaults."""
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):
        fitting = {}
        for field in msgspec.structs.fields(kind):
            with contextlib.suppress(KeyError, msgspec.ValidationError, UnicodeEncodeError):
                fitting[field.name] = msgspec.convert(document[field.encode_name], field.type)
        return kind(**fitting)


def canonical(document: object) -> bytes:
    """Return JSON for digests and signatures: sorted keys, no spaces, the same for equal documents."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def encode(value: object) -> Any:
    """Turn a struct, a dataclass or a collection of them into values that `json.dumps` accepts."""
    return msgspec.to_builtins(value, enc_hook=_mapping)


def _mapping(value: object) -> object:
    # `dict` alone would also take an iterator, and write an object in its place.
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__} can't be encoded")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DocumentError(f"it has the key {name[:100]!r} twice")
        found[name] = value
    return found


def _check_size(data: bytes | str) -> None:
    """Raise DocumentError for text that would take too much memory to parse."""
    if len(data) > LARGEST:
        raise DocumentError(f"it is larger than {LARGEST >> 20} MiB")
    # Every value follows one of these characters. Those in strings are counted too, but a document of up to
    # 1 MB is never refused.
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(text) > MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise DocumentError(f"it has more than {MOST_VALUES} values")


def _integer(digits: str) -> int | float:
    # Converting millions of digits takes minutes; infinity is refused with its place by `check_limits`.
    return int(digits) if len(digits) <= _DIGITS else math.inf


def _check(container: Any, path: tuple[str | int, ...]) -> None:
    """Check the values in an object or array. Types are compared directly: this runs for every value."""
    if len(path) > DEEPEST:
        raise DocumentError(f"it is nested more than {DEEPEST} levels deep")
    entries: Iterable[tuple[str | int, Any]]
    entries = container.items() if type(container) is dict else enumerate(container)
    for key, entry in entries:
        kind = type(entry)
        if kind is dict or kind is list:
            _check(entry, (*path, key))
        elif (kind is float and not math.isfinite(entry)) or (
            kind is int and not _SMALLEST_INTEGER <= entry <= _LARGEST_INTEGER
        ):
            place = _place((*path, key))
            raise DocumentError(f"{place}: the number is not finite or does not fit in 64 bits")


def _place(path: tuple[str | int, ...]) -> str:
    """Return `checks[0].evidence.loss`; the first part of the path stands for the document."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    return text.lstrip(".") or "the document"


def _explained(message: str, where: str) -> str:
    """Put the place, which msgspec names last, first: `checks[0].required: expected `bool`, got `str``."""
    found = _PLACE.search(message)
    text = message[: found.start()] if found else message
    parts = [where, found[1] if found else ""]
    if missing := _MISSING.fullmatch(text):
        parts.append(missing[1])
        text = "missing"
    place = ".".join(part for part in parts if part).replace(".[", "[")
    return f"{place or 'the document'}: {text[:1].lower()}{text[1:]}"


# The progress of a run of `build-matrix`, in the file that other processes read meanwhile.

#: States of a run. `vanished`: its process ended without saying so. `unknown`: it can't be told from here.
RUNNING, FINISHED, STOPPED, FAILED, VANISHED, UNKNOWN = (
    "running", "finished", "stopped", "failed", "vanished", "unknown",
)  # fmt: skip


class Working(msgspec.Struct, frozen=True):
    """An image that is being worked on. phase: `lock`, `build`, `push`, `pull` or `probe`. since: a time."""

    image: str
    phase: str
    detail: str
    since: str


class Done(msgspec.Struct, frozen=True):
    """The outcome of one image. result: a verdict, or a status such as `unchanged` or `skipped`."""

    image: str
    result: str
    detail: str


class RunProgress(msgspec.Struct, frozen=True):
    """A run of `build-matrix`.

    profile, started, updated: the profile, and times. total: the number of images. run: the directory of the
    process's own lock (`system.runs`); empty if it has none. boot: identifies the machine since it started.
    """

    profile: str
    started: str
    updated: str
    total: int
    finished: int
    state: str
    run: str
    boot: str
    working: tuple[Working, ...] = ()
    done: tuple[Done, ...] = ()
