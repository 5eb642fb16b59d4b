"""Read and write times as ISO 8601, in records, in certificates and in people's input.

One rule for all of them: a time without an offset is UTC.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ..errors import InputError

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
