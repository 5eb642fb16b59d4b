"""Build the documentation as `scripts/site` does, and read what is in its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def build(target: Path) -> str:
    """Build the site into a directory that has none, and return what MkDocs says about it."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@dataclass
class Content:
    """The article of a page: its elements by name, and everything that it refers to."""

    elements: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    #: (element, address) of the whole page, scripts and styles too.
    addresses: list[tuple[str, str]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.content = Content()
        self._inside = inside

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        for name in ("href", "src"):
            if name in given:
                self.content.addresses.append((tag, given[name]))
        if "id" in given:
            self.content.ids.add(given["id"])
        if tag == "article":
            self._inside = True
        # The theme's own: a link next to each heading and line of code, and the one to edit the page.
        own = {"headerlink", "md-content__button"} & set(given.get("class", "").split())
        if self._inside and not own and not given.get("name", "").startswith("__"):
            self.content.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = False


def content(html: str, *, article: bool = True) -> Content:
    """Return what is in a page. article: count only the elements of its article."""
    reader = _Reader(inside=not article)
    reader.feed(html)
    return reader.content
