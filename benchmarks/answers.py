"""Measure the answers of the page: `python benchmarks/answers.py`. Needs Chromium and npm.

Each question is asked in a real browser, on a page that was opened from disk, and natively:
 - the first answer, including the time to load Python, in a new browser each time. It is timed once from the
   click, with no field chosen before, and once from the choice of a field, by somebody who types instantly;
 - later answers to "What works on my GPU and driver?", for machines that were not asked about before, on a
   page with 5,000 results, whose verdicts go with each question;
 - later answers to "Why is my GPU not used?", for texts of the corpus.

Limits: 5 s for a first answer, 300 ms for the median of later ones.
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

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError as error:
    print(f"{error}. Run scripts/environment test, then .venv/bin/python {sys.argv[0]}", file=sys.stderr)
    raise SystemExit(3) from None

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.corpus import reader  # noqa: E402
from tests.integration.page.asking import REMEMBER, ask, start, why, works  # noqa: E402
from tests.reports.page.values import sources  # noqa: E402
from validator.answers import ask as native  # noqa: E402
from validator.diagnosis import diagnose_file  # noqa: E402
from validator.errors import MissingError  # noqa: E402
from validator.matrix.load import load_matrix  # noqa: E402
from validator.matrix.plan import plan  # noqa: E402
from validator.reports.page.answers import make_answers, pinned  # noqa: E402
from validator.reports.page.site import ENTRY, FOLDERS, MARK, site  # noqa: E402
from validator.resources import shipped_matrix  # noqa: E402
from validator.system.output_directory import update_directory  # noqa: E402
from validator.system.package_sources import pyodide_package, run_by_node  # noqa: E402

FIRST_RUNS = 5
RESULTS = 5_000
TEXTS = 100
#: First answers: the form, its field, what is written there, and what shows that the answer is there.
FIRST = {
    "what works": ("works", "gpu", "A100", ".modes"),
    "why": ("why", "text", "Could not load dynamic library 'libcudart.so.11.0'", ".cause"),
}
LIMITS_MS = {"first": 5000, "later": 300}
#: Writes into a field without choosing it.
WRITE = "(field, text) => { field.value = text; }"
#: The digests of 50 images by their identifiers.
IMAGES = {
    image.identifier: f"sha256:{number:064x}"
    for number, image in enumerate(itertools.islice(plan(load_matrix(shipped_matrix()), "full").images, 50))
}
MACHINES = list(
    itertools.product(("rtx 4090", "t4", "gtx 1080", "h100"), ("470", "535", "580"), ("3.10", "3.12"))
)


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium here", file=sys.stderr)
        return 3
    try:
        made = make_answers(pyodide_package(pinned().version, pinned().integrity), MARK, None, run_by_node)
    except MissingError as error:
        print(error, file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        files = site(sources(answers=made))
        update_directory(Path(directory), files, entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
        address = f"{Path(directory).as_uri()}/{ENTRY}"
        first: dict[str, list[float]] = {}
        for _, (question, asked), choosing in itertools.product(
            range(FIRST_RUNS), FIRST.items(), (False, True)
        ):
            browser = playwright.chromium.launch(executable_path=chromium)
            taken = measured_first(opened(browser, address), *asked, choosing=choosing)
            first.setdefault(f"{question}, from the {'field' if choosing else 'click'}", []).append(taken)
            browser.close()
        browser = playwright.chromium.launch(executable_path=chromium)
        page = opened(browser, address)
        start(page)
        entries = [entry for entry in reader.entries() if entry.kind != "reports"]
        later = {
            "what works": measured_works(page),
            "why": measured_why(page, entries[:: len(entries) // TEXTS]),
        }
        browser.close()
    print("first answers, in the browser: median (each)")
    for name, times in first.items():
        each = ", ".join(f"{taken:.0f}" for taken in times)
        print(f"{name:28} {statistics.median(times):7.0f} ms ({each}), limit {LIMITS_MS['first']} ms")
    print(f"later answers{'':15} {'browser':>10} {'native':>10} {'ratio':>7} {'limit':>8}")
    for name, (in_browser, natively) in later.items():
        ratio = in_browser / natively
        print(f"{name:28} {in_browser:7.0f} ms {natively:7.0f} ms {ratio:7.1f} {LIMITS_MS['later']:5} ms")
    print(f"to load: {made.size / 1e6:.1f} MB")
    kept = all(statistics.median(times) <= LIMITS_MS["first"] for times in first.values())
    return 0 if kept and all(taken <= LIMITS_MS["later"] for taken, _ in later.values()) else 1


def measured_first(page: Page, form: str, field: str, text: str, shown: str, *, choosing: bool) -> float:
    """Return the milliseconds until the first answer. choosing: from when the field is chosen."""
    place, button = page.locator(f"#{form} [name={field}]"), page.locator(f"#{form} [type=submit]")
    if not choosing:
        place.evaluate(WRITE, text)
    begun = time.perf_counter()
    if choosing:
        place.fill(text)
    button.click()
    page.locator(f"#{form}-answer {shown}").first.wait_for(timeout=120_000)
    return (time.perf_counter() - begun) * 1000


def hosts() -> list[str]:
    """Return the names of 100 kinds of machines."""
    gpus = ("t4", "v100", "a10", "a30", "a100", "l4", "l40s", "h100", "h200", "rtx-4090")
    drivers = (470, 525, 535, 545, 550, 555, 560, 565, 570, 580)
    return [f"r{driver}-{gpu}" for driver, gpu in itertools.product(drivers, gpus)]


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(REMEMBER)
    page.goto(address)
    return page


def measured_works(page: Page) -> tuple[float, float]:
    verdicts = {
        f"{image}@{host}": {"verdict": "certified", "digest": digest}
        for (image, digest), host in itertools.islice(itertools.product(IMAGES.items(), hosts()), RESULTS)
    }
    assert len(verdicts) == RESULTS
    known = {"registry": "registry.example.org/tf", "images": IMAGES, "verdicts": verdicts}
    questions = [works(gpu=gpu, driver=driver, python=python, **known) for gpu, driver, python in MACHINES]
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
