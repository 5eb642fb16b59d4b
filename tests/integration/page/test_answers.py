"""The questions of the page in a real Chromium, with this project's Python in a worker."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from docs.images.make import HERE as PICTURES
from docs.images.make import WIDTH, take
from validator.answers import ask as native
from validator.diagnosis import diagnose_file
from validator.reports.page.answers import Answers
from validator.reports.page.site import ENTRY
from validator.reports.printable import clean

from ...corpus import reader
from ...laws import subjects_to_try
from ...reports.page.test_site import HOSTILE
from ...reports.page.values import sources
from .asking import REMEMBER, ask, start, why, works
from .conftest import RECORDS, REGISTRY, Open, serve, write
from .test_accessible import SIZES, violations

#: Python starts in a few seconds, in more on a slow machine.
STARTED_MS = 120_000
FAULT = "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared"
#: Makes the page's worker silent for questions while `window.deaf` is set.
DEAF = """
const Before = Worker;
window.Worker = class extends Before {
    postMessage(message) { if (!(window.deaf && message.question)) super.postMessage(message); }
};
"""
#: Pastes a text into the field as a person does.
PASTE = """(line) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", line + "nothing to see here\\n".repeat(2_500_000));
    document.querySelector("#why textarea").dispatchEvent(
        new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""

#: The name or the text of what has the focus.
FOCUSED = "document.activeElement.name || document.activeElement.textContent.trim()"

pytestmark = pytest.mark.xdist_group("answers")


@pytest.fixture(scope="session")
def asked_directory(answers: Answers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("asked"), sources(RECORDS, registry=REGISTRY, answers=answers))


@pytest.fixture(scope="module")
def started(browser: Browser, asked_directory: Path) -> Iterator[tuple[Page, list[str]]]:
    """Yield a page from disk on which Python runs, and the faults that were seen on it."""
    context = browser.new_context(viewport=SIZES["large"], reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(30_000)
    page, faults = context.new_page(), []
    page.add_init_script(REMEMBER)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
    page.on("console", lambda message: faults.append(message.text))
    page.goto(f"{asked_directory.as_uri()}/{ENTRY}")
    start(page)
    yield page, faults
    context.close()


@pytest.fixture
def page(started: tuple[Page, list[str]]) -> Iterator[Page]:
    """Yield the same page for all tests, since starting Python takes seconds. Nothing may go wrong on it."""
    page, faults = started
    yield page
    assert faults == []


def submit(page: Page, name: str) -> None:
    page.locator(f"#{name} [type=submit]").click()


def fill(page: Page, gpu: str, driver: str = "", python: str = "") -> None:
    page.locator("#works [name=gpu]").fill(gpu)
    page.locator("#works [name=driver]").fill(driver)
    page.locator("#works [name=python]").select_option(python)


@pytest.mark.parametrize("step", [40, 1], ids=["every fortieth", "all"])
def test_the_answers_to_the_corpus_are_those_of_doctor(page: Page, step: int) -> None:
    # `doctor --report` reads the reports of the corpus. The page takes no reports: it names that command.
    entries = [entry for entry in reader.entries() if entry.kind != "reports"][::step]
    assert len(entries) > 1000 // step
    answers = ask(page, [(why(entry.name), entry.content()) for entry in entries])
    for entry, (answer, _) in zip(entries, answers, strict=True):
        wanted = clean(dataclasses.asdict(diagnose_file(io.BytesIO(entry.content()), entry.name)))
        assert answer.get("diagnosis", answer) == wanted, entry.name


def test_the_answers_about_machines_are_those_of_this_python(page: Page) -> None:
    gpus = (
        "rtx 5090",
        "RTX 3060 Laptop",
        "NVIDIA A100-SXM4-80GB",
        "gtx 1080",
        "k80",
        "7.5",
        "3060",
        "RX 580",
    )
    questions = [
        works(gpu=gpu, driver=driver, python=python, system=system)
        for gpu, driver, python in itertools.product(
            gpus, ("390.48", "470", "535.183.01", "12.8", ""), ("", "3.10")
        )
        for system in (("linux", "windows") if python else ("linux",))
    ]
    asked = subjects_to_try(questions)
    answers = ask(page, [(question, b"") for question in asked])
    for question, (answer, _) in zip(asked, answers, strict=True):
        assert answer == json.loads(native(json.dumps(question))), question


def test_what_works_is_shown(page: Page) -> None:
    fill(page, "H100", "580.65.06", "3.11")
    submit(page, "works")
    answer = page.locator("#works-answer")
    expect(answer.locator(".result")).to_have_text(
        re.compile(r"TensorFlow 2\.\d+\.\d works in an image, and .* should work with pip\.")
    )
    expect(answer).to_contain_text("was certified on this kind of machine.")
    expect(answer).to_contain_text(f"docker pull {REGISTRY}@{RECORDS[0].image_digest}")
    expect(answer).to_contain_text("python -m pip install")
    expect(answer.locator(".remark").first).to_contain_text("finds CUDA's libraries only if LD_LIBRARY_PATH")
    expect(answer.locator("a[href^='#cell=']")).to_have_text("certified")


def test_an_image_that_was_measured_to_fail_is_not_offered(page: Page) -> None:
    fill(page, "H100", "580.65.06", "3.12")
    submit(page, "works")
    answer = page.locator("#works-answer")
    expect(answer.locator(".result")).to_contain_text("failed when it was measured")
    expect(answer).not_to_contain_text("docker pull")
    expect(answer).to_contain_text("python -m pip install")
    link = answer.locator("a[href^='#cell=']")
    expect(link).to_have_text("failed")
    link.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("NVIDIA H100, driver 580")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    answer.get_by_text("Why no newer release").last.click()
    expect(answer).to_contain_text("on its own, the wheel does not find")
    answer.get_by_text(re.compile("^All .* releases$")).click()
    table = answer.get_by_role("region", name="All releases")
    expect(table.get_by_role("row")).to_have_count(57)
    cells = table.get_by_role("row", name=re.compile("^2.21.0 ")).get_by_role("cell")
    expect(cells.nth(2)).to_have_text("works with LD_LIBRARY_PATH")
    expect(table.get_by_role("row", name=re.compile("^2.14.1 ")).get_by_role("cell").last).to_contain_text(
        "pip: "
    )


def test_addresses_in_sources_are_links(page: Page) -> None:
    fill(page, "rtx 5090", "570.124.06", "3.12")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_contain_text("eager")
    page.locator("#works-answer details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    source = page.locator("#works-answer .source", has_text="xla-ptx-8.5").first
    expect(source).to_contain_text("; PTX ISA 'Release Notes', table of PTX versions")
    links = source.locator("a")
    assert links.count() == 5
    for link in links.all():
        address = link.get_attribute("href") or ""
        assert re.fullmatch(r"https://github\.com/(tensorflow/tensorflow|openxla/xla)/issues/\d+", address)
        assert link.inner_text() == address and link.get_attribute("rel") == "noreferrer noopener"


@pytest.mark.parametrize("size", SIZES)
def test_commands_break_between_words_and_are_copied_whole(page: Page, size: str) -> None:
    page.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
    fill(page, "GTX 980", "535")
    submit(page, "works")
    command = page.locator("#works-answer .copy pre", has_text="build-matrix")
    expect(command).to_have_text(
        re.compile(r"^validator build-matrix --profile full --select image=tf2\.\d+\.\d+-cuda\S+$")
    )
    rows = command.locator(".word").evaluate_all("""words => words.map((word) => {
        const range = document.createRange();
        range.selectNodeContents(word);
        return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
    })""")
    # `build-matrix`, `--profile`, `--select`, and an image that may be wider than a phone.
    assert len(rows) == 4 and rows[:3] == [1, 1, 1]
    page.locator("#works-answer summary").last.click()
    cue = page.locator("#works-answer").get_by_text("Swipe to the side for more columns.")
    assert cue.is_visible() == (size == "phone")
    if size == "phone":
        table = page.get_by_role("region", name="All releases")
        table.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
        box, head = table.bounding_box(), table.get_by_role("rowheader").first.bounding_box()
        # The release stays in sight.
        assert box is not None and head is not None and abs(head["x"] - box["x"]) <= 2
    page.set_viewport_size(SIZES["large"])  # type: ignore[arg-type]


def test_a_wrong_name_is_replaced_by_a_suggestion(page: Page) -> None:
    fill(page, "RTX 3006", "535")
    submit(page, "works")
    expect(page.locator("#works-answer")).to_contain_text('GPU "RTX 3006" is not known')
    page.get_by_role("button", name="RTX 3060").click()
    expect(page.locator("#works [name=gpu]")).to_have_value("RTX 3060")
    expect(page.locator("#works-answer h3")).to_be_focused()
    expect(page.locator("#works-answer h3")).to_contain_text("should work")
    expect(page.locator("#works-answer")).to_contain_text(
        "only predicted from published facts, and was not measured"
    )


def test_an_answer_is_announced_to_whoever_has_moved_on(page: Page) -> None:
    fill(page, "T4", "535")
    page.evaluate("""() => {
        document.querySelector("#works [name=gpu]").focus();
        window.status_before = document.querySelector("#works-status");
        window.moved = 0;
        new MutationObserver((changes) => changes.forEach((change) => {
            if ([...change.removedNodes].includes(window.status_before)) window.moved++;
        })).observe(document.querySelector("#works-answer"), { childList: true });
        document.querySelector("#works").requestSubmit();
        document.querySelector("#why textarea").focus();
    }""")
    headline = page.locator("#works-answer h3")
    expect(headline).to_contain_text("should work")
    expect(page.locator("#works-status")).to_have_text(headline.inner_text())
    expect(page.locator("#why textarea")).to_be_focused()
    # A live region that is moved may stay silent.
    assert page.evaluate("window.moved") == 0


def test_a_rejected_field_is_marked_until_it_is_changed(page: Page) -> None:
    gpu, driver = page.locator("#works [name=gpu]"), page.locator("#works [name=driver]")
    fill(page, "A100", "new")
    submit(page, "works")
    expect(driver).to_have_attribute("aria-invalid", "true")
    expect(driver).to_have_accessible_description(
        re.compile('"new" is neither a driver nor a CUDA version.*The first lines of nvidia-smi show')
    )
    expect(gpu).not_to_have_attribute("aria-invalid", "true")
    fill(page, "RTX 3006", "535")
    expect(driver).not_to_have_attribute("aria-invalid", "true")
    expect(driver).to_have_accessible_description(re.compile("^The first lines of nvidia-smi show"))
    submit(page, "works")
    expect(gpu).to_have_attribute("aria-invalid", "true")
    expect(gpu).to_have_accessible_description(re.compile('GPU "RTX 3006" is not known'))
    assert violations(page, "moderate", "serious", "critical") == []
    # An answer ends it too.
    page.get_by_role("button", name="RTX 3060").click()
    expect(page.locator("#works-answer .result")).to_contain_text("should work")
    expect(gpu).not_to_have_attribute("aria-invalid", "true")
    expect(gpu).to_have_accessible_description("")


@pytest.mark.parametrize("text", ["", "a\0\2b" * 9000])
def test_a_rejected_text_is_marked(page: Page, text: str) -> None:
    field = page.locator("#why textarea")
    field.evaluate("(field, text) => { field.value = text; }", text)
    submit(page, "why")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(
        re.compile("(Paste what TensorFlow printed|is binary).*Paste text")
    )
    field.fill(FAULT)
    expect(field).not_to_have_attribute("aria-invalid", "true")


def test_names_are_suggested_while_one_is_typed(page: Page) -> None:
    names = page.locator("#gpu-names option").evaluate_all("options => options.map((option) => option.value)")
    assert {"RTX 4090", "A100", "V100", "GTX 1080"} <= set(names)
    for name in subjects_to_try(names):
        assert "error" not in json.loads(native(json.dumps(works(gpu=name)))), name


def test_why_a_gpu_is_not_used_is_shown(page: Page) -> None:
    page.locator("#why textarea").fill(FAULT)
    submit(page, "why")
    answer = page.locator("#why-answer")
    for text in ("does not find libcudart.so.11.0", "Evidence", "How to fix it", "Read: 1 line", "Next:"):
        expect(answer).to_contain_text(text)
    page.locator("#why textarea").fill("")
    submit(page, "why")
    expect(answer).to_contain_text("Paste what TensorFlow printed")


def test_what_interrupts_people_is_copied_one_command_at_a_time(page: Page) -> None:
    page.locator("#why textarea").fill(
        "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"
    )
    submit(page, "why")
    expect(page.locator("#why-answer .cause")).to_be_visible()
    copied = page.locator("#why-answer .copy pre").all_inner_texts()
    assert "sudo reboot" in copied
    assert "sudo systemctl isolate multi-user.target" in copied
    assert not any("\n" in text and re.search("reboot|isolate|modprobe", text) for text in copied)


def test_each_answer_says_its_headline_once_and_has_headings_in_order(page: Page) -> None:
    fill(page, "rtx 4090", "535")
    submit(page, "works")
    expect(page.locator("#works-answer h3")).to_be_focused()
    page.locator("#why textarea").fill(f"{FAULT}\nCUDA_ERROR_SYSTEM_DRIVER_MISMATCH")
    submit(page, "why")
    expect(page.locator("#why-answer h3")).to_be_focused()
    for name in ("works", "why"):
        answer = page.locator(f"#{name}-answer")
        headline = answer.locator("h3").inner_text()
        assert answer.inner_text().count(headline) == 1
        expect(page.locator(f"#{name}-status")).to_be_empty()
        levels = answer.locator("h3, h4, h5, h6").evaluate_all("all => all.map((each) => +each.tagName[1])")
        assert levels[0] == 3 and levels.count(3) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    # Only commands have the names that commands take.
    said = page.locator("#works-answer :is(h3, h4, h5, p, dd, td, th, summary)").all_text_contents()
    assert len(said) > 100 and not any(re.search(r"tf\d+\.\d+\.\d|@r\d{3}-", text) for text in said)
    groups = page.locator(".answer summary").all_inner_texts()
    assert len(groups) == len(set(groups)) > 3
    regions = page.locator("[role=status]").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert all(regions[:2]) and len(set(regions)) == len(regions)
    # Commands in prose are shown without their backticks.
    prose = page.locator("#why-answer > p, #why-answer .cause > p").all_inner_texts()
    assert prose and not any("`" in text for text in prose)


def test_the_first_links_skip_to_the_questions_and_to_the_matrix(page: Page) -> None:
    page.locator("#skip-answers").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#answers")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "gpu"
    page.locator("#skip-grid").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#grid a:focus")).to_have_count(1)


def test_a_file_is_read(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "train <b>.log"
    file.write_bytes(b"\xff\xfe" + FAULT.encode("utf-16-le"))
    page.locator("#why-input").set_input_files(file)
    expect(page.locator("#why-file")).to_contain_text("train <b>.log (0.0 MB)")
    expect(page.locator("#why textarea")).to_be_disabled()
    submit(page, "why")
    expect(page.locator("#why-answer")).to_contain_text("does not find libcudart.so.11.0")
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#why textarea")).to_be_focused()
    expect(page.locator("#why-status")).to_be_empty()
    page.locator("#why textarea").fill("")
    submit(page, "why")
    expect(page.locator("#why textarea")).to_have_attribute("aria-invalid", "true")
    file.write_bytes(b"\x1f\x8b\x08")
    page.locator("#why-input").set_input_files(file)
    expect(page.locator("#why textarea")).not_to_have_attribute("aria-invalid", "true")
    expect(page.locator("#why-status")).to_have_text("train <b>.log is ready.")
    submit(page, "why")
    expect(page.locator("#why-answer")).to_contain_text("train <b>.log is compressed (gzip), not text")
    page.get_by_role("button", name="Remove").click()


def test_fifty_megabytes_are_read_at_both_ends(page: Page) -> None:
    page.evaluate(PASTE, FAULT + "\n")
    expect(page.locator("#why-file")).to_contain_text("The pasted text (50.0 MB)")
    submit(page, "why")
    # The page answers to clicks while the text is read.
    page.locator("#works-answer summary").last.click()
    answer = page.locator("#why-answer")
    expect(answer).to_contain_text("the first and the last 4 MiB of 48 MiB", timeout=90_000)
    expect(answer).to_contain_text("does not find libcudart.so.11.0")
    page.get_by_role("button", name="Remove").click()


def test_hostile_text_stays_text(page: Page) -> None:
    fill(page, HOSTILE[:150], "535")
    submit(page, "works")
    expect(page.locator("#works-answer")).to_contain_text("<script>alert(1)</script>")
    fill(page, "", HOSTILE[:150])
    submit(page, "works")
    expect(page.locator("#works-answer")).to_contain_text("<script>alert(1)</script>")
    # A text with a zero byte is refused as binary.
    hostile = HOSTILE.replace("\0", "").replace("\ud800", "")
    page.locator("#why textarea").fill(f"{FAULT}\nE tensorflow: {hostile}\nError: {hostile}")
    submit(page, "why")
    expect(page.locator("#why-answer")).to_contain_text("<script>alert(1)</script>")
    assert not re.search("[\u202e\x1b]", page.locator("#why-answer").inner_text())
    assert page.locator(".answer img, .answer script").count() == 0


def test_the_questions_can_be_asked_with_the_keyboard(page: Page) -> None:
    fill(page, "", "")
    page.locator("#works [name=gpu]").focus()
    page.keyboard.type("t4")
    page.keyboard.press("Tab")
    page.keyboard.type("535")
    # The browser's list of suggestions is open; Escape closes it.
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    # The focus moves from the field to the answer.
    expect(page.locator("#works-answer h3")).to_be_focused()
    expect(page.locator("#works-answer h3")).to_contain_text("should work")
    reached = []
    page.locator("#works [name=gpu]").focus()
    for _ in range(12):
        reached.append(page.evaluate(FOCUSED))
        page.keyboard.press("Tab")
    assert reached[:5] == ["gpu", "driver", "system", "python", "Show what works"]
    assert "Copy" in reached
    page.locator("#works-answer summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#works-answer details").first).to_have_attribute("open", "")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_answers(page: Page, size: str, scheme: str) -> None:
    page.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    fill(page, "rtx 5090", "570.124.06", "3.12")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_contain_text("eager")
    page.locator("#why textarea").fill(f"{FAULT}\nE0000 something odd happened")
    submit(page, "why")
    expect(page.locator("#why-answer .cause").first).to_be_visible()
    page.locator(".answer details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert violations(page, "moderate", "serious", "critical") == []


def test_nothing_can_leave_the_browser(browser: Browser, asked_directory: Path) -> None:
    """Neither the page nor its worker may connect to anything, its own host included."""
    with serve(asked_directory) as address:
        context = browser.new_context()
        page, requests, blocked = context.new_page(), [], []
        page.goto(f"{address}/{ENTRY}")
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: blocked.append(message.text))
        start(page)
        page.locator("#why textarea").fill(FAULT)
        submit(page, "why")
        expect(page.locator("#why-answer .cause").first).to_be_visible()
        scripts = [url for url in requests if not url.startswith("blob:")]
        # The table, Python, and this project's code.
        assert len(scripts) == 3
        assert all(re.fullmatch(rf"{re.escape(address)}/answers/[0-9a-f]{{20}}\.js", url) for url in scripts)
        assert blocked == []
        [worker] = page.workers
        attempt = """(address) => new Promise((resolve) => {
            const request = new XMLHttpRequest();
            request.onload = () => resolve("loaded");
            request.onerror = () => resolve("refused");
            request.open("GET", address);
            request.send();
        })"""
        assert page.evaluate(attempt, f"{address}/{ENTRY}") == "refused"
        assert worker.evaluate(attempt, f"{address}/{ENTRY}") == "refused"
        assert any("Content Security Policy" in text for text in blocked)
        context.close()


def test_python_is_loaded_when_somebody_chooses_a_field_and_not_before(
    open_page: Open, asked_directory: Path
) -> None:
    page, loaded = open_page(asked_directory.as_uri()), "#answers-loading"
    page.locator("#filters select").first.focus()
    page.locator("#grid a").first.focus()
    expect(page.locator(loaded)).to_contain_text("It is loaded")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    # The first question loads only the table.
    page.locator("#works [name=gpu]").focus()
    page.wait_for_timeout(500)
    assert len(requests) == 1 and page.workers == []
    expect(page.locator(loaded)).to_contain_text("It is loaded")
    page.locator("#why textarea").focus()
    expect(page.locator(loaded)).to_contain_text("Loading Python (")
    expect(page.locator(loaded)).to_have_text("Python is loaded.", timeout=STARTED_MS)
    [_] = page.workers
    page.locator("#works [name=gpu]").fill("A100")
    submit(page, "works")
    expect(page.locator("#works-answer .modes")).to_be_visible()
    # The message that Python loads is removed with the answer.
    expect(page.locator(loaded)).to_be_empty()
    [_] = page.workers


def test_a_question_while_python_is_loaded_waits_for_it(open_page: Open, asked_directory: Path) -> None:
    page = open_page(asked_directory.as_uri())
    page.locator("#works [name=gpu]").fill("A100")
    submit(page, "works")
    expect(page.locator("#works-answer .busy")).to_contain_text("Loading Python (")
    expect(page.locator("#works-answer .modes")).to_be_visible(timeout=STARTED_MS)
    [_] = page.workers


def test_an_answer_that_takes_too_long_is_stopped(open_page: Open, asked_directory: Path) -> None:
    page = open_page(asked_directory.as_uri())
    page.add_init_script(DEAF)
    page.clock.install()
    page.reload()
    start(page)
    page.evaluate("window.deaf = true")
    submit(page, "works")
    expect(page.locator("#works-answer .busy")).to_be_visible()
    page.clock.fast_forward("01:01")
    expect(page.locator("#works-answer")).to_contain_text("no answer within 60 seconds, so it was stopped")
    # The next question starts Python again, and can be stopped by hand.
    submit(page, "works")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#works-answer")).to_have_text("Stopped.")
    page.evaluate("window.deaf = false")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_be_visible(timeout=STARTED_MS)


def test_the_pictures_of_the_page_are_current(browser: Browser, answers: Answers, tmp_path: Path) -> None:
    made = sources((), profile="full", answers=answers)
    take(browser, write(tmp_path / "page", made), tmp_path)
    for name in ("page.png", "matrix.png"):
        for path in (tmp_path / name, PICTURES / name):
            # The signature of a PNG, the length and name of its first chunk, and the width.
            assert path.read_bytes()[:20] == b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + WIDTH.to_bytes(4, "big")
    said = [
        (directory / "pictures.txt").read_text("utf-8").splitlines() for directory in (tmp_path, PICTURES)
    ]
    assert said[0] == said[1], "run scripts/picture"
    assert "What works on my GPU and driver?" in said[0]


def test_missing_files_are_said(open_page: Open, answers: Answers, tmp_path: Path) -> None:
    directory = write(tmp_path / "page", sources(RECORDS, answers=answers))
    (directory / answers.runtime).unlink()
    page = open_page(directory.as_uri(), allowed=["Failed to load resource"])
    fill(page, "A100", "driver 535.54")
    submit(page, "works")
    expect(page.locator("#answers-loading")).to_contain_text("It is loaded")
    expect(page.locator("#works-answer")).to_contain_text("validator serve")
    expect(page.locator("#grid")).to_be_visible()


@pytest.fixture(scope="session")
def unmeasured_directory(answers: Answers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page without records, on which the table has the answer to every question of its own."""
    return write(tmp_path_factory.mktemp("unmeasured"), sources((), answers=answers))


@pytest.mark.parametrize("missing", ["WebAssembly", "Worker"])
def test_a_browser_that_lacks_something_answers_usual_questions(
    open_page: Open, unmeasured_directory: Path, missing: str
) -> None:
    page = open_page(unmeasured_directory.as_uri())
    page.add_init_script(f"delete window.{missing}")
    page.reload()
    expect(page.locator("#answers-missing")).to_contain_text("answers only the usual questions")
    expect(page.locator("#why")).to_be_hidden()
    fill(page, "RTX 4090", "535.183.01")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_contain_text("should work")
    fill(page, "RTX 4090", "driver 535.183.01")
    submit(page, "works")
    expect(page.locator("#works-answer")).to_contain_text("This browser can't run Python here")


def test_a_browser_that_can_not_decompress_still_shows_the_matrix(
    open_page: Open, asked_directory: Path
) -> None:
    page = open_page(asked_directory.as_uri())
    page.add_init_script("delete window.DecompressionStream")
    page.reload()
    expect(page.locator("#answers-missing")).to_contain_text("can't answer questions")
    expect(page.locator("#works")).to_be_hidden()
    expect(page.get_by_role("grid")).to_be_visible()


def test_usual_questions_load_only_the_table(open_page: Open, unmeasured_directory: Path) -> None:
    page = open_page(unmeasured_directory.as_uri())
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for gpu, driver in (
        ("", ""),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "R535"),
        ("h200", "580.65.06"),
        ("T4", "12.2"),
    ):
        fill(page, gpu, driver)
        submit(page, "works")
        expect(page.locator("#works-answer .quiet").first).to_contain_text("Linux x86_64")
    assert (len(requests), page.workers) == (1, [])


def test_the_table_answers_as_python_does(
    open_page: Open, answers: Answers, unmeasured_directory: Path, tmp_path: Path
) -> None:
    without = write(tmp_path, sources((), answers=dataclasses.replace(answers, table=None)))
    pages = [open_page(directory.as_uri()) for directory in (unmeasured_directory, without)]
    start(pages[1])
    asked = itertools.product(
        ("RTX 4090", "gh200", "9.0", "NVIDIA H200", ""),
        ("", "535", "580.95.05", "537.13", "12.2"),
        ("linux x86_64", "wsl2 x86_64"),
    )
    for gpu, driver, system in subjects_to_try(list(asked)):
        shown = []
        for page in pages:
            page.locator("#works [name=system]").select_option(system)
            fill(page, gpu, driver, "3.12" if len(gpu) % 2 else "")
            page.locator("#works-answer").evaluate(
                "(answer) => { answer.dataset.old = answer.querySelector('h3')?.remove(); }"
            )
            submit(page, "works")
            page.locator("#works-answer h3").wait_for(timeout=STARTED_MS)
            shown.append(page.locator("#works-answer").inner_html())
        assert shown[0] == shown[1], (gpu, driver, system)
    # A driver of Windows on Linux is unusual.
    assert len(pages[0].workers) <= 1


def test_a_question_on_whose_gpu_something_was_measured_is_for_python(
    open_page: Open, answers: Answers, tmp_path: Path
) -> None:
    measured_gpu = write(tmp_path, sources(RECORDS, answers=answers))
    page = open_page(measured_gpu.as_uri())
    fill(page, "H100", "580.65.06", "3.12")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_contain_text("failed when it was", timeout=STARTED_MS)
    [_] = page.workers


def test_a_link_has_the_question_and_not_the_log(open_page: Open, unmeasured_directory: Path) -> None:
    page = open_page(unmeasured_directory.as_uri())
    page.locator("#why textarea").fill("a secret line")
    fill(page, "RTX 4090", "535", "3.12")
    submit(page, "works")
    expect(page.locator("#works-answer .result")).to_contain_text("should work")
    fragment = "#" + page.url.partition("#")[2]
    assert fragment == "#works=RTX+4090*535*linux+x86_64*3.12"
    again = open_page(unmeasured_directory.as_uri(), fragment)
    expect(again.locator("#works-answer")).to_have_text(
        page.locator("#works-answer").inner_text(), use_inner_text=True
    )
    expect(again.locator("#works [name=python]")).to_have_value("3.12")
    # The address of the matrix stays in the same fragment, and another link in the same tab is followed.
    again.locator("#filters select[name=driver]").select_option("")
    again.evaluate("location.hash = '#works=T4*535*wsl2+x86_64*'")
    expect(again.locator("#works-answer")).to_contain_text(
        "For T4, compute capability 7.5, driver 535, WSL2 x86_64."
    )
    assert again.workers == []


def test_without_scripts_the_page_says_what_is_missing(open_page: Open, asked_directory: Path) -> None:
    page = open_page(asked_directory.as_uri(), java_script_enabled=False)
    expect(page.get_by_text("The answers need JavaScript.")).to_be_visible()
    expect(page.locator("#works")).to_be_hidden()
    expect(page.locator("#grid")).to_be_visible()
