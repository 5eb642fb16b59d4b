"""Write which facts a page cites, with their sources.

A page cites a fact by its id, as code. What is between the comments of LIST is replaced.
`scripts/update-docs` runs this file. If a page is out of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from validator.compat.facts import COMPILED, Fact, fact
from validator.compat.releases import build, releases

PAGES = (Path(__file__).parent / "explanation" / "compatibility.md",)
LIST = re.compile(r"(<!-- generated: facts -->\n).*?(<!-- end -->\n)", re.DOTALL)
_ID = re.compile(r"`([\w.-]+)`")


def with_sources(text: str) -> str:
    """Return the text of a page with the facts that it cites, in the order in which they come."""
    known = _facts()
    cited = dict.fromkeys(name for name in _ID.findall(LIST.sub("", text)) if name in known)
    rows = "".join(
        f"| `{name}` | {known[name].status} | {as_markdown(known[name].source)} |\n" for name in cited
    )
    return LIST.sub(
        lambda match: f"{match[1]}| fact | status | source |\n|---|---|---|\n{rows}{match[2]}", text
    )


def _facts() -> Mapping[str, Fact]:
    """Return all facts by their ids, those about wheels that were opened too."""
    known = [fact(row) for row in _rows(json.loads(COMPILED.read_bytes()))]
    known += [found.fact for release in releases() if (found := build(release.version))]
    return {one.id: one for one in known}


def _rows(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        if {"id", "status", "sources"} <= content.keys():
            yield content
        content = list(content.values())
    if isinstance(content, list):
        for entry in content:
            yield from _rows(entry)


def as_markdown(text: str) -> str:
    """Return a text as Markdown in a table: its addresses are links, and nothing else is markup."""
    text = re.sub(r"([|<>*\[\]_`])", r"\\\1", text)
    return re.sub(r"https://[^\s;)]+", lambda match: f"<{match[0].replace(chr(92), '')}>", text)


def main() -> int:
    for page in PAGES:
        page.write_text(with_sources(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
