"""Write the list of codes of rules, and make the site's index of all facts.

In `docs/reference/facts.md`, only the table between the comments of TABLE is replaced. `scripts/update-
docs` runs this file. If a page is out of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from validator.compat import releases
from validator.compat.facts import DATA, MEASUREMENTS, Row, all_rows, source_line
from validator.model.prediction import RULES

REFERENCE = Path(__file__).parent / "reference"
PAGE = REFERENCE / "facts.md"
TABLE = re.compile(r"(<!-- generated: rules -->\n).*?(<!-- end -->\n)", re.DOTALL)
#: The file with the sources; every other one has facts.
_SOURCES = "sources"
#: The file whose rows were read in wheels.
_BUILDS = "builds"
#: What the index says about the rows that are not from a YAML file.
_MEASURED = "What real reports in [`measurements/`](../how-to/publish-a-measurement.md) show"
#: Columns of their own. Everything else is what a fact says.
_COLUMNS = ("id", "status", "sources")
#: The most characters that are shown of what a fact says.
_LONGEST = 300
_HEAD = """\
# Index of facts

Every [fact](facts.md) that predictions are based on, with its sources. The files are in
`validator/compat/data/`, and the comment at the start of each explains its fields. Long facts are cut short
here. `data export` writes all of them as a [table](data.md#facts).

This page is generated from the files when the site is built.
"""


def page(text: str) -> str:
    """Return the text of facts.md with the current table."""
    return TABLE.sub(lambda match: match[1] + "".join(_rules()) + match[2], text)


def _rules() -> Iterator[str]:
    yield "| code | meaning |\n|---|---|\n"
    for code, meaning in RULES.items():
        yield f"| `{code}` | {meaning} |\n"


def _names() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.yaml") if path.stem != _SOURCES)


def content_of(name: str) -> str:
    """Return what a data file contains: the first sentence of the comment that it starts with."""
    comment = []
    for line in (DATA / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    found = re.match(r".+?\.(?= |$)", " ".join(comment))
    if found is None:
        raise ValueError(f"{name}.yaml: it has to start with a comment that is a sentence")
    return found[0].removesuffix(".")


def index() -> str:
    """Return the site's page with all facts."""
    found: dict[str, list[tuple[str, Row]]] = {name: [] for name in [*_names(), MEASUREMENTS]}
    for name, section, row in all_rows():
        found[name].append((section, row))
    parts = [_HEAD]
    for name, rows in found.items():
        measured = name == MEASUREMENTS
        parts.append(f"\n## {name}{'' if measured else '.yaml'}\n\n")
        parts.append(f"{_MEASURED if measured else content_of(name)}.\n\n")
        parts.append("| fact | part | what it says | status | sources |\n|---|---|---|---|---|\n")
        parts += (_fact(name, section, row) for section, row in rows)
    parts.append("\n## Sources\n\n| source | what was read |\n|---|---|\n")
    known = {key for name, _, row in all_rows() if name != _BUILDS for key in row["sources"]}
    parts += (
        f"| `{key}` | {as_markdown(source_line(key))} |\n" for key in sorted(known) if not _is_thread(key)
    )
    return "".join(parts)


def _fact(name: str, section: str, row: Row) -> str:
    said = _said({key: value for key, value in row.items() if key not in _COLUMNS})
    if len(said) > _LONGEST:
        said = said[:_LONGEST].rsplit(" ", 1)[0].rstrip(" ,;:") + " …"
    read = name == _BUILDS
    identifier = releases.fact_of(row).id if read else row["id"]
    sources = "the wheel itself" if read else ", ".join(map(_source, row["sources"]))
    return f"| `{identifier}` | `{section}` | {as_markdown(said)} | {row['status']} | {sources} |\n"


def _said(value: Any) -> str:
    """Return the fields of a fact as one line."""
    if isinstance(value, Mapping):
        return "; ".join(
            f"{key}: ({_said(inner)})" if isinstance(inner, Mapping) else f"{key}: {_said(inner)}"
            for key, inner in value.items()
        )
    return ", ".join(map(_said, value)) if isinstance(value, list) else " ".join(str(value).split())


def as_markdown(text: str) -> str:
    """Return a text as Markdown in a table: its addresses are links, and nothing else is markup."""
    text = re.sub(r"([|<>*\[\]_`])", r"\\\1", text)
    return re.sub(r"https://[^\s;)]+", lambda match: f"<{match[0].replace(chr(92), '')}>", text)


def _source(key: str) -> str:
    return f"[{key.replace('_', chr(92) + '_')}]({source_line(key)})" if _is_thread(key) else f"`{key}`"


def _is_thread(key: str) -> bool:
    """Return whether a source is an issue or a pull request, which needs no explanation."""
    return "#" in key


def main() -> int:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
