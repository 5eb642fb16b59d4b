"""axe on the page: light and dark, large and small, closed and open. Nothing serious may be found."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import RECORDS, Open, Served

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
MEASURED = f"#cell={RECORDS[2].cell}"
COMPARED = f"#compare={RECORDS[2].cell}&with={RECORDS[3].cell}"
CHOOSING = f"#compare={RECORDS[2].cell}"
PREDICTED = "#cell=tf2.21.0-cuda12.5-cudnn9.3-py311@r535-t4"
SIZES = {"large": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


def violations(page: Page, *impacts: str) -> list[str]:
    page.evaluate(AXE)
    found: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    assert len(found["passes"]) > 10
    return [
        f"{rule['id']}: {rule['help']}: {rule['nodes'][0]['html'][:200]}"
        for rule in found["violations"]
        if rule["impact"] in impacts
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "fragment",
    ["", MEASURED, PREDICTED, COMPARED, CHOOSING],
    ids=["closed", "measured", "predicted", "compared", "choosing"],
)
def test_axe_finds_nothing_serious(
    open_page: Open, directory: Path, scheme: str, size: str, fragment: str
) -> None:
    # Without motion: a dialog that is still fading in has poor contrast.
    page = open_page(
        directory.as_uri(),
        fragment,
        color_scheme=scheme,
        viewport=SIZES[size],
        reduced_motion="reduce",
    )
    if fragment == CHOOSING:
        # With the full name of a heading, too.
        page.locator("#grid thead th").nth(1).focus()
        expect(page.locator("#tip")).to_be_visible()
    elif fragment:
        says = {MEASURED: "History", PREDICTED: "Not measured", COMPARED: "differ."}
        expect(page.get_by_role("dialog")).to_contain_text(says[fragment])
        for summary in page.get_by_role("dialog").locator("summary").all():
            summary.click()
    else:
        page.locator("figure summary:visible").click()
    assert violations(page, "moderate", "serious", "critical") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_serious_while_something_runs(
    open_page: Open, served: Served, scheme: str, size: str
) -> None:
    page = open_page(served.address, color_scheme=scheme, viewport=SIZES[size], reduced_motion="reduce")
    live = page.get_by_role("region", name="Running now")
    live.get_by_text("Results of 1 image").click()
    expect(live.get_by_role("progressbar")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert violations(page, "moderate", "serious", "critical") == []


def test_axe_finds_a_planted_problem(open_page: Open, directory: Path) -> None:
    """The test above would fail if there was a violation."""
    page = open_page(directory.as_uri())
    page.evaluate(
        """() => {
            const select = document.querySelector("#filters select");
            select.parentElement.replaceWith(select);
            document.documentElement.style.setProperty("--quiet", "#ccc");
        }"""
    )
    found = violations(page, "serious", "critical")
    assert any(entry.startswith("select-name") for entry in found)
    assert any(entry.startswith("color-contrast") for entry in found)
