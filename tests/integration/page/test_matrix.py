"""Explore the matrix in a real Chromium: names, folded columns, wide tables, comparisons, print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from validator.model.prediction import Outcome
from validator.model.record import Verdict
from validator.model.spec import HostClass, ImageSpec, Variant
from validator.versions import ComputeCapability, DriverRelease

from ...certify.fixtures import LIMIT
from ...reports.page.test_site import HOSTILE
from ...reports.page.values import H100, IMAGES, NO_GPU, T4, image, measured, planned, sources
from .conftest import RECORDS, RUN, Open, Served, write
from .test_page import place

CERTIFIED, FAILED, OTHER = RECORDS[0], RECORDS[2], RECORDS[3]
HOSTS = [
    HostClass(f"r{driver}-h100", DriverRelease.parse(str(driver)), ComputeCapability(9, 0), "h100")
    for driver in range(520, 600, 8)
]
CPU = ImageSpec("2.21.0", "3.12", Variant.CPU)


@pytest.fixture(scope="session")
def wide_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page with more releases than fit, one of them only for a machine without a GPU."""
    images = [image(f"2.{minor}.0") for minor in range(21, 5, -1)]
    cells = [
        *planned(images, HOSTS),
        *planned([CPU], [NO_GPU]),
        *planned([image("2.5.0")], [H100], Outcome.FAILS),
        *planned([image("2.4.0")], [T4], Outcome.FAILS),
    ]
    return write(tmp_path_factory.mktemp("wide"), sources([measured(images[0], H100, Verdict.FAILED)], cells))


def tip(page: Page) -> str:
    expect(page.locator("#tip")).to_be_visible()
    return page.locator("#tip").inner_text()


def test_a_limit_has_a_mark_a_name_a_filter_and_its_whole_text(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    box = place(page, "r580-h100", "2.20.0")
    expect(box.locator(".limit")).to_have_text("limit")
    expect(box).to_have_accessible_name(
        "works certified with a limit, TensorFlow 2.20.0, CUDA 12.5, cuDNN 9.3 on NVIDIA H100, driver 580"
    )
    box.hover()
    assert tip(page).endswith(f"Measured: certified. Limit: {LIMIT.sentence}.")
    page.locator("#filters [name=verdict]").select_option("limits")
    expect(page.locator("#shown")).to_have_text("1 of 9 combinations")
    box.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".verdicts")).to_contain_text(f"Limit{LIMIT.sentence}.")
    expect(dialog).to_contain_text(f"limit{LIMIT.sentence}")
    page.goto(f"{directory.as_uri()}/index.html#compare={CERTIFIED.cell}&with={OTHER.cell}")
    expect(page.get_by_role("row", name="Limits")).to_contain_text(LIMIT.sentence)


