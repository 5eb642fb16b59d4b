"""The JSON that commands write has the fields of docs/reference/json.md, whose tables are made from types."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs import fields
from docs.transcripts import ROOT
from validator.cli.building import ResultDocument
from validator.cli.predict import AskedFields
from validator.cli.records import CausesField
from validator.compat.predict import ImageSupport
from validator.model.diagnosis import Diagnosis
from validator.model.prediction import CellDocument, FindingDocument, Reason
from validator.model.record import Record, Verdict, contents_of
from validator.model.report import CheckResult, report_of
from validator.records.history import DeclineDocument, DifferenceDocument
from validator.records.store import Store
from validator.reports.findings import PinnedDocument
from validator.reports.overview import RowDocument

from ..commands import run
from ..corpus.reader import REPORTS
from ..documented import misfits
from ..records.values import record
from .situations import CELL, MATRIX

PAGE = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
REPORT = json.loads((REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn8.9-py311.json").read_text(encoding="utf-8"))


def printed(directory: Path, *arguments: object, code: int = 0) -> Any:
    done = run(*arguments, "--json", cwd=directory)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a matrix, and with a cell that got worse."""
    directory = tmp_path_factory.mktemp("json")
    (directory / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    pins = "tensorflow==2.18.0\nnvidia-cudnn-cu12==8.9.7.29\n"
    (directory / "requirements.txt").write_text(pins, encoding="utf-8")
    image, _, host = CELL.partition("@")
    good, bad = REPORT | {"checks": []}, REPORT
    (directory / ".validator").mkdir()
    with Store(str(directory / ".validator/records.db")) as store:
        store.add_all(
            record(
                cell=CELL, image=image, host_class=host, verdict=verdict, finished=finished, started=finished,
                key=finished, **contents_of(report_of(found)),
            )
            for finished, verdict, found in (
                ("2026-11-12T02:10:44+00:00", Verdict.CERTIFIED, good),
                ("2026-11-19T02:11:02+00:00", Verdict.FAILED, bad),
            )
        )  # fmt: skip
    return directory


def test_plan_and_predict(place: Path) -> None:
    cells = printed(place, "plan", "--profile", "full")
    assert {cell["variant"] for cell in cells} == {"gpu", "cpu"}
    assert list(misfits(cells, list[CellDocument])) == []
    assert list(misfits(cells[0]["prediction"]["reasons"], list[Reason])) == []
    one = printed(place, "predict", "--tensorflow", "2.18.0", "--driver", "535", "--gpu", "t4")
    asked = {name: one.pop(name) for name in AskedFields.__annotations__}
    assert list(misfits(one, CellDocument)) == list(misfits(asked, AskedFields)) == []


def test_what_a_release_needs(place: Path) -> None:
    found = printed(place, "predict", "--tensorflow", "2.21.0")
    reasons = [gpu["reason"] for gpu in found["gpus"] if gpu["reason"]] + found["reasons"]
    assert reasons
    assert list(misfits(found, ImageSupport)) == list(misfits(reasons, list[Reason])) == []


def test_what_works_on_a_machine(place: Path) -> None:
    """These tables are not generated."""
    section = PAGE.partition("\n## What works on a machine ")[2].partition("\n## ")[0]
    tables = [
        {
            name
            for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        }
        for table in section.split("| field | content |\n")[1:]
    ]
    found = printed(place, "predict", "--gpu", "RTX 4090", "--driver", "570")
    assert found.keys() == tables[0]
    for part, wanted_fields in zip(("modes", "ways", "releases"), tables[1:], strict=True):
        assert {name for one in found[part] for name in one} == wanted_fields, part
    reasons = [reason for way in found["ways"] for reason in way["reasons"]]
    assert reasons
    wanted = set(re.findall(r"`(\w+)`", section.partition("\nA reason has ")[2].partition(". ")[0]))
    assert all(reason.keys() == wanted for reason in reasons)


def test_records(place: Path) -> None:
    for found in (
        [printed(place, "records", "show", record_["id"]) for record_ in printed(place, "records", "list")],
        printed(place, "records", "list"),
        [json.loads(line) for line in run("records", "export", cwd=place).stdout.splitlines()],
    ):
        assert len(found) == 2
        for one in found:
            assert re.fullmatch("[0-9a-f]{32}", one.pop("id"))
            assert list(misfits(one, Record)) == []
            assert all(check.keys() == CHECK_OF_A_RECORD for check in one["checks"])


#: The fields of a check in a record, as the page lists them.
CHECK_OF_A_RECORD = set(
    re.findall(r"`(\w+)`", PAGE.partition("with the\nfields ")[2].partition(". `report`")[0])
)


def test_what_changed(place: Path) -> None:
    (difference,) = printed(place, "records", "compare", "2026-11-15", "2026-11-20")
    assert difference["checks"]
    assert list(misfits(difference, DifferenceDocument)) == []
    decline = printed(place, "records", "bisect", CELL)
    causes = {"causes": decline.pop("causes")}
    assert causes["causes"] and decline["first_bad"]
    assert list(misfits(decline, DeclineDocument)) == list(misfits(causes, CausesField)) == []


def test_the_rows_of_a_report(place: Path) -> None:
    found = printed(place, "report")
    assert [row["measured"] for row in found if row["measured"]]
    assert list(misfits(found, list[RowDocument])) == []


@pytest.mark.parametrize("options", [("--report", "report.json"), ("train.log",)])
def test_a_diagnosis(options: tuple[str, ...], place: Path) -> None:
    (place / "report.json").write_text(json.dumps(REPORT), encoding="utf-8")
    (place / "train.log").write_text(
        "Cannot dlopen some GPU libraries. Skipping registering GPU devices...\n"
        "TensorFlow 2.21.0, NVIDIA-SMI 470.57.02\nUnable to register cuDNN factory\nIt fails.\n",
        encoding="utf-8",
    )
    found = printed(place, "doctor", *options, code=1)
    assert found["causes"]
    assert list(misfits(found, Diagnosis)) == []


def test_a_project(place: Path) -> None:
    found = printed(place, "lint", "requirements.txt", code=1)
    assert found.keys() == {"findings"} and found["findings"]
    assert list(misfits(found["findings"], list[FindingDocument])) == []
    found = printed(place, "predict", "--requirements", "requirements.txt", "--host", "T4:535", code=1)
    assert found.keys() == {"predictions"} and found["predictions"]
    assert list(misfits(found["predictions"], list[PinnedDocument])) == []


@pytest.mark.slow
def test_the_list_of_checks(place: Path) -> None:
    section = PAGE.partition("\n## Checks ")[2].partition(", as described")[0]
    named = set(re.findall(r"`(\w+)`", section.partition("\n\n")[2]))
    assert named < set(CheckResult.__struct_fields__)
    assert all(check.keys() == named for check in printed(place, "check", "--list"))


def test_the_types_that_the_page_names_are_in_the_files_that_it_links() -> None:
    known = {kind.__name__ for kinds in fields.DOCUMENTS.values() for kind in kinds.values()}
    links = re.findall(r"\[`([\w`, ]+)`\]\(../../(validator/[\w/]+\.py)\)", PAGE)
    links += re.findall(r"`(\w+)` in \[`[\w/]+\.py`\]\(../../(validator/[\w/]+\.py)\)", PAGE)
    assert len(links) > 10
    for names, path in links:
        text = (ROOT / path).read_text(encoding="utf-8")
        for name in names.split("`, `"):
            assert name in known and re.search(rf"^class {name}\b", text, re.MULTILINE), name


def test_what_does_not_fit_is_found() -> None:
    row = {
        "image": "tf", "status": "built", "built": True, "detail": "", "digest": None, "reference": None,
        "published": None, "record": None,
    }  # fmt: skip
    assert list(misfits(row, ResultDocument)) == []
    assert list(misfits(row | {"built": None}, ResultDocument)) == ["it.built is None, not bool"]
    assert list(misfits(row | {"more": 1}, ResultDocument)) == ["it has more, which is not described"]
    assert list(misfits([{**row, "detail": 1}], list[ResultDocument])) == ["it[0].detail is 1, not str"]
    assert len(list(misfits({}, AskedFields | None))) == len(AskedFields.__annotations__)
