"""The files with which the page answers questions, without a browser."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from validator.answers import ask, table
from validator.errors import InputError
from validator.model.record import Verdict
from validator.reports.diagnosis import TEMPLATES
from validator.reports.page import answers
from validator.reports.page.answers import make_answers, pinned, rule_files
from validator.reports.page.site import ENTRY, MARK, site

from .values import H100, IMAGES, measured, sources

#: Answers both questions in a Python without any installed package, and without what the page leaves out.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"validator", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not part of the standard library")

sys.meta_path.insert(0, Refuse())
import json
from validator.answers import ask
works = {"kind": "works", "gpu": "a100", "driver": "580", "python": "3.12", "system": "linux",
         "machine": "x86_64", "registry": None, "images": {}, "verdicts": {}}
name = "libcudart.so.11.0"
line = f"Could not load dynamic library '{name}'; dlerror: {name}: cannot open shared object file".encode()
why = json.loads(ask(json.dumps({"kind": "why", "name": "x"}), line, b"", len(line)))
print(json.loads(ask(json.dumps(works)))["modes"][0]["outcome"], why["diagnosis"]["answer"])
"""
#: Asks about a machine, and prints what was imported that only a text needs.
IMPORTED = """
import sys
sys.path.insert(0, sys.argv[1])
import json
from validator.answers import ask
works = {"kind": "works", "gpu": "a100", "driver": "580", "python": "3.12", "system": "linux",
         "machine": "x86_64", "registry": None, "images": {}, "verdicts": {}}
json.loads(ask(json.dumps(works)))["modes"]
print([name for name in sys.modules if name.startswith("validator.diagnosis")])
"""


def modules() -> dict[str, str]:
    """Return the modules that run in the browser with their text."""
    return {name: text for name, text in rule_files().items() if name.endswith(".py")}


def imported(text: str) -> set[str]:
    """Return the modules of the standard library that a module imports, in a function or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    # They are imported only where they are installed, and IPython only for its types.
    return {name for name in found if name.partition(".")[0] not in ("re2", "typing_extensions", "IPython")}


def written(directory: Path) -> Path:
    """Write the files that run in the browser."""
    for name, text in rule_files().items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return directory


def run_alone(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that sees no installed packages."""
    command = [sys.executable, "-I", "-S", "-c", program, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_files_answer_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    done = run_alone(PROGRAM, written(tmp_path))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "works cause_found\n")


