"""A version is affected as the rules of OSV say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from validator.audit.affected import fixed_in, is_affected
from validator.audit.osv import Affected, Entry
from validator.audit.severity import Rating, base_score, rating

from .databases import NINE_POINT_EIGHT, affected, events


def described(*ranges: dict[str, Any], versions: tuple[str, ...] = ()) -> Affected:
    return msgspec.convert(affected("x", *ranges, versions=versions), Affected)


FROM_THE_START = events(("introduced", "0"), ("fixed", "2.0"))
TWICE = events(("introduced", "1.0"), ("fixed", "1.5"), ("introduced", "2.0"), ("fixed", "2.5"))
UNSORTED = events(("fixed", "2.5"), ("introduced", "2.0"), ("introduced", "1.0"), ("fixed", "1.5"))
LAST = events(("introduced", "1.0"), ("last_affected", "1.4"))
LIMITED = events(("introduced", "1.0"), ("limit", "1.3"))
NEVER_FIXED = events(("introduced", "1.0"), ("limit", "*"))
AT_ONCE = events(("introduced", "0"), ("fixed", "0"))


@pytest.mark.parametrize(
    ("one", "version", "expected"),
    [
        (FROM_THE_START, "0.0.1", True),
        (FROM_THE_START, "2.0rc1", True),
        (FROM_THE_START, "2.0", False),
        (FROM_THE_START, "2.0.post1", False),
        (FROM_THE_START, "1.10", True),
        (TWICE, "0.9", False),
        (TWICE, "1.0", True),
        (TWICE, "1.5", False),
        (TWICE, "1.9", False),
        (TWICE, "2.0.0", True),
        (TWICE, "2.5", False),
        (UNSORTED, "1.9", False),
        (UNSORTED, "2.4", True),
        (LAST, "1.4.0", True),
        (LAST, "1.4.1", False),
        (LIMITED, "1.2", True),
        (LIMITED, "1.3", False),
        (NEVER_FIXED, "99", True),
        (AT_ONCE, "1.0", False),
        (events(("introduced", "1.0"), kind="GIT"), "1.0", False),
    ],
)
def test_events_begin_and_end_what_is_affected(one: dict[str, Any], version: str, expected: bool) -> None:
    assert is_affected(version, described(one), "PyPI") is expected


def test_listed_versions_are_affected_whatever_the_ranges_say() -> None:
    one = described(FROM_THE_START, versions=("3.0", "not a version"))
    assert is_affected("3.0", one, "PyPI")
    assert is_affected("3.0.0", one, "PyPI"), "it is the same version"
    assert not is_affected("3.1", one, "PyPI")


def test_debian_versions_are_ordered_as_dpkg_orders_them() -> None:
    one = described(events(("introduced", "0"), ("fixed", "1:2.36-9+deb12u10")))
    assert is_affected("1:2.36-9+deb12u9", one, "Debian:12")
    assert is_affected("9.0-1", one, "Debian:12"), "its epoch is older"
    assert not is_affected("1:2.36-9+deb12u10+b1", one, "Debian:12")
    assert is_affected("1:2.36-9+deb12u10~bpo1", one, "Debian:12")


def test_a_version_that_cannot_be_compared_is_never_taken_for_a_safe_one() -> None:
    for event in (("introduced", "r1234"), ("fixed", "<end-of-life>"), ("limit", "x y")):
        with pytest.raises(ValueError, match="version"):
            is_affected("1.0-1", described(events(("introduced", "0"), event)), "Debian:12")


@pytest.mark.parametrize(
    ("one", "version", "expected"),
    [
        (FROM_THE_START, "1.0", "2.0"),
        (TWICE, "1.0", "1.5"),
        (TWICE, "2.1", "2.5"),
        (LAST, "1.2", None),
        (events(("introduced", "1.0")), "1.0", None),
    ],
)
def test_the_fix_is_the_next_one(one: dict[str, Any], version: str, expected: str | None) -> None:
    assert fixed_in(version, described(one), "PyPI") == expected


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:N/I:N/A:H/E:P", 5.9),
        ("CVSS:3.1/AV:P/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N", 1.6),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:3.1/AV:N/AC:L", None),
        ("CVSS:3.1/AV:X/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", None),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("9.8", None),
        ("", None),
    ],
)
def test_the_base_score_is_that_of_the_specification(vector: str, score: float | None) -> None:
    assert base_score(vector) == score


@pytest.mark.parametrize(
    ("entry", "one", "expected"),
    [
        ({}, {}, Rating.UNKNOWN),
        ({"severity": [NINE_POINT_EIGHT]}, {}, Rating.CRITICAL),
        ({"severity": [NINE_POINT_EIGHT], "database_specific": {"severity": "MODERATE"}}, {}, Rating.MEDIUM),
        ({}, {"ecosystem_specific": {"urgency": "low**"}}, Rating.LOW),
        ({}, {"ecosystem_specific": {"urgency": "not yet assigned"}}, Rating.UNKNOWN),
        ({"database_specific": {"severity": ["x"]}}, {}, Rating.UNKNOWN),
        ({"severity": [{"type": "CVSS_V4", "score": "CVSS:4.0/AV:N"}]}, {}, Rating.UNKNOWN),
    ],
)
def test_the_rating_is_that_of_the_database_or_of_the_score(
    entry: dict[str, Any], one: dict[str, Any], expected: Rating
) -> None:
    made = msgspec.convert({"id": "x", "modified": "2026-01-01", **entry}, Entry)
    assert rating(made, msgspec.convert(one, Affected)) is expected
