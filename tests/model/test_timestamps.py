"""Moments are read by one rule: without an offset they are UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from validator.errors import InputError
from validator.model.codec import format_timestamp, parse_time, parse_timestamp

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", START),
        ("2026-11-01T06:30", START + timedelta(hours=6.5)),
        ("2026-11-01T06:30:00Z", START + timedelta(hours=6.5)),
        ("2026-11-01T06:30+02:00", START + timedelta(hours=4.5)),
        ("7d", NOW - timedelta(days=7)),
        ("36h", NOW - timedelta(hours=36)),
        ("2w", NOW - timedelta(days=14)),
        ("0d", NOW),
    ],
)
def test_times_as_people_write_them(text: str, expected: datetime) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "7", "7 d", "-7d", "7dd", "2026-13-01", "999999w", "0001-01-01T00:00+14:00", "²d"],
)
def test_anything_but_a_time_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="not a time"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-01T06:30:00",
        "2026-11-01T06:30:00Z",
        "2026-11-01T06:30+00:00",
        "2026-11-01T08:30:00+02:00",
    ],
)
def test_a_timestamp_without_an_offset_is_utc(text: str) -> None:
    found = parse_timestamp(text)
    assert found == START + timedelta(hours=6.5)
    assert found.tzinfo is timezone.utc


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01T00:00:00Z", "0001-01-01T00:00+14:00", "7d"])
def test_only_iso_8601_is_a_timestamp(text: str) -> None:
    assert parse_timestamp(text) is None


def test_a_timestamp_is_written_in_utc() -> None:
    when = datetime(2026, 11, 1, 8, 30, 0, 123456, timezone(timedelta(hours=2)))
    assert format_timestamp(when) == "2026-11-01T06:30:00+00:00"
    assert format_timestamp(when, "milliseconds") == "2026-11-01T06:30:00.123+00:00"
