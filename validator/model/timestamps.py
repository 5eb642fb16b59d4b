"""Moments as records and certificates write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

#: How far the clocks of those who measure, sign and verify may be apart.
TOLERANCE = timedelta(minutes=10)


def moment(text: str) -> datetime | None:
    """Of ISO 8601 with a zone; None for anything else."""
    try:
        # Python 3.10 does not read the letter.
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def now_utc() -> datetime:
    return datetime.now(timezone.utc)


def stamp(when: datetime) -> str:
    return when.astimezone(timezone.utc).isoformat(timespec="seconds")