def test_headings_and_boxes_are_named_in_full_on_hover_and_on_focus(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    head = page.locator("#grid thead th").nth(1)
    head.hover()
    assert tip(page).startswith("TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3\n")
    assert "this release was built with. Python 3.11, 3.12." in tip(page)
    # The text stays while the pointer is on it, and Escape takes it away.
    page.locator("#tip").hover()
    page.wait_for_timeout(200)
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    place(page, "r580-h100", "2.21.0").hover()
    assert tip(page) == (
        "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3 on NVIDIA H100, driver 580\n"
        "Predicted: works. Measured: failed."
    )
    page.mouse.move(2, 2)
    expect(page.locator("#tip")).to_be_hidden()
    place(page, "r535-t4", "2.21.0").focus()
    page.keyboard.press("ArrowUp")
    expect(head).to_be_focused()
    expect(head).to_have_accessible_description(re.compile("TensorFlow 2.21.0, CUDA 12.5.*Python 3.11, 3.12"))
    page.keyboard.press("ArrowRight")
    assert tip(page).startswith("TensorFlow 2.20.0, CUDA 12.5")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert "NVIDIA T4, driver 535" in tip(page) and "its name is r535-t4" in tip(page)
    page.keyboard.press("ArrowDown")
    row = page.get_by_role("rowheader", name="NVIDIA H100 driver 580", exact=True)
    expect(row).to_be_focused()
    expect(row).to_have_accessible_description(re.compile("4 combinations, 3 of them measured"))
    page.keyboard.press("ArrowRight")
    expect(place(page, "r580-h100", "2.21.0")).to_be_focused()


def test_on_a_phone_headings_answer_to_a_tap_and_the_words_are_those_of_a_phone(
    open_page: Open, directory: Path
) -> None:
    page = open_page(
        directory.as_uri(), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    expect(page.get_by_text("Tap a box for its details")).to_be_visible()
    expect(page.get_by_text("Keys:")).to_be_hidden()
    page.locator("#grid thead th").nth(1).tap()
    assert tip(page).startswith("TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3")
    box = page.locator("#tip").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_almost_empty_columns_are_folded_and_counted(open_page: Open, wide_directory: Path) -> None:
    page = open_page(wide_directory.as_uri())
    status = page.get_by_role("status").first
    expect(status).to_have_text("164 combinations, 3 of them in 3 folded columns")
    expect(page.locator("#grid thead th:visible")).to_have_count(17)
    page.get_by_role("button", name="Show 3 almost empty columns").click()
    expect(status).to_have_text("164 combinations")
    expect(page.locator("#grid thead th:visible")).to_have_count(20)
    expect(page).to_have_url(re.compile("#columns=all$"))
    page.get_by_role("button", name="Fold 3 almost empty columns").click()
    expect(page.locator("#grid thead th:visible")).to_have_count(17)
    # What is asked for is never folded.
    page.locator("#filters select[name=cuda]").select_option("none")
    expect(status).to_have_text("1 of 164 combinations")
    expect(page.locator("#grid thead th:visible")).to_have_count(2)
    expect(page.locator("#fold")).to_be_hidden()


def test_a_wide_table_says_that_there_is_more(open_page: Open, wide_directory: Path) -> None:
    page = open_page(wide_directory.as_uri(), reduced_motion="reduce")
    cue = page.locator("#scroll-text")
    expect(cue).to_have_text(re.compile(r"Releases 1 to \d of 16"))
    expect(page.locator(".grid-frame")).to_have_class(re.compile("more-right"))
    left, right = page.locator("#scroll-left"), page.locator("#scroll-right")
    expect(left).to_have_attribute("aria-disabled", "true")
    while right.get_attribute("aria-disabled") == "false":
        right.click()
        page.wait_for_timeout(50)
    expect(cue).to_have_text(re.compile(r"Releases \d+ to 16 of 16"))
    expect(right).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".grid-frame")).not_to_have_class(re.compile("more-right"))
    expect(page.locator(".grid-frame")).to_have_class(re.compile("more-left"))
    page.locator("#filters select[name=tensorflow]").select_option("2.20.0")
    expect(page.locator("#scroll-cue")).to_be_hidden()


def test_measured_machines_come_first(open_page: Open, wide_directory: Path) -> None:
    page = open_page(wide_directory.as_uri())
    rows = page.locator("#grid tbody tr:visible").all_inner_texts()
    assert rows[0] == "Measured machines"
    assert rows[1].startswith("NVIDIA H100")
    assert rows[2] == "Machines with predictions only"


def test_a_count_is_a_filter(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), "#gpu=h100")
    page.locator(".summary").get_by_role("link", name="certified").click()
    expect(page.get_by_role("status").first).to_have_text("2 of 9 combinations")
    expect(page).to_have_url(re.compile("#gpu=h100&verdict=certified$"))
    page.go_back()
    expect(page.get_by_role("status").first).to_have_text("4 of 9 combinations")


def test_what_fails_offers_what_works(open_page: Open, wide_directory: Path) -> None:
    page = open_page(wide_directory.as_uri(), f"#cell={IMAGES[1]}@r580-h100&columns=all")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What works instead")
    expect(dialog).not_to_contain_text("build-matrix")
    page.goto(f"{wide_directory.as_uri()}/index.html#cell={image('2.5.0')}@r580-h100&columns=all")
    expect(dialog).to_contain_text(
        "on NVIDIA H100, driver 584: nothing here is expected to work with your driver."
    )
    expect(dialog).to_contain_text('pip install "tensorflow[and-cuda]==2.')
    dialog.get_by_role("link", name="TensorFlow 2.21.0, CUDA 12.5").click()
    expect(dialog.get_by_role("heading", level=2)).to_contain_text("TensorFlow 2.21.0")
    expect(dialog).to_contain_text("build-matrix")
    expect(dialog).not_to_contain_text("What works instead")


