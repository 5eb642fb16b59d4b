"""Records that version 0.1 wrote, with reports of format 1, keep their ids, their text and their meaning."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from validator.model.record import Verdict, read_record
from validator.model.verdict import judge
from validator.records import jsonl
from validator.records.store import Store

from ..certify.measuring import outside_of

#: Four imported reports, two fixtures of a certified image (one with odd evidence and fields), one that did
#: not build; written by `records.jsonl.write` of version 0.1.
OLD = Path(__file__).with_name("records_of_format_1.jsonl.gz")
IDS = [
    "179259545e0239ffffdf417b4f97a80f",
    "ec931e95d9e06bc2e0fd30ccae6dd0b0",
    "376e27dbb03224ca3c95cc13eb481612",
    "e286f747d6ef0c5dd3fa23fc0453a1f5",
    "37f9063805bd287b6c44a484af1a4913",
    "a3eaf2f5a97409705fe47bd360db0d8b",
    "40ba44e6ea5ce3ed43868d7fac982661",
]
LINES = gzip.decompress(OLD.read_bytes()).splitlines()


def test_they_keep_their_ids_and_every_byte() -> None:
    for line, expected in zip(LINES, IDS, strict=True):
        record = read_record(line)
        assert record.id == expected
        assert json.dumps(record.document(), sort_keys=True, separators=(",", ":")).encode() == line


def test_a_store_keeps_them_under_their_ids(tmp_path: Path) -> None:
    records = list(jsonl.read_file(OLD))
    with Store(str(tmp_path / "records.db")) as store:
        assert store.add_all(records) == len(IDS)
        assert {identifier: store.get(identifier) for identifier in IDS} == dict(
            zip(IDS, records, strict=True)
        )


def test_their_sentences_are_the_stored_ones() -> None:
    for line in LINES:
        stored = [check["summary"] for check in json.loads(line)["checks"]]
        record = read_record(line)
        assert [check.sentence for check in record.results] == stored
        report = record.read_report()
        assert report is None or [check.sentence for check in report.checks] == stored


def test_their_reports_are_read_and_certify_no_more() -> None:
    """Their probe did not ask for everything that is required today."""
    for record in map(read_record, LINES):
        report = record.read_report()
        if record.verdict is Verdict.CERTIFIED:
            assert report is not None
            judgement = judge(report, record.origin, outside_of(record.host))
            assert judgement.verdict is not Verdict.CERTIFIED
        if report is not None:
            assert report.host == record.facts
            assert report.environment == record.environment
            assert record.facts.gpu_names == report.host.gpu_names


def test_evidence_of_any_shape_is_kept() -> None:
    check = read_record(LINES[5]).results[0]
    assert check.evidence.raw == {
        "of": {"any": ["shape", None, 1.5, -0.0, 1e22]},
        "raw": 1,
        "variable": "\udcff\u2028é",
    }
