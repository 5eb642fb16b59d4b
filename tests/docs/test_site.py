"""The site has every page, says the same as GitHub shows, and loads and links nothing that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import tomli
from markdown_it import MarkdownIt
from mkdocs.exceptions import PluginError

from docs.site.hooks import HOME, MATRIX, PARTS, made, navigation

from ..loop import tiers
from .built import DOCS, ROOT, build, content

#: Where each page of the site is -> its text, for those on GitHub and those that only the site has.
TEXTS = {str(page.relative_to(DOCS)): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
URLS = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
#: What a reader would miss if one of the two showed it as something else, such as a list as text.
STRUCTURE = (
    "a", "blockquote", "em", "h1", "h2", "h3", "h4", "h5", "img", "li", "ol", "pre", "strong", "table", "td",
    "ul",
)  # fmt: skip


@pytest.fixture(scope="module")
@tiers.service
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    build(target)
    return target


def _entries(entries: object) -> list[str]:
    """Return the pages of a navigation, in its order."""
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    assert isinstance(inner, (list, type({}.values())))
    return [page for entry in inner for page in _entries(entry)]


def texts() -> dict[str, str]:
    """Return the text of each page, with those that only the site has."""
    return {**TEXTS, **made()}


def test_the_navigation_has_every_page_once() -> None:
    found = _entries(navigation(DOCS, made()))
    assert sorted(found) == sorted(texts())
    assert found[0] == HOME


def test_a_new_page_appears_by_its_title(tmp_path: Path) -> None:
    for name, title in {
        "index.md": "Home",
        "how-to/zebra.md": "A guide",
        "how-to/ant.md": "the last guide",
        "how-to/middle.md": "Middle",
        "reference/commands.md": "Commands",
        "reference/commands/run.md": "run",
        "reference/commands/plan.md": "plan",
        "reference/facts.md": "Facts",
        "trust.md": "Trust",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"<!-- a comment -->\n# {title}\n\nText.\n")
    assert navigation(tmp_path) == [
        {"Home": "index.md"},
        {"How-to guides": ["how-to/zebra.md", "how-to/middle.md", "how-to/ant.md"]},
        {"Reference": [
            {"Commands": [
                "reference/commands.md", "reference/commands/plan.md", "reference/commands/run.md",
            ]},
            "reference/facts.md",
        ]},
        {"Explanation": ["trust.md"]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("elsewhere/page.md", "# Title\n", "docs/elsewhere/page.md is in no part"),
        ("page.md", "# Title\n", "docs/page.md is in no part"),
        ("how-to/page.md", "Text\n", "page.md has no title"),
    ],
)
def test_a_page_that_has_no_place_is_an_error(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(PluginError, match=re.escape(said)):
        navigation(tmp_path)


def test_github_and_the_site_show_the_same(site: Path) -> None:
    """Python-Markdown needs four spaces before what belongs to an entry of a list; GitHub takes two."""
    different = {}
    for page, text in texts().items():
        github = content(MarkdownIt("commonmark").enable("table").render(text), article=False).elements
        ours = content((site / page).with_suffix(".html").read_text(encoding="utf-8")).elements
        if found := {name: (ours[name], github[name]) for name in STRUCTURE if ours[name] != github[name]}:
            different[page] = found
    assert different == {}


def test_no_page_is_written_twice() -> None:
    assert TEXTS.keys() & made().keys() == set()


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: content(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > len(texts())
    wrong = []
    for path, found in pages.items():
        for _, address in found.addresses:
            parts = urlsplit(address)
            # The page for addresses that don't exist is shown at any of them, so its own are absolute.
            absolute = path.name == "404.html" and parts.path.startswith("/")
            if parts.scheme or parts.netloc:
                continue
            base = site if absolute else path.parent
            relative = unquote(parts.path).removeprefix(urlsplit(URLS["Documentation"]).path)
            target = (base / relative).resolve() if relative else path
            target = target / "index.html" if target.is_dir() else target
            if target == site / MATRIX:
                continue
            if not target.exists() or (
                parts.fragment and parts.fragment not in pages[target].ids | {"__skip"}
            ):
                wrong.append(f"{path.relative_to(site)}: {address}")
    assert wrong == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {
        address
        for path in site.rglob("*.html")
        for tag, address in content(path.read_text(encoding="utf-8")).addresses
        if tag not in ("a",) and urlsplit(address).scheme and not address.startswith(URLS["Documentation"])
    }
    assert loaded == set()
    scripts = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert "unpkg.com" not in scripts
    # This name makes the theme's script ask for the repository's stars.
    assert 'data-md-component="source"' not in scripts


def test_pages_have_the_address_of_the_project_and_a_link_to_edit_them(site: Path) -> None:
    html = (site / "how-to/diagnose-a-gpu.html").read_text(encoding="utf-8")
    home = URLS["Documentation"]
    assert f'<link rel="canonical" href="{home}how-to/diagnose-a-gpu.html">' in html
    assert f'href="{URLS["Homepage"]}/edit/main/docs/how-to/diagnose-a-gpu.md"' in html
    # Files outside of docs/ are in the repository.
    assert f'href="{URLS["Homepage"]}/blob/main/README.md#limits"' in html
    generated = (site / "reference/codes.html").read_text(encoding="utf-8")
    assert "/edit/main/" not in generated
    assert MATRIX in generated


def test_the_site_has_no_files_of_its_own_making(site: Path) -> None:
    """Only pages, pictures, the theme and the list for programs: no Python, no templates."""
    kinds = {path.suffix for path in site.rglob("*") if path.is_file()}
    assert {str(path.relative_to(site)) for path in site.rglob("*.txt")} == {"llms.txt"}
    assert kinds <= {".html", ".md", ".txt", ".png", ".svg", ".css", ".js", ".json", ".map", ".xml", ".gz"}
    assert {path.name for path in site.iterdir() if path.is_dir()} - {"assets", "images", "search"} <= set(
        PARTS
    )


def test_each_page_is_next_to_it_as_markdown(site: Path) -> None:
    assert sorted(str(path.relative_to(site)) for path in site.rglob("*.md")) == sorted(texts())
    wrong = []
    for name, source in texts().items():
        text = (site / name).read_text(encoding="utf-8")
        assert text.count("\n## ") == source.count("\n## ") and len(text) > 0.9 * len(source), name
        for address in re.findall(r"(?<=\]\()[^)\s#]+", text):
            parts = urlsplit(address)
            if not parts.scheme and not ((site / name).parent / unquote(parts.path)).exists():
                wrong.append(f"{name}: {address}")
    assert wrong == []


def test_the_list_for_programs_has_every_page_once(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# TensorFlow GPU matrix\n\n> Find out which TensorFlow")
    sections = dict(section.split("\n", 1) for section in text.split("\n## ")[1:])
    assert list(sections) == ["Start", *PARTS.values(), "Optional"]
    rows = re.findall(r"^- \[.+\]\((\S+)\)(?:: [^\n]+\.)?$", text, re.MULTILINE)
    assert len(rows) == text.count("\n- ")
    assert sorted(row.removeprefix(URLS["Documentation"]) for row in rows) == sorted(texts())
    assert re.findall(r"\((\S+)\)", sections["Optional"])[0].removeprefix(URLS["Documentation"]) in made()
    assert (
        f"- [Answer an assistant's questions]({URLS['Documentation']}how-to/use-from-an-assistant.md):"
        " `validator mcp` gives an assistant the answers of this tool, by the Model Context Protocol.\n"
    ) in sections["How-to guides"]


def test_every_page_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    assert {entry["location"].partition("#")[0] for entry in index["docs"]} == {
        page.replace(".md", ".html") for page in texts()
    }
    # From disk, the same index is a script.
    assert (site / "search/search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