def test_two_combinations_are_compared_with_the_keyboard_alone(open_page: Open, address: str) -> None:
    page = open_page(address, f"#cell={FAILED.cell}")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("History")
    dialog.get_by_role("button", name="Compare with another").focus()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("Choose a second box in the table.")).to_be_visible()
    expect(place(page, "r580-h100", "2.21.0")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(dialog).to_have_accessible_name("Comparison of two combinations")
    expect(dialog.get_by_role("status")).to_contain_text("differ.")
    table = dialog.get_by_role("region", name="Comparison")
    expect(table.get_by_role("columnheader")).to_contain_text(
        ["What", "TensorFlow 2.21.0, CUDA 12.5", "TensorFlow 2.20.0, CUDA 12.5"]
    )
    row = table.get_by_role("row", name=re.compile("^Measured differs"))
    expect(row.get_by_role("cell")).to_have_text(["failed", "certified"])
    expect(table.get_by_role("row", name=re.compile("^gpu_compute"))).to_contain_text(
        "fail: about gpu_compute"
    )
    expect(table.get_by_role("row", name=re.compile("^cuDNN"))).to_have_count(0)
    page.get_by_label("Only what differs").press("Space")
    expect(table.get_by_role("row", name=re.compile("^cuDNN"))).to_contain_text("9.3")
    expect(page.get_by_label("Only what differs")).to_be_focused()
    # The address can be sent to somebody else.
    again = open_page(address, "#" + page.url.partition("#")[2])
    expect(again.get_by_role("dialog")).to_contain_text("differ.")
    assert page.url.endswith(f"#compare={FAILED.cell}&with={OTHER.cell}")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(re.compile("compare|with"))


def test_another_python_can_be_compared(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), f"#compare={FAILED.cell}&with={OTHER.cell}")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Python of the first combination").select_option(label="Python 3.11")
    expect(page).to_have_url(re.compile(re.escape(f"compare={CERTIFIED.cell}&with=")))
    expect(dialog.get_by_role("columnheader").nth(1)).to_contain_text("Python 3.11")


def test_a_comparison_can_be_given_up(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), f"#compare={FAILED.cell}")
    bar = page.get_by_text("Choose a second box in the table.")
    expect(bar).to_be_visible()
    page.get_by_role("button", name="Stop comparing").click()
    expect(bar).to_be_hidden()
    expect(page).not_to_have_url(re.compile("compare"))


def test_wheels_are_compared_from_records_and_from_locks(open_page: Open, tmp_path: Path) -> None:
    found = measured(
        IMAGES[0], H100, Verdict.FAILED, reason=HOSTILE,
        report={"environment": {"packages": {"numpy": "2.1.0", HOSTILE: "<b>1</b>"}}},
    )  # fmt: skip
    made = sources([found], wheels=lambda _: {"numpy": "2.2.0", "keras": HOSTILE})
    page = open_page(write(tmp_path, made).as_uri(), f"#compare={found.cell}&with={IMAGES[2]}@r580-h100")
    table = page.get_by_role("region", name="Comparison")
    expect(table.get_by_role("row", name=re.compile("^numpy")).get_by_role("cell")).to_have_text(
        ["2.1.0", "2.2.0"]
    )
    expect(table.get_by_role("row", name=re.compile("^keras"))).to_contain_text("not installed")
    expect(table.locator("img, script, b")).to_have_count(0)


#: CSS pixels across paper of 210 mm, and of 11 inches turned sideways, without the margins of 12 mm.
PORTRAIT, LANDSCAPE = 703, 965


