"""Test the JUnit XML: valid whatever the report contains, and counted as CI systems count."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.model.codec import encode
from validator.model.report import Report, report_of
from validator.reports.overview import junit

from ..certify.fixtures import LIMIT
from ..corpus.reader import REPORTS
from ..support import said

OUTCOMES = ("pass", "fail", "skip", "error", "timeout", "crash")


def report(*checks: dict[str, Any]) -> Report:
    return report_of(
        {
            "format": 2,
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
        **said(summary, outcome),
        "evidence": {"seen": summary},
        "duration_s": 0.25,
    }


def parsed(text: str) -> ElementTree.Element:
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    return ElementTree.fromstring(text)


def test_the_uuid_of_a_gpu_is_left_out() -> None:
    uuid = "GPU-1b2c3d4e-aaaa-bbbb-cccc-1234567890ab"
    text = junit(report(check("driver", "fail", summary=f"device {uuid} is lost")))
    assert uuid not in text and "device (GPU UUID) is lost" in text


def test_outcomes_are_counted_as_ci_systems_count_them() -> None:
    root = parsed(junit(report(*(check(outcome, outcome) for outcome in OUTCOMES))))
    [suite] = root
    for counted in (root, suite):
        assert [counted.attrib[name] for name in ("tests", "failures", "errors")] == ["6", "3", "1"]
    assert suite.attrib["skipped"] == "1"
    elements = {case.attrib["name"]: [child.tag for child in case][:-1] for case in root.iter("testcase")}
    assert elements == {
        "pass": [],
        "fail": ["failure"],
        "skip": ["skipped"],
        "error": ["error"],
        "timeout": ["failure"],
        "crash": ["failure"],
    }


def test_a_stage_is_a_suite_with_its_time_and_properties() -> None:
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


#: What the schema of Jenkins' xUnit plugin (junit-10.xsd) allows, as far as it is used: for each element its
#: attributes, those it must have, and its children in their order.
SCHEMA: dict[str, tuple[set[str], set[str], tuple[str, ...]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "disabled", "errors"}, set(), ("testsuite",)),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
        {"name", "tests"},
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, {"name", "value"}, ()),
    "testcase": (
        {"name", "classname", "time", "status", "assertions", "file", "line"},
        {"name", "classname"},
        ("skipped", "error", "failure", "system-out", "system-err"),
    ),
    "skipped": ({"message", "type"}, set(), ()),
    "error": ({"message", "type"}, set(), ()),
    "failure": ({"message", "type"}, set(), ()),
    "system-out": (set(), set(), ()),
}


def test_a_limit_is_a_property_of_its_suite() -> None:
    passed = check("xla_convolution", "pass", "tensorflow")
    found = parsed(junit(report(passed))).find(".//property[@name='limit']")
    assert found is None
    passed |= {"statement": None, "problems": [{"severity": "limit", **encode(LIMIT)}]}
    limited = report_of(report().raw | {"checks": [passed]})
    (found,) = parsed(junit(limited)).findall(".//property[@name='limit']")
    assert found.get("value") == LIMIT.sentence
    assert_valid(parsed(junit(limited)))


def assert_valid(element: ElementTree.Element) -> None:
    allowed, needed, children = SCHEMA[element.tag]
    assert needed <= set(element.attrib) <= allowed, element.attrib
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places)
    for name in ("tests", "failures", "errors", "skipped"):
        assert element.attrib.get(name, "0").isdecimal()
    if "time" in element.attrib:
        assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
    if "timestamp" in element.attrib:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
    for child in element:
        assert_valid(child)


@given(st.text(st.characters()), st.sampled_from(OUTCOMES))
def test_the_document_is_valid_whatever_the_report_contains(text: str, outcome: str) -> None:
    root = parsed(junit(report(check("driver", outcome, text, text), check(text, outcome))))
    assert_valid(root)
    if outcome == "fail" and text and text.isprintable():
        assert text in [failure.attrib["message"] for failure in root.iter("failure")]


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_captured_report_has_a_case_for_every_check(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    root = parsed(junit(report_of(document)))
    assert_valid(root)
    assert [case.attrib["name"] for case in root.iter("testcase")] == [
        entry["id"]
        for stage in ("host", "tensorflow", "own", "end")
        for entry in document["checks"]
        if entry["stage"] == stage
    ]
