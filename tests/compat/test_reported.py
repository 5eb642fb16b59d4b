"""What people wrote in public, asked as they wrote it: the rules agree, say what is missing, or are
explained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from validator.cli.predict import predict_command
from validator.compat import evidence, facts, hardware, judge
from validator.compat.facts import UnknownGpu
from validator.errors import ValidatorError
from validator.model.prediction import MODES

ROWS = facts.rows("reported", "reported")
#: The fields of a row that are options of `predict`.
OPTIONS = (
    "tensorflow", "python", "cuda", "cudnn", "wheel", "extra", "gpu", "compute_capability", "driver",
    "system", "machine",
)  # fmt: skip


def ask(row: Mapping[str, Any], instead: Mapping[str, str] | None = None) -> Any:
    """Return the prediction for a combination, as `predict --format json` prints it.

    instead: options that replace those of the row. A GPU whose name is not known is asked about by the first
    name that `predict` suggests. Return the error's text if there is no answer.
    """
    fields = {**row, **(instead or {})}
    if "gpu" in row:
        fields.pop("compute_capability", None)
        fields["gpu"] = _known_gpu(row)
    options: list[str] = []
    for name in OPTIONS:
        if name in fields:
            flag = f"--{name.replace('_', '-')}"
            options += [flag] if fields[name] is True else [flag, fields[name]]
    result = CliRunner().invoke(predict_command, [*options, "--format", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, ValidatorError), result.exception
        return str(result.exception)
    return json.loads(result.stdout)["prediction"]


def _known_gpu(row: Mapping[str, Any]) -> str:
    try:
        hardware.gpu(row["gpu"])
    except UnknownGpu as error:
        assert str(hardware.gpu(error.nearest[0]).compute_capability) == row["compute_capability"]
        return error.nearest[0]
    return str(row["gpu"])


def seen(row: Mapping[str, Any]) -> dict[str, str]:
    return {mode: row[mode] for mode in MODES if mode in row}


@pytest.fixture
def only_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answer as if nothing had been measured or reported."""
    monkeypatch.setattr(evidence, "on_machine", lambda tried, host: ())
    judge.judge_both.cache_clear()
    yield
    judge.judge_both.cache_clear()


@pytest.mark.usefixtures("only_rules")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_the_rules_agree_or_say_what_is_missing_or_are_explained(row: facts.Row) -> None:
    answer = ask(row)
    assert isinstance(answer, dict), answer
    assert answer["evidence"] == []
    for mode, wanted in seen(row).items():
        if answer[mode] == wanted:
            assert "instead" not in row, "the rules agree by themselves"
        elif answer[mode] == "unknown":
            # `unknown` names the fact that is missing, or what the facts do not decide.
            open_questions = [one for one in answer["reasons"] if one["outcome"] == "unknown"]
            assert answer["missing"] or all(one["text"] and one["source"] for one in open_questions)
            assert answer["missing"] or open_questions
        else:
            assert any(source in row["explained"] for source in row["sources"]), "no source in `explained`"
            if "instead" in row:
                assert ask(row, row["instead"])[mode] == wanted


def test_an_explanation_is_only_where_the_rules_say_otherwise() -> None:
    for row in ROWS:
        if "explained" in row:
            answer = ask(row)
            assert any(answer[mode] not in (wanted, "unknown") for mode, wanted in seen(row).items())


def test_a_contradiction_is_shown_with_its_explanation_and_decides_nothing() -> None:
    row = next(row for row in ROWS if row["id"] == "tensorflow-62412-tf2.15.0-titan-v")
    answer = ask(row)
    assert (answer["outcome"], answer["rank"]) == ("works", "derived")
    [shown] = [one for one in answer["evidence"] if one["id"] == row["id"]]
    assert (shown["rank"], shown["eager"], shown["xla"]) == ("reported", "fails", None)
    [reason] = [one for one in answer["reasons"] if one["fact"] == row["id"]]
    assert reason["advisory"] and "contradicts the prediction" in reason["text"]
    assert "CUDA 11.8" in reason["text"]
    assert reason["source"] == "https://github.com/tensorflow/tensorflow/issues/62412"


def test_every_statement_that_can_be_asked_is_shown_where_it_is_asked() -> None:
    """Otherwise, statements about another system, or without a GPU, would be missing."""
    missing = []
    for row in ROWS:
        answer = ask(row)
        if row["id"] not in [one["id"] for one in answer["evidence"]]:
            missing.append(row["id"])
    # macOS has no NVIDIA GPU, so no machine is compared.
    assert missing == []


def test_the_data_are_ones_that_can_be_shown() -> None:
    for row in ROWS:
        assert seen(row), row["id"]
        assert set(row) <= {
            *OPTIONS, "id", "eager", "xla", "seen", "assumed", "explained", "instead", "status", "sources",
        }, row["id"]  # fmt: skip
        assert set(row.get("assumed", ())) <= set(OPTIONS) & set(row)
        assert ("instead" in row) <= ("explained" in row)
        if "gpu" in row and "compute_capability" not in row:
            assert hardware.is_known(row["gpu"]), row["gpu"]
