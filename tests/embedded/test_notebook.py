"""`%load_ext validator` and `%gpu_doctor`, in a real IPython of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from ..cli.test_doctor import MISMATCH
from ..cli.test_startup import HEAVY
from ..pipeline.fakes import H100, report
from .test_pytest_plugin import SECRET, hidden

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
LOAD = "%load_ext validator"
DOCTOR = "%gpu_doctor"
#: A cell that waits for the reader of stderr, which ends when no process has its pipe.
JOIN = (
    "import threading; threads = [one for one in threading.enumerate() if 'kernel-log' in one.name];"
    " [one.join(60) for one in threads]"
)
#: A TensorFlow that knows its GPUs, or not yet.
FAKE = """\
import sys, types
tensorflow = sys.modules["tensorflow"] = types.ModuleType("tensorflow")
tensorflow.__version__ = "2.21.0"
tensorflow.config = types.SimpleNamespace(
    list_physical_devices=lambda kind: ["GPU"] * LISTED, get_visible_devices=lambda kind: ["GPU"] * USED)
context = sys.modules["tensorflow.python.eager.context"] = types.ModuleType("context")
context._context = types.SimpleNamespace(_physical_devices=DEVICES)
"""


class Shown(NamedTuple):
    """The output of the cells, the process's stderr, and the arguments of each run of the probe."""

    cells: list[dict[str, str]]
    stderr: str
    asked: list[str]


