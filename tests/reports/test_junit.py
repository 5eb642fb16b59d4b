"""A report as JUnit XML: well-formed whatever stands in it, and counted as CI systems count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.model.report import Report
from validator.reports.junit import junit

REPORTS = sorted((Path(__file__).parents[1] / "data" / "reports").glob("*.json"))
OUTCOMES = ("pass", "fail", "skip", "error", "timeout", "crash")


def report(*checks: dict[str, Any]) -> Report:
    return Report.from_json(
        {
            "format": 1,
            "probe": {"version": "1.0.0+0"},
            "started": "2026-11-21T08:00:00Z",
            "finished": "2026-11-21T08:00:09Z",
            "host": {"gpus": [{"name": "NVIDIA H100"}], "driver": "535.183.01"},
            "environment": {"tensorflow": "2.18.0", "python": "3.11.7"},
            "checks": list(checks),
        }
    )


def check(identifier: str, outcome: str, stage: str = "host", summary: str = "so it is") -> dict[str, Any]:
    return {
        "id": identifier,
        "stage": stage,
        "outcome": outcome,
        "summary": summary,
        "evidence": {"seen": summary},
        "duration_s": 0.25,
    }


def parsed(text: str) -> ElementTree.Element:
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    return ElementTree.fromstring(text)


def test_each_outcome_is_counted_as_ci_systems_count_it() -> None:
    root = parsed(junit(report(*(check(outcome, outcome) for outcome in OUTCOMES))))
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == (
        "6", "3", "1", "1",
    )  # fmt: skip
    elements = {case.attrib["name"]: [child.tag for child in case][:-1] for case in root.iter("testcase")}
    assert elements == {
        "pass": [],
        "fail": ["failure"],
        "skip": ["skipped"],
        "error": ["error"],
        "timeout": ["failure"],
        "crash": ["failure"],
    }


def test_a_stage_is_a_suite_with_its_time_and_what_was_measured() -> None:
    root = parsed(
        junit(report(check("driver", "pass"), check("gpu_visible", "fail", "tensorflow", "sees none")))
    )
    suites = list(root)
    assert [suite.attrib["name"] for suite in suites] == ["host", "tensorflow"]
    assert suites[0].attrib["timestamp"] == "2026-11-21T08:00:00"
    properties = {entry.attrib["name"]: entry.attrib["value"] for entry in suites[0].iter("property")}
    assert properties == {
        "probe": "1.0.0+0", "tensorflow": "2.18.0", "python": "3.11.7", "driver": "535.183.01",
        "gpus": "NVIDIA H100",
    }  # fmt: skip
    case = suites[1].find("testcase")
    assert case is not None and case.attrib["time"] == "0.250"
    failure, output = case.find("failure"), case.find("system-out")
    assert failure is not None and failure.attrib == {"message": "sees none", "type": "fail"}
    assert output is not None and output.text is not None and '"seen": "sees none"' in output.text


@given(st.text())
def test_whatever_a_report_says_the_document_is_well_formed(text: str) -> None:
    root = parsed(junit(report(check("driver", "fail", summary=text))))
    failure = next(root.iter("failure"))
    if text.isprintable():
        assert failure.attrib["message"] == text


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_captured_report_has_a_case_for_every_check(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    root = parsed(junit(Report.from_json(document)))
    assert [case.attrib["name"] for case in root.iter("testcase")] == [
        entry["id"]
        for stage in ("host", "tensorflow")
        for entry in document["checks"]
        if entry["stage"] == stage
    ]
