"""Measure the answers of the page: `python benchmarks/answers.py`. Needs Chromium and npm.

Each question is asked in a real browser, on a page
that was opened from disk, and natively:
 - the first answer: from the click until the answer is shown, in a new browser each time; Python is loaded;
 - later answers to "What works on my GPU and driver?", for machines that were not asked about before;
 - later answers to "Why is my GPU not used?", for texts of the corpus.

Limits: 5 s for the first answer, 300 ms for the median of later ones.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.corpus import reader  # noqa: E402
from tests.integration.page.asking import REMEMBER, ask, start, why, works  # noqa: E402
from tests.reports.page.values import sources  # noqa: E402
from validator.answers import ask as native  # noqa: E402
from validator.diagnosis import diagnose_file  # noqa: E402
from validator.reports.page.answers import make_answers, pinned  # noqa: E402
from validator.reports.page.site import ENTRY, FOLDERS, MARK, site  # noqa: E402
from validator.supply.pyodide import pyodide_package  # noqa: E402
from validator.system.output_directory import update_directory  # noqa: E402

FIRST_RUNS = 3
TEXTS = 100
LIMITS_MS = {"first answer": 5000, "what works": 300, "why": 300}
MACHINES = list(
    itertools.product(("rtx 4090", "t4", "gtx 1080", "h100"), ("470", "535", "580"), ("3.10", "3.12"))
)


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        made = make_answers(pyodide_package(pinned().version, pinned().integrity), MARK)
        files = site(sources(answers=made))
        update_directory(Path(directory), files, entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
        address = f"{Path(directory).as_uri()}/{ENTRY}"
        found: dict[str, tuple[float, float]] = {}
        first = []
        for _ in range(FIRST_RUNS):
            browser = playwright.chromium.launch(executable_path=chromium)
            page = opened(browser, address)
            begun = time.perf_counter()
            start(page)
            first.append((time.perf_counter() - begun) * 1000)
            if len(first) < FIRST_RUNS:
                browser.close()
        found["first answer"] = (statistics.median(first), float("nan"))
        found["what works"] = measured_works(page)
        entries = [entry for entry in reader.entries() if entry.kind != "reports"]
        found["why"] = measured_why(page, entries[:: len(entries) // TEXTS])
        browser.close()
    print(f"{'':14} {'browser':>10} {'native':>10} {'ratio':>7} {'limit':>8}")
    for name, (in_browser, natively) in found.items():
        ratio = in_browser / natively
        print(f"{name:14} {in_browser:7.0f} ms {natively:7.0f} ms {ratio:7.1f} {LIMITS_MS[name]:5} ms")
    print(f"to load: {made.size / 1e6:.1f} MB")
    return 1 if any(found[name][0] > limit for name, limit in LIMITS_MS.items()) else 0


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(REMEMBER)
    page.goto(address)
    return page


def measured_works(page: Page) -> tuple[float, float]:
    questions = [works(gpu=gpu, driver=driver, python=python) for gpu, driver, python in MACHINES]
    taken = [each for _, each in ask(page, [(question, b"") for question in questions])]
    natively = []
    for question in questions:
        begun = time.perf_counter()
        native(json.dumps(question))
        natively.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken), statistics.median(natively)


def measured_why(page: Page, entries: list[reader.Entry]) -> tuple[float, float]:
    """Return the median milliseconds in the browser and natively."""
    asked = ask(page, [(why(entry.name), entry.content()) for entry in entries])
    natively = []
    for entry in entries:
        begun = time.perf_counter()
        diagnose_file(io.BytesIO(entry.content()), entry.name)
        natively.append((time.perf_counter() - begun) * 1000)
    return statistics.median(each for _, each in asked), statistics.median(natively)


if __name__ == "__main__":
    sys.exit(main())
