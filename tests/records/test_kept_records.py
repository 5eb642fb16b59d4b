"""Stored records keep their ids, their text and their meaning, whatever this version changes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from validator.model.record import Verdict, read_record
from validator.model.verdict import judge
from validator.records import record_files
from validator.records.store import Store

from ..certify.measuring import outside_of

#: Four imported reports, two fixtures of a certified image (one with odd evidence and fields), one that did
#: not build; written by `records.jsonl.write` on 2026-11-28, and never again.
KEPT = Path(__file__).with_name("kept_records.jsonl.gz")
IDS = [
    "2c48783260e37abbca61767398c2c7e7",
    "749ab7c06d1061570e90c9a2fa987f5e",
    "edbac29f8c5a3663a8898a9389d53bbf",
    "88e86913101e22339a3a728add53cdd7",
    "07a05de6ae8e74544e9100548b142e98",
    "b13242750b1107336354eb0b86b6e5c4",
    "40ba44e6ea5ce3ed43868d7fac982661",
]
LINES = gzip.decompress(KEPT.read_bytes()).splitlines()


def test_they_keep_their_ids_and_every_byte() -> None:
    for line, expected in zip(LINES, IDS, strict=True):
        record = read_record(line)
        assert record.id == expected
        assert json.dumps(record.document(), sort_keys=True, separators=(",", ":")).encode() == line


def test_a_store_keeps_them_under_their_ids(tmp_path: Path) -> None:
    records = list(record_files.read_file(KEPT))
    with Store(str(tmp_path / "records.db")) as store:
        assert store.add_all(records) == len(IDS)
        assert {identifier: store.get(identifier) for identifier in IDS} == dict(
            zip(IDS, records, strict=True)
        )


def test_their_checks_say_what_their_reports_say() -> None:
    for line in LINES:
        record = read_record(line)
        report = record.read_report()
        said = [check.sentence for check in record.results]
        assert all(said)
        assert said == ([] if report is None else [check.sentence for check in report.checks])


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