@pytest.mark.parametrize("width", [PORTRAIT, LANDSCAPE])
def test_a_printed_page_shows_the_whole_table_and_no_controls(
    open_page: Open, wide_directory: Path, width: int
) -> None:
    page = open_page(wide_directory.as_uri(), color_scheme="dark", viewport={"width": width, "height": 900})
    wanted = page.locator("#grid thead th:visible").all_inner_texts()
    places = page.locator("#grid td a:visible").count()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for hidden in (
        "#filters",
        ".grid-tools",
        "#grid-help",
        "#skip-answers",
        "#skip-grid",
        "#choosing",
        "#grid",
    ):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tables = page.locator(".printed table")
    expect(tables).to_have_count(2)
    heads = [table.locator("thead th").all_inner_texts() for table in tables.all()]
    assert [head[0] for head in heads] == ["Machine"] * 2
    assert ["Machine", *(text for head in heads for text in head[1:])] == wanted
    assert page.locator(".printed td a:visible").count() == places
    for table in tables.all():
        box = table.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
    expect(tables.first.locator("tbody tr").nth(1)).to_have_text(
        re.compile("NVIDIA H100.*driver 580.*failed")
    )
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".printed")).to_have_count(0)


def test_only_what_the_filters_leave_is_printed(open_page: Open, wide_directory: Path) -> None:
    page = open_page(wide_directory.as_uri(), "#tensorflow=2.21.0&driver=580")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator(".printed thead th").all_inner_texts() == ["Machine", "2.21.0\nCUDA 12.5\ncuDNN 9.3"]
    assert page.locator(".printed tbody tr:not(.part)").count() == 1


def test_the_browser_prints_these_tables(open_page: Open, wide_directory: Path) -> None:
    """The tables are made when the browser prints, and taken away afterwards."""
    page = open_page(wide_directory.as_uri())
    page.evaluate("""() => {
        window.made = [];
        const printed = (nodes) => [...nodes].filter((node) => node.className === "printed");
        new MutationObserver((changes) => changes.forEach(({ addedNodes, removedNodes }) => {
            for (const node of printed(addedNodes)) window.made.push(node.childElementCount);
            for (const node of printed(removedNodes)) window.made.push("removed");
        })).observe(document.querySelector(".grid-frame").parentElement, { childList: true });
    }""")
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("window.made") == [2, "removed"]


@pytest.mark.parametrize("fragment", [f"#cell={FAILED.cell}", f"#compare={FAILED.cell}&with={OTHER.cell}"])
def test_an_open_combination_is_printed_alone_and_whole(
    open_page: Open, directory: Path, fragment: str
) -> None:
    page = open_page(directory.as_uri(), fragment, viewport={"width": PORTRAIT, "height": 400})
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile("History|lines differ"))
    page.emulate_media(media="print")
    expect(page.locator("main")).to_be_hidden()
    expect(dialog.get_by_role("button", name="Close")).to_be_hidden()
    box = dialog.bounding_box()
    assert box and box["height"] > 400 and box["width"] <= PORTRAIT
    assert page.evaluate("document.documentElement.scrollWidth") <= PORTRAIT


def test_a_served_page_shows_what_runs_and_offers_new_results(open_page: Open, served: Served) -> None:
    page, events = open_page(served.address), served.events
    live = page.get_by_role("region", name="Running now")
    expect(live).to_contain_text("1 of 4 images done")
    expect(live.get_by_role("progressbar")).to_have_accessible_name(re.compile("1 of 4 images"))
    expect(live.get_by_role("progressbar")).to_have_attribute("value", "1")
    # Images of the page are named in full, others by the id that the run has.
    expect(live).to_contain_text("TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.12: building since")
    expect(live).to_contain_text("<script>alert(1)</script>")
    expect(live.locator("img, script")).to_have_count(0)
    live.get_by_text("Results of 1 image").click()
    result = "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.11: unproven (no GPU)"
    expect(live.get_by_text(result)).to_be_visible()
    events.tell("progress", [RUN | {"finished": 2}])
    expect(live).to_contain_text("2 of 4 images done")
    # What somebody opened stays open.
    expect(live.get_by_text(result)).to_be_visible()
    expect(page.get_by_role("button", name="Reload the page")).to_have_count(0)
    events.tell("page", "2")
    expect(live.get_by_role("status")).to_contain_text("There are new results.")
    events.tell("progress", [RUN | {"state": "vanished"}])
    expect(live).to_contain_text("was killed before it was done")
    served.show(sources([], live="2"))
    page.get_by_role("button", name="Reload the page").click()
    expect(page.get_by_text("No image was measured here yet.")).to_be_visible()
    expect(page.get_by_role("button", name="Reload the page")).to_have_count(0)
