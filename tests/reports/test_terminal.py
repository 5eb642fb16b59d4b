"""Test output that does not go to a terminal: whole lines, and text as it was written."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from validator.model.prediction import Outcome, PlannedCell, Reason, decide
from validator.model.record import Verdict
from validator.reports.overview import overview
from validator.reports.terminal import (
    overview_text,
    plan_table,
    prediction_text,
    record_text,
    records_table,
    show,
)

from ..certify.fixtures import LIMIT, limited_check
from ..records.values import record
from ..support import said
from .test_overview import IMAGES, measured, planned

LONG = "a sentence that no terminal would hold in one line, " * 20


def test_lines_are_whole_and_have_no_trailing_spaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show(plan_table([planned(IMAGES[0], Outcome.FAILS, LONG), planned(IMAGES[1], Outcome.WORKS, "short")]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split(None, 2) == [f"{IMAGES[0]}@r580-h100", "fails", LONG.rstrip()]
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("text", ["tensorflow[and-cuda]==2.15.0", "[/]", "[bold]x", ":warning:", "[/x]"])
def test_text_is_not_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, terminal: bool
) -> None:
    monkeypatch.setattr(Console, "is_terminal", terminal)
    monkeypatch.setenv("COLUMNS", "400")
    found = record(1, cell=text, reason=text, engine=text, versions={"cuda": text})
    for content in (
        plan_table([planned(IMAGES[0], Outcome.FAILS, text)]),
        records_table([found]),
        record_text(found),
        overview_text(overview([planned(IMAGES[0], Outcome.FAILS, text)], {})),
    ):
        show(content)
    assert capsys.readouterr().out.count(text) == 8


def test_eager_and_xla_are_shown_apart_where_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    works = Reason(Outcome.WORKS, "a driver", "a-fact", "a source")
    fails = Reason(
        Outcome.FAILS, "no target", "a-fact", "a source", rule="xla_without_gpu_target", mode="xla"
    )
    cell = planned(IMAGES[0], Outcome.WORKS, "").cell
    differ, alike = PlannedCell(cell, decide((works, fails))), PlannedCell(cell, decide((works,)))
    show(plan_table([differ]))
    assert " eager-only  eager works, XLA fails: no target" in capsys.readouterr().out
    show(prediction_text(differ.prediction))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["eager-only", "eager works, XLA fails"] and "XLA: no target" in lines[2]
    show(plan_table([alike]))
    show(prediction_text(alike.prediction))
    assert "eager" not in capsys.readouterr().out


def test_a_prediction_names_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    works = Reason(Outcome.WORKS, "a driver", "a-fact", "a source")
    show(prediction_text(decide((works,), ("cudnn", "gpu", "library_path"))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["unknown", "not known: cuDNN, the GPU, LD_LIBRARY_PATH"]


def test_a_record_is_shown_with_its_checks(capsys: pytest.CaptureFixture[str]) -> None:
    check = {"id": "driver", "outcome": "skip", **said("no driver here", "skip"), "duration_s": 0.25}
    show(record_text(record(1, checks=[check], versions={"cudnn": "9.3.0"}, image_digest=None)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [record(1, checks=[check], versions={"cudnn": "9.3.0"}).id, "unproven: no GPU"]
    assert lines[-1].split() == ["driver", "skip", "no", "driver", "here", "0.2"]
    assert ["cudnn", "9.3.0"] in [line.split() for line in lines]
    assert not any(line.startswith("image_digest") for line in lines)


def test_limits_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = msgspec.structs.replace(measured(IMAGES[0], Verdict.CERTIFIED), checks=[limited_check(LIMIT)])
    show(records_table([found]))
    assert f"{found.reason}; limit: {LIMIT.code}  " in capsys.readouterr().out
    show(record_text(found))
    assert f"\nlimit          {LIMIT.sentence}\n" in capsys.readouterr().out
    show(overview_text(overview([planned(IMAGES[0], Outcome.WORKS)], {found.cell: found})))
    shown = capsys.readouterr().out
    assert f"{found.reason}; limit: {LIMIT.sentence}\n" in shown and "works certified limit" in shown


def test_the_overview_shows_measurements_above_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(IMAGES[0], Verdict.FAILED)
    cells = [planned(image, Outcome.WORKS) for image in IMAGES]
    show(overview_text(overview(cells, {found.cell: found})))
    out = capsys.readouterr().out
    assert out.index("Measured") < out.index(found.cell) < out.index("Predicted")
    assert "r580-h100  works failed" in out