@pytest.mark.slow
def test_what_a_function_imports_is_in_the_snapshot() -> None:
    functions = [
        node
        for text in modules().values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    names = {name for node in functions for name in imported(ast.unparse(node))}
    # No answer says how this package was installed, for which resources.py asks importlib.
    assert names == {"html", "importlib"}
    snapshot = (TEMPLATES / "snapshot.js").read_text()
    assert re.search("^import .* html,", snapshot, re.MULTILINE)


@pytest.mark.slow
def test_no_file_needs_a_package() -> None:
    names = {name.partition(".")[0] for text in modules().values() for name in imported(text)}
    assert names <= {*sys.stdlib_module_names, "validator"}


@pytest.mark.slow
def test_an_answer_about_a_machine_imports_nothing_that_reads_logs(tmp_path: Path) -> None:
    done = run_alone(IMPORTED, written(tmp_path))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")


def test_the_names_of_the_files_are_in_order() -> None:
    assert list(rule_files()) == sorted(rule_files())


def test_only_the_pinned_package_is_taken(tmp_path: Path) -> None:
    package = tmp_path / "pyodide.tgz"
    with pytest.raises(InputError, match="No such file") as missing:
        make_answers(package, MARK, None, bytes)
    package.write_bytes(b"something else")
    with pytest.raises(InputError, match="its SHA-512 differs") as wrong:
        make_answers(package, MARK, None, bytes)
    hint = f"`npm pack pyodide@{pinned().version}` downloads it"
    assert missing.value.hint == wrong.value.hint == hint


def test_another_pyodide_is_not_changed_blindly() -> None:
    with pytest.raises(ValueError, match="3"):
        answers._script("import.meta.url", "")
    with pytest.raises(ValueError, match="does not export loadPyodide"):
        answers._script("import.meta.url" * 3 + "export default _createPyodideModule;", "")


def test_a_page_without_answers_says_how_to_get_them() -> None:
    page = dict(site(sources()))[ENTRY].decode()
    assert "validator report --html DIR --answers npm" in page
    assert "wasm-unsafe-eval" not in page
    assert "worker-src" not in page
    assert "answers-data" not in page


def test_the_policy_allows_only_what_answers_need() -> None:
    made = answers.Answers("answers/a.js", "answers/b.js", {"answers/a.js": b"", "answers/b.js": b""})
    page = dict(site(sources(answers=made)))[ENTRY].decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    # Nothing else gives the right to connect, so that nothing can leave the browser.
    assert rules.keys() == {
        "default-src", "script-src", "worker-src", "style-src", "img-src", "base-uri", "form-action",
        "require-trusted-types-for", "trusted-types",
    }  # fmt: skip
    assert "unsafe-inline" not in policy[1]
    assert re.fullmatch(r"'self' file: 'sha256-[^']+' 'wasm-unsafe-eval'", rules["script-src"])
    assert rules["worker-src"] == "blob:"


def test_only_a_digest_gets_into_a_command() -> None:
    made = answers.Answers("answers/a.js", "answers/b.js", {})
    records = [
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 1),
        measured(IMAGES[1], H100, Verdict.CERTIFIED, image_digest="sha256:1; rm -rf /"),
    ]
    found = answers.context(made, "registry.example.org/x", sources(records).measurements)
    data = json.loads(str(found["data"]))
    assert data["images"] == {IMAGES[0].identifier: records[0].image_digest}
    assert data["pullable"]
    assert data["verdicts"] == {
        records[0].cell: {"verdict": "certified", "digest": records[0].image_digest},
        records[1].cell: {"verdict": "certified", "digest": None},
    }


def test_an_image_that_no_unmeasured_gpu_is_offered_leaves_the_answers_of_the_table() -> None:
    made = answers.Answers("answers/a.js", "answers/b.js", {})
    others = ("tf2.21.0-cpu-py312", f"{IMAGES[0].identifier}_0123abcd")
    records = [
        measured(IMAGES[0], H100, Verdict.UNPROVEN, 1, image=image, cell=f"{image}@{H100.identifier}")
        for image in others
    ]
    found = answers.context(made, "registry.example.org/x", sources(records).measurements)
    data = json.loads(str(found["data"]))
    assert (data["images"].keys(), data["pullable"]) == (set(others), False)
    asked = table.question("A100", "580", "linux x86_64", "3.11")
    known = {"registry": "registry.example.org/x", "images": data["images"]}
    answer = ask(json.dumps(asked))
    assert ask(json.dumps(asked | known)) == answer
    pullable = known | {"images": {json.loads(answer)["ways"][0]["image"]: records[0].image_digest}}
    assert ask(json.dumps(asked | pullable)) != answer


def test_the_limits_of_a_record_get_to_the_answers() -> None:
    limit = {"code": "xla_convolution_float32", "gpu": "NVIDIA H100", "error": "no configuration"}
    check = {
        "id": "xla_convolution", "outcome": "pass", "required": True, "statement": None, "duration_s": 1.0,
        "problems": [limit | {"severity": "limit"}], "evidence": {},
    }  # fmt: skip
    record = measured(IMAGES[0], H100, Verdict.CERTIFIED, 1, checks=[check])
    made = answers.Answers("answers/a.js", "answers/b.js", {})
    found = answers.context(made, "registry.example.org/x", sources([record]).measurements)
    data = json.loads(str(found["data"]))
    assert data["verdicts"][record.cell]["limits"] == [limit]
