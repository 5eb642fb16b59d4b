"""Records leave the machine without names, marked as what they prove, whatever texts they hold."""

from __future__ import annotations

import csv
import io
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.dataset.export import csv_writer
from validator.dataset.tables import TABLES, Cleaner, check_rows, exported, names_of, record_rows
from validator.model.codec import encode
from validator.model.record import Origin, Record, Verdict

from ..certify.fixtures import LIMIT, limited_check
from ..records.values import H100, bundle, record
from ..support import said
from . import exports

CELL = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100"
IMAGE, HOST = CELL.split("@")
FEW = (*exports.SELECT, "gpu=h100", "driver=580")
#: What must not leave a machine, and a text of a record that reveals it.
SECRETS = {
    "wintermute": "user@wintermute:~$ nvidia-smi",
    "mallory": "/home/mallory/venv/lib/python3.12/site-packages/tensorflow",
    "node17.cluster.corp.example.internal": "lost node17.cluster.corp.example.internal",
    "10.20.30.40": "grpc://10.20.30.40:2222 does not answer",
    "GPU-11111111-2222-3333-4444-555555555555": "device GPU-11111111-2222-3333-4444-555555555555",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345": "token ghp_0123456789abcdefghijABCDEFGHIJ012345",
}


def check(identifier: str = "driver", **changes: Any) -> dict[str, Any]:
    fields = {"id": identifier, "outcome": "pass", "required": True, "evidence": {}}
    return fields | {"duration_s": 0.5} | changes


def measured(**changes: Any) -> Record:
    fields: dict[str, Any] = {"cell": CELL, "image": IMAGE, "host_class": HOST, "host": {"gpus": [H100]}}
    return record(**(fields | changes))


def written(directory: Path, *records: Record, **options: Any) -> Path:
    exports.write(directory / "data", records, selectors=FEW, **options)
    return directory / "data"


def everything(directory: Path) -> str:
    """Return the text of all files with rows of records, Parquet's read as JSON."""
    names = ("records", "checks")
    texts = [(directory / f"{name}.{end}").read_text("utf-8") for name in names for end in ("json", "csv")]
    return "".join([*texts, *(json.dumps(exports.read_parquet(directory, name)) for name in names)])


@pytest.mark.slow
def test_names_are_taken_out_of_every_text(tmp_path: Path) -> None:
    revealing = list(SECRETS.values())
    kept = measured(
        reason=revealing[0],
        engine=revealing[2],
        base=f"registry:{revealing[2].split()[-1]}:5000/python@sha256:{'0' * 64}",
        versions={"python": revealing[1]},
        host={"gpus": [H100], "os": revealing[3], "kernel": "6.1.0-wintermute"},
        checks=[check(summary=text, evidence={text: [text, {"deeper": text}]}) for text in revealing],
        report={"logs": {"host_stderr": "\n".join(revealing)}},
    )
    # What one record reveals is taken out of all.
    other = measured(key="other", reason="asked wintermute and mallory")
    text = everything(written(tmp_path, kept, other))
    assert [secret for secret in SECRETS if secret in text] == []
    assert "<name>" in text and "NVIDIA H100 80GB HBM3" in text and CELL in text


def test_limits_are_a_column_in_every_format(tmp_path: Path) -> None:
    secret = replace(LIMIT, error=f"{LIMIT.error}: {SECRETS['mallory']}")
    directory = written(tmp_path, measured(checks=[limited_check(LIMIT, secret)]), measured(key="other"))
    expected = [encode(LIMIT), encode(secret)]
    expected[1]["error"] = secret.error.replace("mallory", "<user>")
    for read in (exports.read_json, exports.read_csv, exports.read_parquet):
        found = {len(row["limits"]): row["limits"] for row in read(directory, "records")}
        assert found == {0: [], 2: expected}


def test_names_stay_if_the_user_asks_for_that(tmp_path: Path) -> None:
    directory = written(tmp_path, measured(reason="asked wintermute"), redact=False)
    assert exports.read_json(directory, "records")[0]["reason"] == "asked wintermute"
    assert "NOT taken out of the records" in (directory / "README.md").read_text(encoding="utf-8")


def test_a_cell_of_the_matrix_is_not_taken_for_a_user_at_a_host(tmp_path: Path) -> None:
    directory = written(tmp_path, measured(reason=f"as {CELL}"), measured(key="b", reason=f"on {HOST}"))
    rows = exports.read_json(directory, "records")
    assert {row["cell"] for row in rows} == {CELL}
    assert rows[1]["reason"] == f"on {HOST}"


def test_a_cell_that_the_matrix_does_not_have_stays_as_well(tmp_path: Path) -> None:
    host = "r999-h900"
    records = [measured(cell=f"{IMAGE}@{host}", host_class=host)]
    [row] = record_rows(records, Cleaner(names_of(records, ()), ()))
    assert (row.cell, row.image, row.host) == (f"{IMAGE}@{host}", IMAGE, host)