Run = Callable[..., Shown]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run cells. answer: the probe's."""
    asked = tmp_path / "asked"

    def run(*cells: str, answer: bytes | None = None) -> Shown:
        asked.write_text("")
        variables = {
            **os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython"),
            "ASKED": str(asked),
        }  # fmt: skip
        if answer is not None:
            (tmp_path / "answer.json").write_bytes(answer)
            variables["ANSWER"] = str(tmp_path / "answer.json")
        done = subprocess.run(
            [sys.executable, "-m", "tests.embedded.run_cells"],
            cwd=tmp_path, env=variables, input=json.dumps(cells), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        shown = json.loads(done.stdout.rpartition("\nSHOWN ")[2])
        return Shown(shown, done.stderr, asked.read_text().splitlines())

    return run


def fake(*, listed: int = 0, used: int = 0, asked: bool = True) -> str:
    return f"LISTED, USED, DEVICES = {listed}, {used}, {[] if asked else None}\n{FAKE}"


def written(text: str) -> str:
    """Return a cell that prints as C++ code does."""
    return f"import os; _ = os.write(2, {text.encode()!r})"


class Tags(HTMLParser):
    """Collects the tags and the text of HTML, and fails if a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attributes)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_reads_the_environment_and_what_the_notebook_printed(run: Run) -> None:
    """A variable hides the GPU, and the log of the third cell shows another cause."""
    shown = run(LOAD, "x = 1", written(MISMATCH), DOCTOR, answer=hidden())
    answer = shown.cells[3]
    assert answer["text/plain"].startswith(
        "TensorFlow doesn't use a GPU.\nTensorFlow is not imported in this kernel.\n\n2 causes,"
    )
    assert "visible_devices_misset" in answer["text/plain"]
    assert "driver_library_mismatch" in answer["text/plain"]
    assert "cell 3, output line 1: " in answer["text/plain"]
    assert "restart the kernel" in answer["text/plain"]
    parsed = Tags(answer["text/html"])
    assert all(words in parsed.text for words in ("visible_devices_misset", "cell 3, output line 1: "))
    assert len(shown.asked) == 1
    # The log goes where it went before.
    assert MISMATCH in shown.stderr


def test_the_cells_of_the_page(run: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/use-in-a-notebook.md").read_text(encoding="utf-8")
    [cells] = re.findall(r"^```text\n(%load_ext .*?)\n```$", page, re.MULTILINE | re.DOTALL)
    table = re.findall(r"^\| `([^`]+)`.* \|", page, re.MULTILINE)
    assert table == [
        DOCTOR, f"{DOCTOR} --log FILE", f"%{DOCTOR}", f"answer = {DOCTOR}", "%unload_ext validator"
    ]  # fmt: skip
    (tmp_path / "FILE").write_text(MISMATCH, encoding="utf-8")
    typed = [f"{cell}\n{MISMATCH}" if cell.startswith("%%") else cell for cell in table]
    typed[-1:-1] = [re.findall(r"`(answer\.[\w.]+)`", page)[0]]
    shown = run(fake(), *cells.splitlines(), *typed, answer=hidden())
    assert [cell["error"] for cell in shown.cells] == [""] * len(shown.cells)
    first, *answers = [cell["text/plain"] for cell in shown.cells[len(cells.splitlines()) :]]
    assert "visible_devices_misset" in first
    for text, wanted in zip(
        answers,
        ("visible_devices_misset", *["driver_library_mismatch"] * 2, "None", "(Cause(", "None"),
        strict=True,
    ):
        assert wanted in text


def test_an_exception_of_a_cell_is_read(run: Run) -> None:
    error = "OOM when allocating tensor with shape[8,512] and type float on /job:localhost/device:GPU:0"
    shown = run(
        LOAD,
        f"class ResourceExhaustedError(Exception): pass\nraise ResourceExhaustedError({error!r})",
        DOCTOR,
        answer=report(H100),
    )
    assert "gpu_out_of_memory" in shown.cells[2]["text/plain"]
    assert re.search(r"cell 2, output line \d+: .*OOM when allocating", shown.cells[2]["text/plain"])


def test_words_in_code_are_no_complaint(run: Run) -> None:
    code = 'device = loss = 1\nprint(f"XLA compiled the step for {device}. The loss fell from {loss:.2f}.")'
    shown = run(LOAD, code, written("I0000 00:00:1 port.cc:153] harmless\n"), DOCTOR, answer=hidden())
    assert "xla_cannot_compile_graph" not in shown.cells[3]["text/plain"]
    assert "visible_devices_misset" in shown.cells[3]["text/plain"]


#: A new process without a GPU, and one with a GPU: what a kernel knows, and what the answer says first.
WITHOUT = [
    ("", "TensorFlow doesn't use a GPU.", "is not imported in this kernel."),
    (fake(asked=False), "TensorFlow doesn't use a GPU.", "and has not looked for GPUs yet."),
    (fake(), "TensorFlow doesn't use a GPU.", "2.21.0 is imported in this kernel, and has no GPU."),
    # The child found no memory left.
    (fake(listed=1, used=1), "TensorFlow sees the GPU in this kernel.", "has 1 GPU."),
]
WITH = [
    ("", "TensorFlow uses the GPU, as far as a new process", "is not imported in this kernel."),
    (fake(), "A new process with the settings of this kernel uses the GPU", "has no GPU."),
    (fake(listed=2), "This notebook has told TensorFlow not to use the GPU", "uses 0 of 2 GPUs."),
    (fake(listed=1, used=1), "TensorFlow sees the GPU in this kernel.", "has 1 GPU."),
]


@pytest.mark.parametrize(
    ("kernels", "answer"),
    [
        pytest.param(WITHOUT, report(H100, gpu_visible="skip", gpu_compute="skip"), id="without"),
        pytest.param(WITH, report(H100), id="with"),
    ],
)
def test_what_this_kernel_knows_is_part_of_the_answer(
    run: Run, kernels: list[tuple[str, str, str]], answer: bytes
) -> None:
    shown = run(LOAD, *(cell for kernel, _, _ in kernels for cell in (kernel, DOCTOR)), answer=answer)
    for (_, headline, note), cell in zip(kernels, shown.cells[2::2], strict=True):
        first, second = cell["text/plain"].splitlines()[:2]
        assert first.startswith(headline)
        assert second.endswith(note)
    # A kernel that uses the GPU may hold all of its memory.
    assert ["gpu_compute" in arguments for arguments in shown.asked] == [True, True, True, False]


def test_what_was_printed_before_is_not_known(run: Run) -> None:
    answer = run(fake(), LOAD, DOCTOR, answer=hidden()).cells[2]
    assert "imported before `%load_ext validator`" in answer["text/plain"]


def test_the_real_probe_runs_with_the_variables_of_the_kernel(run: Run, tmp_path: Path) -> None:
    """The variable has a relative path, and the probe runs in another directory."""
    package = tmp_path / "packages" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no such library')")
    text = run(LOAD, "import os; os.environ['PYTHONPATH'] += ':packages'", DOCTOR).cells[2]["text/plain"]
    assert f"{package}/" in text


def test_pasted_text_and_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my train.log").write_text(MISMATCH)
    notebook = {
        "cells": [
            {"cell_type": "code", "source": "1", "outputs": [{"output_type": "stream", "text": MISMATCH}]}
        ]
    }
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    cells = [f"%%gpu_doctor\n{MISMATCH}", "%gpu_doctor --log 'my train.log'", "%gpu_doctor --log train.ipynb"]
    shown = run(LOAD, *cells, answer=hidden())
    assert shown.asked == []
    for answer in shown.cells[1:]:
        assert answer["text/plain"].startswith("The driver's libraries and its loaded kernel module")
    assert "cell 1, output line 1: " in shown.cells[3]["text/plain"]


@pytest.mark.parametrize("padding", [0, 1 << 15])
def test_names_in_lines_of_a_file_that_are_not_shown_are_taken_out(
    run: Run, tmp_path: Path, padding: int
) -> None:
    training = "1/40000 - loss: 0.1\n" * (padding // 20)
    fault = MISMATCH.strip() + " seen on atlas by annabel\n"
    (tmp_path / "train.log").write_text(f"{fault}{training}annabel@atlas:~/x$ python train.py\n")
    limit = "from validator.diagnosis import text; text.NAMED = 1 << 14"
    shown = run(LOAD, limit, "%gpu_doctor --log train.log").cells[2]["text/plain"]
    assert "seen on" in shown
    assert not re.search("annabel|atlas", shown)


def test_what_can_not_be_read_is_an_error(run: Run) -> None:
    shown = run(
        LOAD, "%gpu_doctor --log nothing.log", "%%gpu_doctor --log x\ny", "%%gpu_doctor\n \n", "%gpu_doctor x"
    )
    errors = [cell["error"] for cell in shown.cells[1:]]
    assert errors[0] == "nothing.log can't be read: No such file or directory."
    assert errors[1] == "%%gpu_doctor reads the cell, and --log a file: use one of them."
    assert errors[2].startswith("the text is empty. paste what")
    assert "unrecognized arguments: x" in errors[3]
    assert "Traceback" not in shown.stderr


def test_hostile_text_and_credentials_stay_out(run: Run) -> None:
    hostile = f"</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;t\x07\u202e {SECRET} "
    answer = run(LOAD, f"%%gpu_doctor\n{hostile}{MISMATCH}").cells[1]
    parsed = Tags(answer["text/html"])
    assert parsed.tags <= {"div", "p", "strong", "h4", "code", "em", "pre", "details", "summary", "ul", "li"}
    assert parsed.attributes <= {"class", "data-validator", "open"}
    assert "<script>" in parsed.text
    for text in (answer["text/plain"], answer["text/html"]):
        assert SECRET not in text
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_it_can_be_unloaded_and_loaded_again(run: Run) -> None:
    shown = run(
        LOAD,
        written("one\n"),
        "%reload_ext validator",
        written(MISMATCH),
        DOCTOR,
        "%unload_ext validator",
        written("three\n"),
        f"{JOIN}; any(one.is_alive() for one in threads)",
        DOCTOR,
        answer=hidden(),
    )
    assert "cell 4, output line 1: " in shown.cells[4]["text/plain"]
    assert shown.stderr.count("one\n") == shown.stderr.count(MISMATCH) == shown.stderr.count("three\n") == 1
    assert shown.cells[7]["text/plain"] == "False"
    assert "`%gpu_doctor` not found" in shown.stderr


def test_a_long_output_is_kept_at_both_ends(run: Run) -> None:
    noise = f"import os\nfor i in range(500): os.write(2, (b'x' * 99 + b'\\n') * 10)\n{written(MISMATCH)}"
    shown = run(LOAD, noise, DOCTOR, answer=hidden())
    assert re.search(r"cell 2, output line \d+: .*MISMATCH", shown.cells[2]["text/plain"])
    assert shown.stderr.count("x" * 99 + "\n") == 5000


def test_a_log_stays_when_many_cells_print_nothing(run: Run) -> None:
    shown = run(LOAD, written(MISMATCH), *["1"] * 100, DOCTOR, answer=hidden())
    assert "cell 2, output line 1: " in shown.cells[-1]["text/plain"]


def test_of_many_outputs_the_first_and_the_last_are_kept(run: Run) -> None:
    noise = [written(f"line of cell {number}\n") for number in range(100)]
    log = "get_ipython().magics_manager.registry['GpuDoctor']._log.outputs(0)"
    kept = run(LOAD, *noise, f"sorted({log})", answer=hidden()).cells[-1]["text/plain"]
    assert kept == str([*range(2, 18), *range(54, 102)])


def test_what_a_thread_prints_later_belongs_to_the_last_cell(run: Run) -> None:
    thread = (
        "import os, threading; begin = threading.Event();"
        f" t = threading.Thread(target=lambda: (begin.wait(), os.write(2, {MISMATCH.encode()!r}))); t.start()"
    )
    ended = "get_ipython().events.register('post_run_cell', lambda result: (begin.set(), t.join()))"
    shown = run(LOAD, f"{thread}\n{ended}", "1", DOCTOR, answer=hidden())
    assert "cell 2, output line 1: " in shown.cells[3]["text/plain"]


def test_what_children_print_later_is_passed_on(run: Run) -> None:
    late = "import time; time.sleep(.3); raise SystemExit('late')"
    child = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {late!r}])"
    shown = run(LOAD, child, "%unload_ext validator", f"child.wait(); {JOIN}")
    assert shown.stderr.count("late") == 1


def test_an_import_of_the_package_loads_nothing() -> None:
    program = (
        "import sys, validator\n"
        f"sys.exit(' '.join(name for name in {(*HEAVY, 'IPython', 'msgspec', 'click', 'validator.embedded')}"
        " if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == ""
