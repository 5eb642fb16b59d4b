"""Measure the page with 5,000 cells: `python benchmarks/page.py [--directory DIR]`. Needs Chromium.

A page of 5,000 measured cells is compared with one of 500. Both are written and then opened from disk in a
real browser, by turns in one run. The median of several turns each:
 - writing: `site` and `publish`, into an empty directory and then again with nothing changed;
 - first paint, and the end of loading;
 - a filter: from its change until the new layout is done;
 - an arrow key, the same;
 - opening a cell: from the click until its checks are there.

Limits for 5,000 cells: 400 ms for the first paint, 100 ms for a filter and a key, and 200 ms for what loads a
file (web.dev calls that a good "interaction to next paint"). Ratios tell what is left of a figure on another
machine.

The answers are asked for while another process keeps a core busy, from the click until the answer is there: a
usual question, which the table answers if it is current; an unusual one, which needs Python; and why a GPU is
not used, after the field got the focus. The first and the median of the next ones are printed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError as error:
    print(f"{error}. Run scripts/environment test, then .venv/bin/python {sys.argv[0]}", file=sys.stderr)
    raise SystemExit(3) from None

from validator.compat.releases import releases
from validator.model.codec import now_utc
from validator.model.prediction import Outcome, PlannedCell, Reason, decide
from validator.model.record import Record, Verdict
from validator.model.spec import Cell, Choice, HostClass, ImageSpec, Variant
from validator.reports.overview import overview
from validator.reports.page.answers import make_answers, pinned, read_table
from validator.reports.page.measurements import gather
from validator.reports.page.site import ENTRY, FOLDERS, MARK, Sources, site
from validator.system.output_directory import update_directory
from validator.system.package_sources import pyodide_package, run_by_node
from validator.versions import ComputeCapability, DriverRelease

SMALL, LARGE = 500, 5_000
RUNS = 7
#: Bytes of evidence of a record, about what a real one has.
EVIDENCE = 20_000
HOSTS = 50
LIMITS_MS = {"first paint": 400, "filter": 100, "arrow key": 100, "opening a cell": 200}

LOG = Path(__file__).parents[1] / "tests/corpus/captured/2.18.1/visible_devices_99.log"
#: Questions with the form, and the field to focus first. No row of the pages is about these GPUs.
QUESTIONS: Mapping[str, tuple[str, list[dict[str, str]]]] = {
    "usual": ("works", [{"gpu": gpu, "driver": "535.183.01"} for gpu in ("RTX 4090", "A100", "T4", "8.6")]),
    "unusual": (
        "works",
        [{"gpu": gpu, "driver": "driver 535.54"} for gpu in ("RTX 4090", "A100", "T4", "8.6")],
    ),
    "why": ("why", [{"text": LOG.read_text("utf-8") + line} for line in ("", "1", "2", "3")]),
}
ANSWER_LIMITS_MS = {"usual": (50, 50), "why": (3000, 300)}
ANSWER = """([form, fields]) => new Promise((resolve) => {
    const asked = document.getElementById(form), answer = document.getElementById(`${form}-answer`);
    answer.querySelector("h3")?.remove();
    for (const [name, value] of Object.entries(fields)) asked.elements[name].value = value;
    const start = performance.now();
    new MutationObserver((_, observer) => {
        if (!answer.querySelector("h3")) return;
        observer.disconnect();
        answer.getBoundingClientRect();
        resolve(performance.now() - start);
    }).observe(answer, { childList: true, subtree: true });
    asked.requestSubmit();
})"""
#: Each is run in the page and gives milliseconds. Reading a size makes the browser lay everything out.
FILTER = """(value) => {
    const select = document.querySelector("#filters select[name=driver]");
    const start = performance.now();
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    document.querySelector("#grid").getBoundingClientRect();
    return performance.now() - start;
}"""
ARROW = """(key) => {
    const start = performance.now();
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    document.activeElement.getBoundingClientRect();
    return performance.now() - start;
}"""
OPEN = """(number) => new Promise((resolve) => {
    const link = document.querySelectorAll("#grid td a")[number];
    const body = document.querySelector("#detail-body");
    const start = performance.now();
    new MutationObserver((_, observer) => {
        if (!body.querySelector(".check")) return;
        observer.disconnect();
        body.getBoundingClientRect();
        resolve(performance.now() - start);
    }).observe(body, { childList: true, subtree: true });
    link.click();
})"""
LOADED = """() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    loaded: performance.getEntriesByType("navigation")[0].loadEventEnd,
})"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="keep the two pages here")
    directory = parser.parse_args().directory
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        pages = {count: (directory or Path(temporary)) / str(count) for count in (SMALL, LARGE)}
        figures: dict[str, dict[int, float]] = {}
        for count, place in pages.items():
            made = sources(count)
            figures.setdefault("writing", {})[count] = milliseconds(lambda: write(place, made))  # noqa: B023
            figures.setdefault("writing again", {})[count] = milliseconds(lambda: write(place, made))  # noqa: B023
        browser = playwright.chromium.launch(executable_path=chromium)
        taken: dict[str, dict[int, list[float]]] = {}
        for _ in range(RUNS):
            for count, place in pages.items():
                for name, value in measured(browser, place):
                    taken.setdefault(name, {}).setdefault(count, []).append(value)
        answered = answer_times(browser, Path(temporary) / "answers")
        browser.close()
        size = (pages[LARGE] / ENTRY).stat().st_size
    figures |= {
        name: {count: statistics.median(values) for count, values in by_count.items()}
        for name, by_count in taken.items()
    }
    print(f"{'':16} {SMALL:>9,} {LARGE:>11,} cells   ratio   limit")
    for name, found in figures.items():
        limit = f"{LIMITS_MS[name]:5} ms" if name in LIMITS_MS else ""
        ratio = found[LARGE] / found[SMALL]
        print(f"{name:16} {found[SMALL]:6.1f} ms {found[LARGE]:8.1f} ms {ratio:11.1f} {limit}")
    print(f"{ENTRY}: {size / 1e6:.1f} MB")
    for name, (first, later) in answered.items():
        print(
            f"answer, {name:8} {first:8.0f} ms first {later:8.0f} ms later"
            f"   limits {ANSWER_LIMITS_MS.get(name, 'none')}"
        )
    return 0 if all(figures[name][LARGE] <= limit for name, limit in LIMITS_MS.items()) else 1


