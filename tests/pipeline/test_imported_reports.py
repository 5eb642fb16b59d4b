from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.errors import InputError
from validator.model.record import Origin, Verdict, read_record
from validator.model.report import ReportError, read_report, report_of
from validator.pipeline.measuring import image_of, record_of_report

from ..corpus.reader import REPORTS
from .fakes import H100, report


def test_an_imported_report_is_never_certified_whatever_it_says() -> None:
    record = record_of_report(read_report(report(H100)))
    assert (record.verdict, record.origin) == (Verdict.UNPROVEN, Origin.ELSEWHERE)
    assert "imported report" in record.reason
    assert record.image_digest is None


@pytest.mark.parametrize("tensorflow", [None, "", "missing"])
def test_a_report_of_a_python_without_tensorflow_is_no_measurement(tensorflow: str | None) -> None:
    document = json.loads(report(H100))
    document["environment"]["tensorflow"] = tensorflow
    if tensorflow == "missing":
        del document["environment"]["tensorflow"]
    with pytest.raises(InputError, match="comes from a Python without TensorFlow") as caught:
        record_of_report(report_of(document))
    assert "probe.pyz" in (caught.value.hint or "")


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.json")), ids=lambda path: path.stem)
def test_captured_reports_become_records(path: Path) -> None:
    record = record_of_report(read_report(path.read_bytes()))
    assert record.facts.gpus or record.cell.endswith("@no-gpu")
    assert record.verdict in (Verdict.UNPROVEN, Verdict.FAILED)
    assert read_record(json.dumps(record.document())) == record


def test_versions_are_those_that_the_probe_found() -> None:
    path = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"
    found = record_of_report(read_report(path.read_bytes())).versions
    assert {key: found[key] for key in ("tensorflow", "cuda", "cudnn")} == {
        "tensorflow": "2.21.0",
        "cuda": "12.5",
        "cudnn": "9.3.0",
    }


@pytest.mark.parametrize("shape", ["text", ["text"], 7, {"version": None}])
def test_evidence_of_another_shape_is_refused_with_its_place(shape: object) -> None:
    document = json.loads(report())
    for check in document["checks"]:
        check["evidence"] |= {"library": shape, "libraries": shape}
    with pytest.raises(ReportError, match=r"checks\[\d+\]\.evidence\.librar\w+.*: expected"):
        report_of(document)


def test_the_image_is_named_after_what_is_installed() -> None:
    document = json.loads(report())
    document["environment"] |= {
        "packages": {
            "tensorflow": "2.21.0",
            "nvidia-cuda-runtime-cu12": "12.9.79",
            "nvidia-cudnn-cu12": "9.28.0.42",
        }
    }
    assert image_of(report_of(document)) == "tf2.21.0-cuda12.9-cudnn9.28-py311"
    document["environment"]["packages"] = {"tensorflow-cpu": "2.21.0"}
    assert image_of(report_of(document)) == "tf2.21.0-cpu-py311"
