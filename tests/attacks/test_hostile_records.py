"""Records that somebody made by hand, damaged, or sent in place of another: each attack is one test."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from validator import cli
from validator.errors import InputError
from validator.model.record import Record
from validator.records import jsonl
from validator.records.store import Store

from ..corpus.reader import REPORTS
from ..records.values import bundle, record

NOW = datetime.now(timezone.utc)
#: A report from a container without a GPU.
REPORT = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(*records: Record) -> bytes:
    stream = io.StringIO()
    jsonl.write(records, stream)
    return stream.getvalue().encode()


def run(*arguments: str) -> int:
    return cli.run(["records", *arguments, "--store", "records.db"])


def stored() -> set[str]:
    with Store("records.db") as store:
        return {found.id for found in store.all()}


def ahead(minutes: int) -> str:
    return (NOW + timedelta(minutes=minutes)).isoformat(timespec="seconds")


@pytest.mark.parametrize("finished", ["zzzz", "", "2999-01-01T00:00:00+00:00", ahead(24 * 60), ahead(12)])
def test_a_record_from_the_future_is_not_imported(directory: Path, finished: str) -> None:
    """Protected: the newest record of a cell. One from next year would be the newest until then."""
    (directory / "a.jsonl").write_bytes(lines(record(1), record(5, finished=finished)))
    with pytest.raises(InputError, match=r"a\.jsonl:2: record \w{32}: it") as caught:
        run("import", "a.jsonl")
    said = str(caught.value)
    assert (finished in said) and f"this machine's clock says {NOW:%Y-%m-%dT%H:}" in said
    assert not (directory / "records.db").exists()


def test_a_signed_time_in_the_future_counts_and_not_the_one_next_to_it(directory: Path) -> None:
    """Protected: the newest record of a cell, from a record whose unsigned time looks right."""
    (directory / "a.jsonl").write_bytes(lines(record(1, measurement=bundle("2999-01-01T00:00:00Z"))))
    with pytest.raises(InputError, match="it finished at 2999-01-01T00:00:00Z, which is in the future"):
        run("import", "a.jsonl")


def test_a_report_from_the_future_is_not_imported(directory: Path) -> None:
    """Protected: the newest record of a cell, from a report that was edited."""
    report = json.loads(REPORT.read_bytes()) | {"finished": ahead(60)}
    (directory / "report.json").write_text(json.dumps(report))
    with pytest.raises(InputError, match=r"report\.json: record .* in the future; this machine's clock says"):
        run("import", "--report", "report.json")


def test_clocks_that_differ_by_less_than_ten_minutes_are_accepted(directory: Path) -> None:
    (directory / "a.jsonl").write_bytes(lines(record(1, finished=ahead(9))))
    assert run("import", "a.jsonl") == 0
    assert stored() == {record(1, finished=ahead(9)).id}


def test_a_stored_record_from_the_future_is_shown_and_blocks_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protected: a cell whose store already has a record from the future; it was frozen on that one."""
    odd = record(5, finished="2999-01-01T00:00:00+00:00")
    (directory / "a.jsonl").write_bytes(lines(record(1), odd))
    assert run("import", "a.jsonl", "--any-time") == 0
    with Store("records.db") as store:
        assert store.latest() == {odd.cell: record(1)}
    capsys.readouterr()
    assert run("list") == 0
    shown = capsys.readouterr()
    assert odd.id[:12] in shown.out
    assert f"Never the newest: record {odd.id}: it finished at 2999" in shown.err
    assert run("show", odd.id) == 0
    assert "Never the newest of its cell: record" in capsys.readouterr().err
    assert run("bisect", odd.cell) == 0
    assert odd.id[:12] not in capsys.readouterr().out
    with Store("records.db") as store:
        store.add(record(2, finished="zzzz"))
    with pytest.raises(InputError, match="each of its records has a finish time that can't be right"):
        run("bisect", record(2).cell)
