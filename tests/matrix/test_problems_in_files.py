"""Wrong files: the exact message, with its position, for each kind of mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import EXIT_INPUT, InputError
from validator.matrix.document import MAX_BYTES, MAX_SHOWN, MatrixError
from validator.matrix.load import load_matrix

from .support import GOOD, image, problems
from .wrong_files import HOSTS, IMAGES, SELECTORS, SHAPE, YAML


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(text, expected, id=name)
        for table in (YAML, SHAPE, IMAGES, HOSTS, SELECTORS)
        for name, (text, *expected) in table.items()
    ],
)
def test_message(text: str | bytes, expected: list[str]) -> None:
    assert problems(text) == expected


def test_the_unbroken_file_is_good() -> None:
    assert problems(GOOD) == []


def test_a_byte_order_mark_is_allowed_and_moves_no_column() -> None:
    assert problems("\ufeff" + GOOD) == []
    assert problems("\ufeffexlude: []\n" + GOOD) == ["m.yaml:1:1: exlude: unknown key; did you mean exclude?"]


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    text = """\
images:
  - tensorflow: "2.99.0"
    python: [3.10]
  - tensorflow: "2.21.0"
    pyton: all
    cudnn: "9.99"
hosts:
  - driver: [535, old]
    gpu: h1000
profiles:
  quick: {select: [tensorflow~2.21], first: "3.12"}
exclude:
  - select: []
"""
    found = problems(text)
    assert [line.split(": ")[1] for line in found] == [
        "images[0].tensorflow",
        "images[0].python[0]",
        "images[1]",
        "images[1].pyton",
        "images[1].cudnn",
        "hosts[0].driver[0]",
        "hosts[0].driver[1]",
        "hosts[0].gpu",
        "profiles.quick.select[0]",
        "profiles.quick.first",
        "exclude[0]",
        "exclude[0].select",
    ]
    positions = [tuple(int(part) for part in line.split(":")[1:3]) for line in found]
    assert positions == sorted(positions)


def test_a_long_list_of_problems_is_cut() -> None:
    entries = "".join(f'  - {{tensorflow: "9.{number}", python: all}}\n' for number in range(MAX_SHOWN + 20))
    found = problems(image(entries))
    assert len(found) == MAX_SHOWN + 1
    assert found[-1] == "m.yaml: and 20 more problems"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(MatrixError) as caught:
        load_matrix(path)
    assert str(caught.value) == f"{path}: can't be read: No such file or directory"
    assert caught.value.hint == "give the matrix file with --matrix PATH"
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == EXIT_INPUT


def test_a_directory_is_not_a_matrix_file(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="can't be read: Is a directory"):
        load_matrix(tmp_path)


def test_a_file_name_with_nul_is_an_error() -> None:
    with pytest.raises(MatrixError, match="can't be read"):
        load_matrix("a\0b")


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: a terabyte that takes no space
    with pytest.raises(MatrixError, match=f"is larger than {MAX_BYTES:,} bytes"):
        load_matrix(path)
