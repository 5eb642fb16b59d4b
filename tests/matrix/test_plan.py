"""Plans: predictions, selecting by them, and the form for GitHub."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from validator.compat.predict import predict
from validator.errors import InputError
from validator.matrix.load import Matrix, load_matrix, parse_selectors
from validator.matrix.plan import MAX_JOBS, github_image_matrix, github_matrices, plan
from validator.model.prediction import WORDS
from validator.model.spec import ImageSpec

from .support import FILE, matrix

HOSTS = '  - {driver: ["470", "580"], gpu: [v100, h100], runner: ["gpu", "{host}"]}'


@pytest.fixture(scope="module")
def small() -> Matrix:
    text = '  - {tensorflow: "2.21.0", python: ["3.11", "3.12"], policy: [as-built, latest]}\n'
    text += '  - {tensorflow: "2.21.0", python: "3.12", variant: cpu}'
    return matrix(text, HOSTS)


def test_every_cell_has_its_prediction(small: Matrix) -> None:
    found = plan(small, "all").cells
    assert len(found) == 4 * 4 + 1
    for planned in found:
        assert planned.prediction == predict(planned.cell)
    outcomes = {planned.cell.identifier: planned.prediction.outcome.value for planned in found}
    assert outcomes["tf2.21.0-cuda12.5-cudnn9.3-py312@r580-v100"] == "unknown", "XLA is not measured"
    assert outcomes["tf2.21.0-cudalatest-cudnnlatest-py312@r580-v100"] == "fails"
    assert outcomes["tf2.21.0-cpu-py312@no-gpu"] == "works"


@pytest.mark.parametrize("word", WORDS)
def test_predictions_can_be_selected(small: Matrix, word: str) -> None:
    whole = plan(small, "all")
    taken = plan(small, "all", select=parse_selectors([f"prediction={word}"]))
    left = plan(small, "all", select=parse_selectors([f"prediction!={word}"]))
    assert {one.prediction.word for one in taken.cells} <= {word}
    assert {*taken.cells} | {*left.cells} == {*whole.cells}
    assert len(taken.cells) + len(left.cells) == len(whole.cells)


def test_a_profile_may_select_by_prediction() -> None:
    text = '  - {tensorflow: "2.21.0", python: "3.12", policy: latest}'
    found = matrix(text, HOSTS, "  good: {select: prediction=works}\n")
    outcomes = {planned.prediction.outcome.value for planned in plan(found, "good").cells}
    assert outcomes == {"works"}


def test_the_lock_is_read_once_per_image_and_decides(small: Matrix) -> None:
    asked: list[str] = []

    def wheels(image: ImageSpec) -> Mapping[str, str] | None:
        asked.append(image.identifier)
        return {"nvidia-cudnn-cu12": "9.10.2.21"} if image.cudnn and image.cudnn.floats else None

    found = plan(small, "all", select=parse_selectors(["gpu=v100"]), wheels=wheels)
    outcomes = {planned.cell.identifier: planned.prediction.outcome.value for planned in found.cells}
    assert outcomes["tf2.21.0-cudalatest-cudnnlatest-py312@r580-v100"] == "unknown", (
        "locked before Volta was dropped"
    )
    assert asked == [image.identifier for image in found.images]
    assert len(asked) == len(set(asked)) == 4


def test_the_github_form(small: Matrix) -> None:
    found = plan(small, "all", select=parse_selectors(["python=3.12", "host=r580-h100,no-gpu"]))
    [document] = github_matrices(found.cells)
    assert json.loads(json.dumps(document)) == document
    assert document["include"][0] == {
        "id": "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100",
        "image": "tf2.21.0-cuda12.5-cudnn9.3-py312",
        "host": "r580-h100",
        "tensorflow": "2.21.0",
        "python": "3.12",
        "variant": "gpu",
        "prediction": "works",
        "runner": ["gpu", "r580-h100"],
    }
    assert [row["id"] for row in document["include"]] == [one.cell.identifier for one in found.cells]


def test_the_github_form_for_builds_has_every_image_once(small: Matrix) -> None:
    found = plan(small, "all", select=parse_selectors(["python=3.12"]))
    rows = github_image_matrix(found.images)["include"]
    assert rows[0] == {
        "image": "tf2.21.0-cuda12.5-cudnn9.3-py312",
        "tensorflow": "2.21.0",
        "python": "3.12",
        "variant": "gpu",
    }
    assert [row["image"] for row in rows] == [image.identifier for image in found.images]
    assert len(rows) == 3 < len(found.cells)
    with pytest.raises(InputError, match="257 images"):
        github_image_matrix(found.images[:1] * (MAX_JOBS + 1))


@pytest.mark.slow
def test_more_cells_than_github_allows_in_a_matrix_are_several_matrices() -> None:
    cells = plan(load_matrix(FILE), "full").cells
    for count in (0, 1, MAX_JOBS, MAX_JOBS + 1, len(cells)):
        found = github_matrices(cells[:count])
        assert [len(matrix["include"]) for matrix in found[:-1]] == [MAX_JOBS] * (
            (max(count, 1) - 1) // MAX_JOBS
        )
        assert len(found[-1]["include"]) <= MAX_JOBS
        rows = [row["id"] for matrix in found for row in matrix["include"]]
        assert rows == [one.cell.identifier for one in cells[:count]]
