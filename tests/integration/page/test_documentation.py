"""The documentation's site in a real Chromium, as `scripts/site` builds it, from disk and from a host."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ...loop import tiers
from ...workflows.night import check_out, outside
from .conftest import Open, serve
from .test_accessible import SIZES, violations


@pytest.fixture(scope="module")
@tiers.service
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site, made in a copy of the working tree."""
    copy = tmp_path_factory.mktemp("copy")
    check_out(copy)
    done = subprocess.run(["scripts/site"], cwd=copy, env=outside(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return copy / "site"


@pytest.fixture(scope="module")
def host(documentation: Path) -> Iterator[str]:
    with serve(documentation) as url:
        yield url


@pytest.fixture(params=["from disk", "from a host"])
def home(request: pytest.FixtureRequest, documentation: Path, host: str) -> str:
    return documentation.as_uri() if request.param == "from disk" else host


def test_a_directory_with_other_files_is_not_emptied(documentation: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run(
        ["scripts/site"],
        cwd=documentation.parent,
        env=outside() | {"SITE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"{tmp_path} is not empty and holds no site" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_search_finds_pages(open_page: Open, home: str) -> None:
    page = open_page(home)
    field = page.get_by_role("textbox", name="Search")
    field.click()
    field.press_sequentially("libdevice")
    hit = page.locator(".md-search-result__link", has_text="Causes").first
    expect(hit).to_be_visible()
    hit.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Causes")
    assert page.url.startswith(f"{home}/causes.html")


def test_the_navigation_leads_to_the_page_of_the_matrix(open_page: Open, home: str) -> None:
    page = open_page(home)
    page.get_by_role("link", name="How-to guides").first.click()
    page.get_by_role("link", name="The matrix").first.click()
    assert page.url == f"{home}/matrix/index.html"
    expect(page.locator("#grid")).to_be_visible()


@pytest.mark.usefixtures("package")
def test_the_page_of_the_matrix_answers_questions(open_page: Open, documentation: Path) -> None:
    page = open_page((documentation / "matrix").as_uri())
    expect(page.get_by_role("button", name="Show what works")).to_be_visible()
    assert len(list((documentation / "matrix/answers").iterdir())) == 2


@pytest.mark.parametrize(("scheme", "size"), [("light", "large"), ("dark", "phone")])
def test_axe_finds_nothing_moderate(open_page: Open, host: str, scheme: str, size: str) -> None:
    for name in ("index", "reference/commands"):
        page = open_page(
            host,
            file=f"{name}.html",
            color_scheme=scheme,
            viewport=SIZES[size],
            reduced_motion="reduce",
        )
        expect(page.get_by_role("button", name="Copy to clipboard").first).to_be_attached()
        assert violations(page, "moderate", "serious", "critical") == []
