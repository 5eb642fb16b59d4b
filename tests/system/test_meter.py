"""The progress of a transfer."""

from __future__ import annotations

import pytest

from validator.system.pools import Meter


@pytest.mark.parametrize(
    ("total", "skipped", "added", "seconds", "text"),
    [
        (2_600_000_000, 0, 1_200_000_000, 12.0, "sending: 1.20 of 2.60 GB, 100 MB/s, 14 s left"),
        (2_600_000_000, 1_000_000_000, 200_000_000, 20.0, "sending: 1.20 of 2.60 GB, 10 MB/s, 2 min left"),
        (None, 0, 1_200_000_000, 12.0, "sending: 1.20 GB, 100 MB/s"),
        (2_600_000_000, 1_000_000_000, 0, 1.0, "sending: 1.00 of 2.60 GB"),
        # The index was wrong about a size.
        (1_000_000_000, 0, 1_200_000_000, 12.0, "sending: 1.20 GB, 100 MB/s"),
    ],
)
def test_the_report_has_amount_rate_and_time_left(
    total: int | None, skipped: int, added: int, seconds: float, text: str
) -> None:
    meter = Meter("sending", total, lambda report: None)
    meter.skip(skipped)
    meter.add(added)
    assert meter.text(seconds) == text


def test_reports_are_few() -> None:
    reports: list[str] = []
    meter = Meter("sending", 1000, reports.append)
    for _ in range(1000):
        meter.add(1)
    assert 1 <= len(reports) < 10
