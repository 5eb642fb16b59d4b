"""Makes page.png, the README's picture of the page. `scripts/picture` calls it with the page's directory."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "page.png"
WIDTH, HEIGHT = 1280, 640


def main(directory: Path) -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("scripts/picture: no Chromium here (Debian, Ubuntu: apt install chromium)", file=sys.stderr)
        return 3
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto(f"{directory.resolve().as_uri()}/index.html")
        # Up to the end of the table, whose first rows were measured.
        bottom = page.locator(".grid-box").bounding_box() or {"y": HEIGHT, "height": 0}
        page.screenshot(
            path=PICTURE,
            full_page=True,
            clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom["y"] + bottom["height"] + 6},
        )
        browser.close()
    print(f"written: {PICTURE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
