from __future__ import annotations

from typing import Any

import pytest

from validator.model.report import CheckOutcome, Report, ReportError


def document(**changes: Any) -> dict[str, Any]:
    base = {
        "format": 1,
        "probe": {"version": "1+abc"},
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:00:09Z",
        "host": {"gpus": []},
        "environment": {"python": "3.11.2"},
        "checks": [{"id": "driver", "outcome": "skip", "summary": "no NVIDIA driver here", "required": True}],
    }
    return base | changes


def test_a_report_is_read() -> None:
    report = Report.from_json(document())
    check = report.check("driver")
    assert check is not None
    assert check.outcome is CheckOutcome.SKIP
    assert check.required
    assert report.check("xla_train_step") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "the report has format 2; this version reads format 1"),
        ({"format": None}, "the report has format None"),
        ({"checks": {}}, "checks: expected list, found dict"),
        ({"checks": [1]}, r"checks\[0\]: expected dict, found int"),
        (
            {"checks": [{"id": "a", "outcome": "fine", "summary": ""}]},
            r'checks\[0\].outcome: "fine" is not an outcome',
        ),
        (
            {"checks": [{"id": "a", "outcome": "pass", "summary": "", "required": "yes"}]},
            "expected bool, found str",
        ),
        (
            {"checks": [{"id": "a", "outcome": "pass", "summary": "", "duration_s": "1"}]},
            "expected a number, found str",
        ),
        ({"probe": {}}, "probe.version: expected str, found NoneType"),
        ({"host": None}, "host: expected dict, found NoneType"),
    ],
)
def test_what_is_no_report_is_refused_with_the_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        Report.from_json(document(**changes))


def test_another_type_altogether() -> None:
    with pytest.raises(ReportError, match="the report: expected dict, found list"):
        Report.from_json([])