def test_records_are_marked_as_what_they_prove(tmp_path: Path) -> None:
    records = [
        measured(verdict=Verdict.CERTIFIED, measurement=bundle("2026-01-01T00:00:00+00:00")),
        measured(origin=Origin.ELSEWHERE, key="b"),
        measured(verdict=Verdict.CERTIFIED, report={"fixture": True}, key="c"),
        measured(origin=Origin.REHEARSAL, key="d"),
    ]
    rows = exports.read_json(written(tmp_path, *records), "records")
    assert [(row["verdict"], row["origin"], row["fixture"], row["signed"]) for row in rows] == [
        ("certified", "here", False, True),
        ("unproven", "elsewhere", False, False),
        ("certified", "here", True, False),
    ]
    assert [row["id"] for row in rows] == [kept.id for kept in records[:3]]


def test_values_of_a_record_are_where_they_belong(tmp_path: Path) -> None:
    kept = measured(
        started="2026-01-01T01:00:00.250+01:00",
        finished="yesterday",
        versions={"tensorflow": "2.21.0", "cuda": "12.5.82"},
        checks=[check(), check(), check("gpu_compute", outcome="fail", required=False)],
    )
    directory = written(tmp_path, kept)
    [row] = exports.read_json(directory, "records")
    assert (row["started"], row["finished"]) == ("2026-01-01T00:00:00.250000Z", None)
    assert (row["gpus"], row["compute_capabilities"]) == (["NVIDIA H100 80GB HBM3"], ["9.0"])
    assert (row["tensorflow"], row["cuda"], row["cudnn"]) == ("2.21.0", "12.5.82", None)
    checks = exports.read_json(directory, "checks")
    assert [each["id"].removeprefix(kept.id) for each in checks] == ["/driver", "/driver/2", "/gpu_compute"]
    assert checks[2]["outcome"] == "fail" and checks[2]["seconds"] == 0.5
    for name in ("records", "checks"):
        assert exports.read_csv(directory, name) == exports.read_json(directory, name)
        assert exports.read_parquet(directory, name) == exports.read_json(directory, name)


HOSTILE = [
    '=cmd|" /C calc"!A0',
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "'quoted'",
    "''",
    'a "b", c\r\nd',
    "",
    "  spaces  ",
    "\x1b[31mred\x07\x00",
    "\u202eabc",
    "\udcff",
    "::error::x",
    "NULL",
]


def test_hostile_texts_are_the_same_in_all_formats(tmp_path: Path) -> None:
    kept = measured(
        checks=[
            # The name of a field has to be text.
            check(f"c{number}", **said(text), evidence={text.encode(errors="replace").decode(): text})
            for number, text in enumerate(HOSTILE)
        ]
    )
    directory = written(tmp_path, kept)
    rows = exports.read_json(directory, "checks")
    assert exports.read_csv(directory, "checks") == exports.read_parquet(directory, "checks") == rows
    summaries = [row["summary"] for row in rows]
    # Control characters are shown as codes; all other texts stay.
    for text, shown in zip(HOSTILE, summaries, strict=True):
        assert shown == text or "\\" in shown or not text
    assert not any(character in "".join(summaries) for character in "\x00\x07\x1b\u202e\udcff\r")


def csv_of(*texts: str) -> str:
    stream = io.BytesIO()
    with csv_writer(stream, TABLES["sources"]) as write:
        for text in texts:
            write(TABLES["sources"].row(text, text, None), b"")
    return stream.getvalue().decode()


@pytest.mark.parametrize("text", HOSTILE[:10])
def test_no_cell_of_a_spreadsheet_is_a_formula(text: str) -> None:
    [_, row] = csv.reader(io.StringIO(csv_of(text), newline=""))
    assert row[0] == row[1] == f"'{text}"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_csv_gives_back_every_text(texts: list[str]) -> None:
    lines = csv_of(*texts)
    [head, *rows] = csv.reader(io.StringIO(lines, newline=""), strict=True)
    assert head == ["id", "text", "url"]
    assert [[field.removeprefix("'") for field in row] for row in rows] == [
        [text, text, ""] for text in texts
    ]
    assert lines.endswith("\r\n")


def test_an_empty_text_is_quoted_and_null_is_not() -> None:
    assert csv_of("") == 'id,text,url\r\n"","",\r\n'


def test_names_of_fields_that_become_the_same_are_all_kept() -> None:
    clean = Cleaner({"wintermute", "neuromancer"}, set())
    assert clean.value({"wintermute": 1, "neuromancer": 2}) == {"<name>": 1, "<name>_": 2}


@pytest.mark.slow
def test_many_records_are_read_one_by_one() -> None:
    """Nothing keeps all records in memory."""
    alive = 0

    class Counted(Record, frozen=True):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def made() -> Any:
        nonlocal alive
        for number in itertools.count():
            if number == 250:
                return
            alive += 1
            assert alive < 5
            fields = {name: getattr(measured(), name) for name in measured().__struct_fields__}
            yield Counted(
                **fields | {"key": str(number), "checks": [check(**said(f"on wintermute {number}"))]}
            )

    clean = Cleaner(names_of(exported(made()), ()) | {"wintermute"}, ())
    assert sum(1 for _ in record_rows(made(), clean)) == 250
    assert {row.summary.split()[1] for row in check_rows(made(), clean)} == {"<name>"}
