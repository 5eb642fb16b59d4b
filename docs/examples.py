"""Run the examples in docs/how-to/use-the-data.md on a fresh export, and write what they print below them.

An example is a block of Python below the comment `<!-- example -->`, followed by a block of text with its
output. The examples of a page share their variables. `scripts/update-docs` runs this file. If an output is
out of date, `tests/dataset/test_export.py` fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validator.cli.planning import load_cells
from validator.dataset.export import FORMATS, export
from validator.resources import shipped_matrix

PAGE = Path(__file__).parent / "how-to" / "use-the-data.md"
#: The profile of the cells in the export that the page describes.
_PROFILE = "nightly"
EXAMPLE = re.compile(
    r"(?P<head><!-- example -->\n```python\n(?P<code>.*?)```\n```text\n)(?P<shown>.*?)(?P<foot>```\n)",
    re.DOTALL,
)


def refreshed(text: str, directory: Path) -> str:
    """Return the text of a page with the output of its examples, run in the directory with `data`."""
    names: dict[str, Any] = {}

    def block(match: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(match["code"], str(PAGE), "exec"), names)
        shown = "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())
        return match["head"] + shown + match["foot"]

    with _working_in(directory):
        return EXAMPLE.sub(block, text)


def export_to(directory: Path) -> None:
    """Write the export that the page describes: a profile of this project's matrix, without records."""
    cells = load_cells(shipped_matrix(), _PROFILE, ())
    export(directory / "data", cells, lambda: iter(()), list(FORMATS), profile=_PROFILE)


@contextlib.contextmanager
def _working_in(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        export_to(Path(place))
        PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), Path(place)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