def measured(browser: Browser, place: Path) -> Iterator[tuple[str, float]]:
    """Yield the figures of one opening."""
    page: Page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{place.as_uri()}/{ENTRY}", wait_until="load")
    page.wait_for_timeout(300)
    loaded = page.evaluate(LOADED)
    yield "first paint", loaded["paint"]
    yield "loaded", loaded["loaded"]
    yield "filter", statistics.median(page.evaluate(FILTER, value) for value in ("535", "", "580", ""))
    page.locator("#grid td a").first.focus()
    yield "arrow key", statistics.median(page.evaluate(ARROW, key) for key in ("ArrowRight", "ArrowDown") * 3)
    yield "opening a cell", page.evaluate(OPEN, 7)
    page.close()


def answer_times(browser: Browser, place: Path) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of the first and of later answers to each kind of question."""
    answers = make_answers(
        pyodide_package(pinned().version, pinned().integrity), MARK, read_table(), run_by_node
    )
    write(place, replace(sources(SMALL), answers=answers))
    sizes = {name: len(content) for name, content in answers.files.items()}
    table = sizes.pop(answers.table) if answers.table else 0
    print(f"table: {table / 1e3:.0f} kB, Python: {sum(sizes.values()) / 1e6:.1f} MB")
    found = {}
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for name, (form, asked) in QUESTIONS.items():
            page = browser.new_page()
            page.set_default_timeout(120_000)
            page.goto(f"{place.as_uri()}/{ENTRY}", wait_until="load")
            # People need a second to paste a text or to write a name.
            page.locator(f"#{form} [name={next(iter(asked[0]))}]").focus()
            page.wait_for_timeout(1000)
            first, *later = (page.evaluate(ANSWER, [form, fields]) for fields in asked)
            found[name] = (first, statistics.median(later))
            page.close()
    finally:
        busy.kill()
        busy.wait()
    return found


def sources(count: int) -> Sources:
    """Return a page in which every place of the grid is one measured cell: the most there is to draw."""
    hosts = [
        HostClass(
            f"r{driver}-gpu{number}",
            DriverRelease.parse(str(driver)),
            ComputeCapability(8, 0),
            f"gpu{number}",
        )
        for driver in (525, 535, 550, 570, 580)
        for number in range(HOSTS // 5)
    ]
    cells = [
        PlannedCell(Cell(image(number), host), decide(reasons(number)))
        for number in range(count // HOSTS)
        for host in hosts
    ]
    measurements = gather((record(cell) for cell in cells), now_utc())
    return Sources(
        rows=overview(cells, measurements.latest),
        measurements=measurements,
        profile="benchmark",
        certificates={},
        diagnose=lambda _: None,
    )


def image(number: int) -> ImageSpec:
    cuda, cudnn = Choice("12.5", f"12.{number % 10}"), Choice("9.3", f"9.{number // 10 % 10}")
    return ImageSpec(releases()[-1 - number // 5].version, "3.12", Variant.GPU, cuda, cudnn)


def reasons(number: int) -> tuple[Reason, ...]:
    return tuple(
        Reason(Outcome.WORKS, f"reason {number % 7 * each} of a prediction", f"fact-{each}", "a source")
        for each in range(8)
    )


def record(planned: PlannedCell) -> Record:
    return Record(
        cell=planned.cell.identifier,
        image=planned.cell.image.identifier,
        host_class=planned.cell.host.identifier,
        verdict=Verdict.UNPROVEN,
        reason="made for a benchmark",
        engine="none",
        lock_digest=None,
        image_digest=None,
        probe_version="benchmark",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:00+00:00",
        key=planned.cell.identifier,
        checks=[
            {
                "id": f"check_{number}",
                "outcome": "skip",
                "statement": {"code": "own_check_skipped", "summary": "made for a benchmark"},
                "problems": [],
                "required": True,
                "evidence": {"seen": "x" * (EVIDENCE // 20)},
                "duration_s": 0.1,
            }
            for number in range(20)
        ],
    )


def write(place: Path, made: Sources) -> None:
    update_directory(place, site(made), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)


def milliseconds(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    raise SystemExit(main())
