"""The documentation says what the program does, and its links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import checks, commands, facts, fields, keys, releases, starts
from docs.transcripts import ROOT, TRANSCRIPT, on_a_terminal, pages, refreshed
from validator.cli import COMMANDS
from validator.dataset.tables import fact_rows
from validator.delivery.formats import FORMATS

PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages()}
TRANSCRIPTS = [
    pytest.param(name, match, id=f"{name}:{match['command']}")
    for name, text in PAGES.items()
    for match in TRANSCRIPT.finditer(text)
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: A path of this repository in code.
FILE = re.compile(r"`((?:\.ci|\.github|benchmarks|docs|images|scripts|tests|validator)/[\w./-]+)[ `]")
EXTERNAL = re.compile(r"[a-z][a-z+]*:")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "match"), TRANSCRIPTS)
def test_a_transcript_matches_the_output_of_the_command(page: str, match: re.Match[str]) -> None:
    assert refreshed(match[0], on_a_terminal) == match[0], f"{page} is out of date: run scripts/update-docs"
    assert len(match["shown"]) > 300


def test_every_transcript_marker_is_read() -> None:
    markers = sum(text.count("<!-- transcript") for text in PAGES.values())
    assert markers == len(TRANSCRIPTS) > 0


def test_the_pages_about_checks_are_current() -> None:
    page = PAGES["docs/reference/report.md"]
    assert len(checks.TABLE.findall(page)) == 1
    assert checks.report(page) == page, "run scripts/update-docs"


def test_the_page_of_fields_describes_every_document() -> None:
    assert all(fields.fields(kind) for kinds in fields.DOCUMENTS.values() for kind in kinds.values())
    assert fields.page().count("\n| field | type | content |\n") == sum(map(len, fields.DOCUMENTS.values()))


@pytest.mark.parametrize("path", keys.SCHEMAS, ids=lambda path: path.name)
def test_the_tables_of_keys_are_current(path: Path) -> None:
    text = PAGES[str(path.relative_to(ROOT))]
    definitions = json.loads(keys.SCHEMAS[path].read_text(encoding="utf-8"))["definitions"]
    tables = {match[2]: match[0] for match in keys.TABLE.finditer(text)}
    assert tables.keys() == definitions.keys(), "each definition needs one table"
    for name, definition in definitions.items():
        others = [table for other, table in tables.items() if other != name]
        rows = set(re.findall(r"^\| `(\w+)` \|", tables[name], re.MULTILINE))
        assert rows, name
        for key in definition["properties"].keys() - rows:
            assert any(f"| `{key}` |" in table for table in others), key
    assert keys.refreshed(path) == text, "run scripts/update-docs"


def test_a_key_that_a_section_shares_with_its_host_classes_is_only_in_their_table() -> None:
    page = keys.refreshed(keys.REFERENCE / "fleet.md")
    tables = {match[2]: match[0] for match in keys.TABLE.finditer(page)}
    assert "| `partition` |" not in tables["SlurmSection"]
    assert "| `time_limit` | 1 to 43,200 | `30` |" in tables["SlurmPlace"]
    (row,) = (line for line in tables["SlurmPlace"].splitlines() if line.startswith("| `partition` |"))
    assert row.endswith(" Also for the whole cluster. |")
    (row,) = (line for line in tables["SlurmPlace"].splitlines() if line.startswith("| `gres` |"))
    assert "whole cluster" not in row


def test_the_exit_codes_are_current() -> None:
    overview = PAGES["docs/reference/commands.md"]
    assert len(commands.CODES.findall(overview)) == 1
    assert commands.overview(overview) == overview, "run scripts/update-docs"


def test_the_page_of_the_releases_is_current() -> None:
    assert releases.text() == PAGES["docs/reference/releases.md"], "run scripts/update-docs"
    heads = [re.findall(r"^\| GPU \| (.*) \|$", page, re.M) for page in (releases.text(), releases.older())]
    rows = re.findall(r"^\| (\d\S*) \| \d", releases.text(), re.MULTILINE)
    assert [name for (head,) in heads for name in head.split(" | ")] == rows


@pytest.mark.parametrize(("name", "capability"), [("RTX 4090", "8.9"), ("RTX 5090", "12.0"), ("T4", "7.5")])
def test_a_gpu_is_found_by_its_name_on_the_page_of_the_releases(name: str, capability: str) -> None:
    page = PAGES["docs/reference/releases.md"]
    (row,) = (line for line in page.splitlines() if name in line.strip(" |").split("| ")[-1].split(", "))
    assert row.startswith(f"| **{capability}** |")


def test_the_pages_about_facts_are_current() -> None:
    page = PAGES["docs/reference/facts.md"]
    assert len(facts.TABLE.findall(page)) == 1
    assert facts.page(page) == page, "run scripts/update-docs"


def test_the_index_has_every_fact_with_a_source() -> None:
    page = facts.index()
    lines = page.partition("\n## Sources\n")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    listed = {row[0].strip("`"): row[4] for row in rows}
    assert listed.keys() == {row.id for row in fact_rows({})}
    explained = set(re.findall(r"^\| `(.+?)` \|", page.partition("\n## Sources\n")[2], re.MULTILINE))
    for name, sources in listed.items():
        keys_ = set(re.findall(r"`(.+?)`", sources))
        assert keys_ <= explained, name
        assert keys_ or "](https://github.com/" in sources or sources == "the wheel itself", name


def test_every_fact_that_the_explanation_cites_exists() -> None:
    page = PAGES["docs/explanation/compatibility.md"]
    named = set(re.findall(r"\(((?:`[a-z][\w.-]*-[\w.-]+`(?:, )?)+)\)", page))
    ids = {name for group in named for name in re.findall(r"`(.+?)`", group)}
    assert len(ids) > 10
    assert ids <= {row.id for row in fact_rows({})}


def test_every_environment_variable_of_an_option_has_a_row() -> None:
    table = PAGES["docs/reference/commands.md"].partition("## Environment variables")[2]
    used = {name for text in commands.pages().values() for name in re.findall(r"env var: (\w+)", text)}
    assert used <= set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert used


def test_the_example_of_a_start_is_current() -> None:
    page = PAGES["docs/how-to/start-an-image.md"]
    assert [match["format"] for match in starts.EXAMPLE.finditer(page)] == ["compose"]
    assert all(f"\n## {name}\n" in starts.page() for name in FORMATS)
    assert starts.refreshed(page) == page, "run scripts/update-docs"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in LINK.findall(_prose(PAGES[page])):
        if EXTERNAL.match(target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_are_named_exist(page: str) -> None:
    named = set(FILE.findall(PAGES[page]))
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(page: str) -> None:
    wanted = 0
    for number, line in enumerate(PAGES[page].splitlines(), 1):
        cells = re.sub(r"`[^`]*`|\\[|]", "", line).count("|") if line.startswith("|") else 0
        assert cells in (0, wanted or cells), f"{page}:{number}: {line}"
        wanted = cells


def test_every_page_is_linked() -> None:
    linked = {
        str(((ROOT / page).parent / target.partition("#")[0]).resolve().relative_to(ROOT))
        for page, text in PAGES.items()
        for target in LINK.findall(_prose(text))
        if not EXTERNAL.match(target)
    }
    assert {page for page in PAGES if page != "README.md"} <= linked


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 110


def test_every_command_has_a_row() -> None:
    table = PAGES["docs/reference/commands.md"].split("\n## ")[0]
    names = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(.*?)`", row)
    }
    assert names == set(COMMANDS)


def _prose(text: str) -> str:
    """Return the page without its code, which may hold what looks like a link."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def _anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
