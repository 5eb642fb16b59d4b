"""The examples in docs/how-to/use-the-data.md print what the page says."""

from __future__ import annotations

from pathlib import Path

from docs.examples import EXAMPLE, PAGE, export_to, refreshed


def test_the_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = list(EXAMPLE.finditer(page))
    # Every block of Python is one, and each shows something.
    assert len(found) == page.count("```python") == page.count("<!-- example") == 7
    assert all(match["shown"].strip() for match in found)
    export_to(tmp_path)
    assert refreshed(page, tmp_path) == page, "run scripts/update-docs"
