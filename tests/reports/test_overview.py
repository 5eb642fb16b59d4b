from __future__ import annotations

import msgspec
import pytest

from validator.model.codec import encode
from validator.model.prediction import Outcome, PlannedCell, Reason, decide
from validator.model.record import Record, Verdict
from validator.model.spec import Cell, Choice, HostClass, ImageSpec, Variant
from validator.reports.overview import Row, grid, markdown, nothing_measured, overview, table
from validator.versions import ComputeCapability, DriverRelease

from ..certify.fixtures import LIMIT, limited_check
from ..records.values import record

IMAGES = [
    ImageSpec("2.21.0", python, Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
    for python in ("3.12", "3.11")
]
HOST = HostClass("r580-h100", DriverRelease.parse("580"), ComputeCapability(9, 0), "h100")


def planned(image: ImageSpec, outcome: Outcome, text: str = "because") -> PlannedCell:
    return PlannedCell(Cell(image, HOST), decide((Reason(outcome, text, "a-fact", "a source"),)))


def measured(image: ImageSpec, verdict: Verdict, host: str = "r580-h100") -> Record:
    return record(
        cell=f"{image}@{host}", image=image.identifier, host_class=host, verdict=verdict, reason="found | so"
    )


def rows(outcome: Outcome, *records: Record) -> list[Row]:
    cells = [planned(image, outcome) for image in IMAGES]
    return overview(cells, {found.cell: found for found in records})


@pytest.mark.parametrize(
    ("outcome", "verdict", "agrees"),
    [
        (Outcome.WORKS, Verdict.CERTIFIED, True),
        (Outcome.WORKS, Verdict.FAILED, False),
        (Outcome.WORKS, Verdict.BROKEN, False),
        (Outcome.FAILS, Verdict.FAILED, True),
        (Outcome.FAILS, Verdict.CERTIFIED, False),
        (Outcome.WORKS, Verdict.UNPROVEN, None),
        (Outcome.FAILS, Verdict.UNPROVEN, None),
        (Outcome.UNKNOWN, Verdict.CERTIFIED, None),
    ],
)
def test_a_measurement_confirms_or_contradicts_a_prediction(
    outcome: Outcome, verdict: Verdict, agrees: bool | None
) -> None:
    assert rows(outcome, measured(IMAGES[0], verdict))[0].agrees is agrees


def test_the_plans_images_on_other_hosts_come_last() -> None:
    stranger = ImageSpec("2.20.0", "3.11", Variant.CPU)
    found = rows(
        Outcome.WORKS, measured(IMAGES[1], Verdict.UNPROVEN, "no-gpu"), measured(stranger, Verdict.UNPROVEN)
    )
    assert [row.host for row in found] == ["r580-h100", "r580-h100", "no-gpu"]
    assert found[-1].planned is None
    assert found[-1].agrees is None
    found_there = found[-1].as_json()["measured"]
    assert found_there is not None and found_there["verdict"] == "unproven"


def test_pythons_share_a_column_that_shows_the_worst() -> None:
    page = grid(
        rows(Outcome.WORKS, measured(IMAGES[0], Verdict.CERTIFIED), measured(IMAGES[1], Verdict.FAILED))
    )
    [column] = page.columns
    assert (column.tensorflow, column.detail) == ("2.21.0", "12.5/9.3")
    assert page.entries == {("r580-h100", column): ("works", "failed")}


def test_the_markdown_has_measurements_grid_and_reasons() -> None:
    page = markdown(rows(Outcome.FAILS, measured(IMAGES[0], Verdict.CERTIFIED)), "A title")
    assert page.startswith("# A title\n")
    assert "2 cells planned, 1 measured." in page
    assert (
        "**The measurement contradicts the prediction:** `tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100`" in page
    )
    assert "**certified** | found \\| so |" in page
    assert "| r580-h100 | fails<br>certified |" in page
    assert "| 2 | because | `a-fact` | a source |" in page
    assert page.endswith("\n")


def test_the_grid_says_where_only_xla_fails() -> None:
    works, fails = (
        Reason(outcome, "because", "a-fact", "a source", mode=mode)
        for outcome, mode in ((Outcome.WORKS, None), (Outcome.FAILS, "xla"))
    )
    cell = PlannedCell(Cell(IMAGES[0], HOST), decide((works, fails)))
    found = overview([cell], {(one := measured(IMAGES[0], Verdict.FAILED)).cell: one})
    assert list(grid(found).entries.values()) == [("eager-only", "failed")]
    page = markdown(found, "A title")
    assert "| r580-h100 | eager-only<br>failed |" in page and "| eager-only | **failed** |" in page
    assert found[0].agrees, "a required check uses XLA"


def test_limits_are_named_in_every_form_of_the_overview() -> None:
    free = measured(IMAGES[0], Verdict.CERTIFIED)
    found = msgspec.structs.replace(free, checks=[limited_check(LIMIT)])
    page = rows(Outcome.WORKS, found)
    told = next(row for row in page if row.record).as_json()["measured"]
    assert told is not None and told["limits"] == [encode(LIMIT)]
    assert list(grid(page).entries.values()) == [("works", "certified", "limit")]
    text = markdown(page, "Overview")
    assert f"| found \\| so; limit: {LIMIT.sentence} |" in text and "works<br>certified<br>limit" in text
    assert "limit" not in markdown(rows(Outcome.WORKS, free), "Overview")


def test_an_empty_markdown_page_says_so() -> None:
    page = markdown(rows(Outcome.WORKS), "A title")
    assert nothing_measured() in page and "real GPUs" in page
    assert "No cell is predicted to fail." in page


def test_tables_keep_their_columns_whatever_the_text() -> None:
    assert table(("a", "b"), [("x|y", "two\nlines")])[-1] == "| x\\|y | two lines |"


def test_text_of_a_record_is_not_markup_in_a_table() -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b\ud800"
    [*_, row] = table(("a",), [(hostile,)])
    assert row == "| &lt;script>alert(1)&lt;/script>\\u202e\\x1b\\ud800 |"
