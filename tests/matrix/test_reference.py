"""docs/reference/matrix.md agrees with the code."""

from __future__ import annotations

import re

from validator.matrix import document, images, load, schema
from validator.matrix.load import AXES, parse_matrix
from validator.matrix.plan import MAX_JOBS, expand

from .support import FILE

TEXT = (FILE.parent / "docs/reference/matrix.md").read_text(encoding="utf-8")


def test_the_example_file_works() -> None:
    match = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert match is not None
    cells = expand(parse_matrix(match[1].encode()), "quick").cells
    assert len(cells) == 4
    assert cells[0].identifier == "tf2.21.0-cuda12.5-cudnn9.3-py311@r580-l4"


def test_every_selector_has_a_row() -> None:
    body = TEXT.split("\n## Selectors\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(AXES)


def test_the_stated_limits_are_current() -> None:
    body = TEXT.split("\n## Limits\n")[1]
    assert document.MAX_BYTES == 1024**2
    assert f"{document.MAX_DEPTH} levels" in body
    assert f"| values | {document.MAX_VALUES:,}," in body
    assert f"{schema.MAX_TEXT} characters, {schema.MAX_AXIS} values" in body
    assert f"{images.MAX_IMAGES:,}, {images.MAX_HOSTS:,}, {load.MAX_CELLS:,}" in body
    assert f"{document.MAX_SHOWN} are shown; reading ends at {document.MAX_PROBLEMS:,}" in body
    assert f"at most {MAX_JOBS} jobs" in TEXT
