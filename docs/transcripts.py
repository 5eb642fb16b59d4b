"""Rewrite the command transcripts in README.md and docs/ with what the commands print now.

A transcript is a fenced block below a comment that holds the command's arguments:

    <!-- transcript: doctor tests/data/some.log -->
    ```text
    what `validator doctor tests/data/some.log` prints
    ```

`<!-- transcript, 12 lines: ... -->` keeps the first 12 lines and ends with `[...]`. Commands run in the root
of the repository, on a terminal of 80 columns. `scripts/update-docs` runs this file. If a transcript is out
of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = 80
#: Where the pages say that Python is. A copy of the checkout has a link there.
PYTHON = ROOT / ".venv/bin/python"
#: The last line of a transcript that was cut.
CUT = "[...]"
TRANSCRIPT = re.compile(
    r"(?P<head><!-- transcript(?:, (?P<lines>\d+) lines)?: (?P<command>.+?) -->\n```text\n)"
    r"(?P<shown>.*?)(?P<foot>```\n)",
    re.DOTALL,
)


def pages() -> list[Path]:
    """Return the Markdown files that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def refreshed(text: str, printed: Callable[[str], str]) -> str:
    """Return the text of a page with each transcript replaced by what `printed` returns for its command."""

    def block(match: re.Match[str]) -> str:
        shown = printed(match["command"])
        if match["lines"]:
            kept = shown.splitlines(keepends=True)[: int(match["lines"])]
            shown = "".join(kept) + f"{CUT}\n"
        return match["head"] + shown + match["foot"]

    return TRANSCRIPT.sub(block, text)


def on_a_terminal(command: str) -> str:
    """Return what `validator` with these arguments shows on a terminal without colors."""
    shown = terminal_output(shlex.split(command), COLUMNS=str(COLUMNS), TERM="dumb")
    return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def terminal_output(arguments: Sequence[str], **environment: str) -> str:
    """Return what `validator` writes to a terminal, with its control sequences."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [str(PYTHON), "-m", "validator", *arguments],
        cwd=ROOT,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    os.close(theirs)
    shown = io.BytesIO()
    try:
        while piece := os.read(ours, 65536):
            shown.write(piece)
    except OSError:
        # Linux reports the closed end of a pty as an I/O error.
        pass
    child.wait()
    os.close(ours)
    return shown.getvalue().decode()


def main() -> int:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = refreshed(text, on_a_terminal)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"updated: {page.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
