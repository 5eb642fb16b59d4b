"""The page in a real Chromium, from disk and from a static host."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from validator.model.prediction import Outcome, PlannedCell, Reason, decide
from validator.model.spec import Cell
from validator.reports.page.site import ENTRY
from validator.reports.printable import clean

from ...reports.page.test_site import HOSTILE, HOSTILE_NAME
from ...reports.page.values import H100, IMAGES, T4, sources
from .conftest import RECORDS, REGISTRY, Open, write

CERTIFIED, FAILED, OTHER = RECORDS[0], RECORDS[2], RECORDS[3]
TABLE = "The filters and the details of combinations need JavaScript."
MACHINES = {
    "r580-h100": "NVIDIA H100 driver 580",
    "r535-t4": "NVIDIA T4 driver 535",
    "no-gpu": "No GPU only the CPU",
}


def place(page: Page, host: str, release: str) -> Locator:
    """Return a place of the grid by its visible headings."""
    heads = page.locator("#grid thead th").all_text_contents()
    column = next(number for number, text in enumerate(heads) if text.startswith(release))
    row = page.locator("#grid tbody tr", has=page.get_by_role("rowheader", name=MACHINES[host], exact=True))
    return row.locator("td").nth(column - 1).locator("a")


def shown(page: Page) -> list[str]:
    """Return the text of the visible places of the grid, row by row."""
    return [" ".join(text.split()) for text in page.locator("#grid td a:visible").all_inner_texts()]


def test_the_page_works_from_disk_and_from_a_host(open_page: Open, address: str) -> None:
    page = open_page(address)
    expect(page.get_by_role("status").first).to_have_text("9 combinations")
    expect(page.get_by_text(TABLE)).to_be_hidden()
    link = place(page, "r580-h100", "2.21.0")
    expect(link).to_have_text(re.compile("works.*failed"))
    link.click()
    dialog = page.get_by_role("dialog")
    title = "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.12 on NVIDIA H100, driver 580"
    expect(dialog.get_by_role("heading", level=2)).to_have_text(title)
    expect(dialog).to_have_accessible_name(title)
    for text in (
        "found to be failed",
        "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.11 on the same GPU and driver.",
        "No certificate covers this image",
        "A cause.",
        "mend it",
        "the wheel has machine code for it",
        "The measurement contradicts the prediction.",
    ):
        expect(dialog).to_contain_text(text)
    check = dialog.locator("details.check", has_text="gpu_compute")
    expect(check.locator("pre")).to_have_count(0)
    check.locator("summary").click()
    expect(check.locator("pre")).to_have_text('{\n "seen": 1\n}')
    history = dialog.get_by_role("region", name="History").get_by_role("row")
    expect(history).to_have_count(3)
    expect(history.nth(1)).to_contain_text("failed")
    expect(history.nth(1)).to_contain_text("lock, image")


FILTERS: list[tuple[str, str, int, list[str] | None]] = [
    ("tensorflow", "2.20.0", 2, ["works unproven", "works certified limit"]),
    ("python", "3.11", 2, ["works", "works certified"]),
    ("cuda", "12.5", 9, None),
    ("driver", "535", 4, ["works", "works unproven", "works broken"]),
    ("gpu", "h100", 4, ["works failed", "works certified limit", "works"]),
    ("verdict", "certified", 2, ["works certified", "works certified limit"]),
    ("verdict", "limits", 1, ["works certified limit"]),
    ("verdict", "failed", 1, ["works failed"]),
    ("verdict", "none", 3, ["works", "works"]),
    ("verdict", "any", 6, None),
    ("verdict", "otherwise", 2, ["works broken", "works failed"]),
    ("verdict", "works", 8, None),
    ("verdict", "fails", 0, []),
]


def test_filters(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    everything = shown(page)
    for name, value, count, words in FILTERS:
        which = f"{name}={value}"
        page.locator(f"#filters select[name={name}]").select_option(value)
        said = "9 combinations" if count == 9 else f"{count} of 9 combinations"
        expect(page.get_by_role("status").first, which).to_have_text(said)
        if words is not None:
            assert shown(page) == words, which
        # The address contains the filters: opening it again shows the same page.
        again = open_page(directory.as_uri(), "#" + page.url.partition("#")[2])
        expect(again.locator(f"#filters select[name={name}]"), which).to_have_value(value)
        for one in (again, page):
            expect(one.get_by_role("status").first, which).to_have_text(said)
            one.get_by_role("button", name="Clear").click()
            expect(one.get_by_role("status").first, which).to_have_text("9 combinations")
            assert shown(one) == everything, which


def test_combined_filters_hide_empty_rows_and_columns(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), "#tensorflow=2.20.0&gpu=t4")
    assert shown(page) == ["works unproven"]
    expect(page.locator("#grid tbody tr:not(.part):visible")).to_have_count(1)
    expect(page.locator("#grid tr.part:visible")).to_have_count(1)
    expect(page.locator("#grid thead th:visible")).to_have_count(2)


def test_the_page_can_be_used_with_only_the_keyboard(open_page: Open, address: str) -> None:
    page = open_page(address)
    grid = page.get_by_role("grid")
    # The tab key reaches one place of the grid, not a thousand.
    expect(grid.locator('a:not([tabindex="-1"])')).to_have_count(1)
    page.get_by_role("button", name="Clear").focus()
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#grid') !== null"):
            break
    focused = page.locator("#grid a:focus")
    expect(focused).to_have_accessible_name(
        "works, TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3 on NVIDIA T4, driver 535"
    )
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_accessible_name(re.compile(r"works failed.*2\.21\.0.*on NVIDIA H100, driver 580"))
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_accessible_name(re.compile(r"works certified.*2\.20\.0.*on NVIDIA H100"))
    # The machine below has only measured another release: there is no place to go to.
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_accessible_name(re.compile(r"2\.20\.0.*on NVIDIA H100, driver 580"))
    page.keyboard.press("End")
    expect(focused).to_have_accessible_name(re.compile(r"2\.18\.1.*on NVIDIA H100, driver 580"))
    page.keyboard.press("Control+Home")
    expect(focused).to_have_accessible_name(re.compile(r"2\.21\.0.*on NVIDIA T4, driver 535"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.locator(":focus")).to_have_text("Close")
    expect(dialog).to_contain_text("found to be failed")
    expect(page).to_have_url(re.compile(re.escape(f"#cell={FAILED.cell}") + "$"))
    # The focus stays inside while it is open.
    for _ in range(30):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(focused).to_have_accessible_name(re.compile(r"works failed.*2\.21\.0.*on NVIDIA H100, driver 580"))
    expect(page).not_to_have_url(re.compile("cell="))
    expect(grid.locator('[tabindex="0"]')).to_have_count(1)


def test_the_focused_place_is_not_under_the_headings(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), viewport={"width": 360, "height": 300})
    place(page, "r535-t4", "2.21.0").focus()
    for key in ("End", "Control+End", "Home", "Control+Home"):
        page.keyboard.press(key)
        covered = page.evaluate(
            """() => {
                const box = document.activeElement.getBoundingClientRect();
                return [[box.left + 2, box.top + 2], [box.right - 2, box.bottom - 2]].some(
                    ([x, y]) => !document.activeElement.contains(document.elementFromPoint(x, y)));
            }"""
        )
        assert not covered, key


def test_an_address_opens_a_cell_and_back_closes_it(open_page: Open, address: str) -> None:
    page = open_page(address, f"#gpu=h100&cell={CERTIFIED.cell}")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("found to be certified")
    expect(dialog).to_contain_text("a key of the tests")
    expect(dialog).to_contain_text("made by a test, so it proves nothing")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    # Nothing had the focus before; now it is on the place of the cell.
    expect(place(page, "r580-h100", "2.21.0")).to_be_focused()
    expect(page.get_by_role("status").first).to_have_text("4 of 9 combinations")
    place(page, "r580-h100", "2.20.0").click()
    expect(dialog).to_contain_text("found to be certified")
    page.go_back()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("status").first).to_have_text("4 of 9 combinations")


def test_the_address_of_a_missing_cell_opens_nothing(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), "#cell=tf9.9.9@nowhere&tensorflow=9.9.9&verdict=%22%3E&x=y")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("status").first).to_have_text("9 combinations")


def test_each_python_of_a_place_opens_separately(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    place(page, "r580-h100", "2.21.0").click()
    dialog = page.get_by_role("dialog")
    pythons = dialog.get_by_role("group", name="Python").get_by_role("button")
    expect(pythons).to_have_text(["Python 3.11 certified", "Python 3.12 failed"])
    expect(pythons.nth(1)).to_have_attribute("aria-pressed", "true")
    pythons.nth(0).click()
    expect(dialog).to_contain_text("found to be certified")
    expect(pythons.nth(0)).to_have_attribute("aria-pressed", "true")
    expect(pythons.nth(0)).to_be_focused()
    expect(page).to_have_url(re.compile(re.escape(f"#cell={CERTIFIED.cell}") + "$"))
    expect(dialog).not_to_contain_text("A cause.")


def test_an_unmeasured_cell_shows_how_to_build_it(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    place(page, "r535-t4", "2.21.0").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Not measured")
    expect(dialog).to_contain_text(f"build-matrix --profile full --select image={IMAGES[0]}")
    expect(dialog).not_to_contain_text("docker pull")


def test_eager_and_xla_are_shown_apart_where_they_differ(open_page: Open, tmp_path: Path) -> None:
    works = Reason(Outcome.WORKS, "the driver compiles its PTX", "a-fact", "a source")
    fails = Reason(
        Outcome.FAILS, "no target", "a-fact", "a source", rule="xla_without_gpu_target", mode="xla"
    )
    cells = [
        PlannedCell(Cell(IMAGES[0], H100), decide((works, fails))),
        PlannedCell(Cell(IMAGES[0], T4), decide((works,))),
    ]
    page = open_page(write(tmp_path, sources((), cells)).as_uri())
    place(page, "r580-h100", "2.21.0").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("eager works, XLA fails")
    expect(dialog).to_contain_text("XLA: no target")
    page.keyboard.press("Escape")
    place(page, "r535-t4", "2.21.0").click()
    expect(dialog).to_contain_text("the driver compiles its PTX")
    expect(dialog).not_to_contain_text("eager")


def test_a_command_is_copied(open_page: Open, host: str) -> None:
    page = open_page(host, f"#cell={OTHER.cell}", permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy: docker pull")
    button.click()
    expect(button).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"docker pull {REGISTRY}@{OTHER.image_digest}"


def test_missing_details_are_reported(open_page: Open, directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(copy / "data")
    page = open_page(copy.as_uri(), f"#cell={CERTIFIED.cell}", allowed=["ERR_FILE_NOT_FOUND"])
    expect(page.get_by_role("dialog")).to_contain_text("The details can't be read")
    expect(page.get_by_role("dialog")).to_contain_text("the wheel has machine code for it")


def test_text_from_records_stays_text(open_page: Open, hostile_directory: Path) -> None:
    page = open_page(hostile_directory.as_uri())
    page.get_by_role("region", name="Table of combinations that need attention").get_by_role("link").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("History")
    dialog.locator("details.check summary").click()
    text = clean(HOSTILE)
    expect(dialog.locator("details.check summary")).to_contain_text(text)
    evidence = json.loads(dialog.locator("details.check pre").inner_text())
    assert evidence[clean(HOSTILE_NAME)] == [text, {"__proto__": text}]
    expect(dialog.locator("img, script, iframe")).to_have_count(0)
    assert page.evaluate("document.querySelectorAll('script').length") == 2


def test_the_browser_refuses_text_as_markup(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), allowed=["TrustedHTML"])
    refused = page.evaluate(
        """() => {
            try { document.body.innerHTML = "<p>"; return "taken"; } catch (error) { return error.name; }
        }"""
    )
    assert refused == "TypeError"


def test_no_other_script_runs(open_page: Open, directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "copy")
    page_file = copy / ENTRY
    text = page_file.read_text(encoding="utf-8")
    page_file.write_text(
        text.replace("</body>", "<script>window.taken = 1</script></body>"), encoding="utf-8"
    )
    page = open_page(copy.as_uri(), allowed=["Content Security Policy"])
    expect(page.get_by_role("status").first).to_have_text("9 combinations")
    assert page.evaluate("window.taken") is None


def test_without_scripts_the_page_has_a_table(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), java_script_enabled=False)
    expect(page.get_by_text(TABLE)).to_be_visible()
    expect(page.locator("#filters")).to_be_hidden()
    assert page.get_by_role("table").first.is_visible()
    assert shown(page)[0] == "works"
    assert "works failed" in shown(page)
    # All charts, each with its table.
    expect(page.locator("figure:visible")).to_have_count(2)


def test_the_chart_has_a_table_and_one_machine_at_a_time(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    figures = page.locator("figure:visible")
    expect(figures).to_have_count(1)
    expect(figures.get_by_role("img")).to_have_accessible_name(
        re.compile(
            "With XLA, a step is between 1.25 times .TensorFlow 2.20.0. and 2.00 times .TensorFlow 2.21.0."
        )
    )
    figures.get_by_text("Show as a table").click()
    rows = figures.get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("2.00 times (1.60 times to 2.50 times)")
    page.get_by_role("combobox", name="Machine").select_option("r535-t4/CPU")
    expect(figures).to_have_count(1)
    expect(figures).to_contain_text("on the CPU of a machine with NVIDIA T4, driver 535")
    again = open_page(directory.as_uri(), "#" + page.url.partition("#")[2])
    expect(again.locator("figure:visible")).to_contain_text("a machine with NVIDIA T4, driver 535")


def test_sizes_and_shared_layers(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri())
    table = page.get_by_role("region", name="Table of image sizes")
    expect(table.get_by_role("row").nth(1)).to_contain_text("3.0 GB")
    expect(table.get_by_role("row").nth(1)).to_contain_text("1.0 MB")
    expect(page.get_by_text("the 2 images take 6.0 GB")).to_be_visible()


#: 640 is a window of 1280 at a zoom of 200 %, and 320 at 400 %.
@pytest.mark.parametrize("width", [320, 390, 640, 1280])
@pytest.mark.parametrize(
    "fragment", ["", f"#cell={FAILED.cell}", f"#compare={FAILED.cell}&with={OTHER.cell}"]
)
def test_nothing_extends_past_the_edge(open_page: Open, directory: Path, width: int, fragment: str) -> None:
    page = open_page(directory.as_uri(), fragment, viewport={"width": width, "height": 800})
    if fragment:
        expect(page.get_by_role("dialog")).to_contain_text(re.compile("History|lines differ"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "!document.querySelector('dialog').open || document.querySelector('dialog').scrollWidth <= innerWidth"
    )


def test_headings_stay_in_sight(open_page: Open, directory: Path) -> None:
    page = open_page(directory.as_uri(), viewport={"width": 360, "height": 260})
    box = page.locator(".grid-box")
    box.scroll_into_view_if_needed()
    before = page.locator("#grid tbody th[scope=row]").first.bounding_box()
    box.evaluate("(box) => box.scrollBy(80, 40)")
    after = page.locator("#grid tbody th[scope=row]").first.bounding_box()
    head = page.locator("#grid thead th").nth(1).bounding_box()
    edge = box.bounding_box()
    assert before and after and head and edge
    assert after["x"] == pytest.approx(before["x"], abs=1)
    assert head["y"] == pytest.approx(edge["y"], abs=2)


def test_motion_is_left_out_if_it_is_not_wanted(open_page: Open, directory: Path) -> None:
    for wish, animation in (("reduce", "none"), ("no-preference", "slide")):
        page = open_page(directory.as_uri(), f"#cell={FAILED.cell}", reduced_motion=wish)
        expect(page.get_by_role("dialog")).to_be_visible()
        found = page.evaluate("getComputedStyle(document.querySelector('dialog')).animationName")
        assert found == animation
