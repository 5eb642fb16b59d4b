"""The host side reads captured reports, and the reference describes their content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.checks import fields_of_evidence
from docs.fields import fields
from validator.model.report import (
    CheckOutcome,
    CheckResult,
    Cpu,
    CudaDriver,
    Environment,
    Host,
    Logs,
    Nvml,
    Probe,
    Report,
    read_report,
)
from validator.model.verdict import REQUIRED_CHECKS
from validator.probe.check import END, HOST, OWN, TENSORFLOW
from validator.probe.checks import CHECKS
from validator.probe.cli import collect, report
from validator.probe.stages import Progress, Stage
from validator.problems import CATALOGUE

from ..corpus.reader import REPORTS
from . import passing

ROOT = Path(__file__).parents[2]
CAPTURED = sorted(REPORTS.glob("*.json"))
REFERENCE = (ROOT / "docs" / "reference" / "report.md").read_text(encoding="utf-8")
#: What any check may have besides its own evidence, if it did not end as it should.
ENDS = {"traceback", "signal", "status", "last_lines"}


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_a_captured_report_is_read(path: Path) -> None:
    captured = read_report(path.read_text(encoding="utf-8"))
    depths = ("quick", "full") if path.stem.endswith("-full") else ("quick",)
    ran = [check.id for check in captured.checks]
    # A check that was added after the report was captured is not in it.
    assert ran == [check.id for check in CHECKS if check.depth in depths and check.id in ran]
    assert {check.id for check in captured.checks if check.required} <= set(REQUIRED_CHECKS)
    assert captured.probe.version.startswith("2.")
    assert re.search(r"/home/|/root/", path.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize(
    "path", [path for path in CAPTURED if path.stem.startswith("no-gpu")], ids=lambda p: p.stem
)
def test_no_check_that_needs_a_gpu_passed_without_one(path: Path) -> None:
    captured = read_report(path.read_text(encoding="utf-8"))
    outcomes = {check.id: check.outcome for check in captured.checks}
    for name in ("driver", "gpu_device_nodes", "gpu_visible", "gpu_compute"):
        assert outcomes[name] is CheckOutcome.SKIP


PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "quoted": str,
    "integer": int,
    "number": (int, float),
    "flag": bool,
    "texts": list,
    "object": dict,
    "objects": list,
}


def misfits(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the differences of a problem or statement from the catalogue.

    A code of an older probe may have had more fields; the sentence can be made all the same.
    """
    kind = CATALOGUE[entry["code"]]
    if not entry.keys() - {"code", "severity"} >= kind.fields.keys():
        yield f"{entry['code']} has the fields {sorted(entry)}"
    for name, type_ in kind.fields.items():
        value = entry.get(name)
        if value is None and type_.endswith("?"):
            continue
        if not isinstance(value, PYTHON_TYPES[type_.rstrip("?")]):
            yield f"{entry['code']}.{name} is {value!r}, not {type_}"


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_every_code_of_a_captured_report_has_the_fields_of_the_catalogue(path: Path) -> None:
    checks = json.loads(path.read_text(encoding="utf-8"))["checks"]
    entries = [entry for check in checks for entry in [check["statement"], *check["problems"]] if entry]
    assert len(entries) >= len(checks)
    assert [misfit for entry in entries for misfit in misfits(entry)] == []
    assert all((check["statement"] is None) == (check["outcome"] == "fail") for check in checks)


def test_the_captured_faults_are_there() -> None:
    failed = {
        path.stem.removeprefix("no-gpu-tf2.21.0-cuda12.5-"): sorted(
            check["id"] for check in json.loads(path.read_text())["checks"] if check["outcome"] == "fail"
        )
        for path in CAPTURED
        if path.stem.startswith("no-gpu-tf2.21.0-cuda12.5-")
    }
    assert failed == {
        "cudnn9.3-py311": [],
        "cudnn9.3-py311-full": [],
        "cudnn9.3-py311-library-path-unset": ["cuda_libraries"],
        "cudnn8.9-py311": ["cuda_libraries", "cudnn_load"],
    }


def test_the_reference_describes_every_check_correctly() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| (\d+) s \| (yes|no) \| (\w+) \|", REFERENCE, re.MULTILINE
    )
    expected = [
        (
            check.id,
            check.stage,
            ", ".join(f"`{need}`" for need in check.requires) or "nothing",
            f"{check.limit_s:g}",
            "yes" if check.required else "no",
            check.depth,
        )
        for check in CHECKS
    ]
    assert rows == expected


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_every_field_of_captured_evidence_is_described(path: Path) -> None:
    described = fields_of_evidence()
    for check in json.loads(path.read_text(encoding="utf-8"))["checks"]:
        assert check["evidence"].keys() - ENDS <= described[check["id"]].keys(), check["id"]


def test_the_evidence_of_every_check_is_described() -> None:
    assert sorted(fields_of_evidence()) == sorted(check.id for check in CHECKS)


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_a_captured_report_has_the_fields_of_the_reference(path: Path) -> None:
    """The tables of the reference are made from these types. An older probe may lack some fields."""
    document = json.loads(path.read_text(encoding="utf-8"))
    host = document["host"]
    for found, kind in (
        (document, Report),
        (document["probe"], Probe),
        (document["logs"], Logs),
        (document["environment"], Environment),
        (host["cpu"], Cpu),
        (host["driver_libraries"]["nvml"], Nvml),
        (host["driver_libraries"]["cuda"], CudaDriver),
        *((check, CheckResult) for check in document["checks"]),
    ):
        assert found.keys() <= fields(kind).keys(), kind.__name__
    assert host.keys() == fields(Host).keys()
    assert document["checks"][0].keys() == fields(CheckResult).keys()


@pytest.mark.slow
def test_the_current_probe_writes_the_fields_of_the_reference() -> None:
    stages = [Stage(name, [], Progress(print)) for name in (HOST, TENSORFLOW, OWN, END)]
    document = report([], stages, collect(1800.0), "2026-11-24T01:00:00Z", "2026-11-24T01:00:09Z", 9.0, None)
    assert document.keys() == fields(Report).keys()
    assert document["logs"].keys() == fields(Logs).keys()
    assert document["host"].keys() == fields(Host).keys()
    assert document["environment"].keys() == fields(Environment).keys()


@pytest.mark.parametrize("check", passing.CHECKS)
def test_evidence_that_only_a_gpu_gives_is_described(check: str) -> None:
    assert passing.evidence(check).keys() <= fields_of_evidence()[check].keys()
    assert f"\n### `{check}`\n" in REFERENCE
