"""Make the pictures of the page in README.md and `docs/`, for `scripts/picture`.

page.png: both questions with their answers. matrix.png: the matrix. pictures.txt: the words of the page,
without figures, so that a test can notice that the pictures are out of date.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1280, 640
#: Milliseconds. Python starts with the first question.
LIMIT_MS = 120_000
#: What the pictures ask.
GPU, DRIVER = "RTX 4090", "535"
LOG = HERE.parents[1] / "tests/corpus/captured/2.18.1/visible_devices_99.log"
#: Elements whose text is the page's own, or the headline of an answer. The details of facts and causes are
#: left out, because they change often, and so is what depends on the records.
_SAYING = "h1, main :is(h2, h3, h4), #answers :is(form p, label, summary), [type=submit]"
_TEXTS = """(elements) => elements.filter((each) => each.checkVisibility()).map((each) => {
    const made = each.cloneNode(true);
    made.querySelectorAll("select, textarea").forEach((field) => field.remove());
    return made.textContent.replace(/\\s+/g, " ").trim();
})"""


def take(browser: Browser, directory: Path, target: Path) -> None:
    """Ask the page in a directory both questions, and write the pictures and their text to another."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce"
    )
    page.set_default_timeout(LIMIT_MS)
    page.goto(f"{directory.resolve().as_uri()}/index.html")
    page.locator("#works [name=gpu]").fill(GPU)
    page.locator("#works [name=driver]").fill(DRIVER)
    page.locator("#why textarea").fill(LOG.read_text(encoding="utf-8"))
    for name in ("works", "why"):
        page.locator(f"#{name} [type=submit]").click()
        page.locator(f"#{name}-answer h3").wait_for()
    page.locator("#why textarea").evaluate(
        "(field) => { field.scrollTop = 0; document.activeElement.blur(); }"
    )
    # The second answer is longer, and is cut off where the first one ends.
    _picture(page, "#works-answer", target / "page.png", top=0)
    top = page.locator("#matrix-title").bounding_box()
    _picture(page, ".grid-box", target / "matrix.png", top=top["y"] - 12 if top else 0)
    (target / "pictures.txt").write_text("\n".join(texts(page)) + "\n", encoding="utf-8")
    page.close()


def texts(page: Page) -> list[str]:
    """Return the words of the page, with a # in place of each figure."""
    found: list[str] = page.locator(_SAYING).evaluate_all(_TEXTS)
    return [re.sub(r"\d[\d.,:-]*\d|\d", "#", text) for text in found if text]


def _picture(page: Page, last: str, path: Path, top: float) -> None:
    """Take a picture from `top` to the end of an element."""
    page.evaluate("scrollTo(0, 0)")
    box = page.locator(last).bounding_box()
    assert box is not None, last
    height = box["y"] + box["height"] + 28 - top
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": height})


def main(directory: Path) -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("scripts/picture: no Chromium here (Debian, Ubuntu: apt install chromium)", file=sys.stderr)
        return 3
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        take(browser, directory, HERE)
        browser.close()
    print(f"written: the pictures in {HERE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
