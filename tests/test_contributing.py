"""The first exercise of CONTRIBUTING.md works word for word, on a copy of the files that it changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXERCISE = (
    (ROOT / "CONTRIBUTING.md")
    .read_text(encoding="utf-8")
    .partition("\n### Add a check\n")[2]
    .partition("\n### ")[0]
)
#: The rows of the table say which files are changed.
CHECK, PROBLEMS, TEST = (
    row.replace("<id>", "open_files") for row in re.findall(r"^\| `(\S+?)` \|", EXERCISE, re.MULTILINE)
)


def shown(language: str) -> list[str]:
    """Return the blocks of the exercise in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", EXERCISE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what the exercise needs, with its blocks applied."""
    copy = tmp_path_factory.mktemp("exercise")
    ignored = shutil.ignore_patterns("__pycache__", "page", "templates", "layers.json")
    shutil.copytree(ROOT / "validator", copy / "validator", ignore=ignored)
    for name in (
        "tests/__init__.py",
        "tests/probe/__init__.py",
        "tests/probe/conftest.py",
        "tests/probe/checks/__init__.py",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    check, test = shown("python")
    (copy / TEST).write_text(test, encoding="utf-8")
    text = (copy / CHECK).read_text(encoding="utf-8")
    [block] = shown("diff")
    lines = block.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    # A reader may have tried the exercise in this checkout.
    if check not in text:
        assert text.count(before) == 1, block
        text = text.replace(before, "".join(line[1:] for line in lines)) + check
    (copy / CHECK).write_text(text, encoding="utf-8")
    [group] = shown("json")
    text = (copy / PROBLEMS).read_text(encoding="utf-8")
    if group.splitlines()[0] not in text:
        codes, end, rest = text.partition("\n  }\n },\n")
        assert end
        indented = "".join(f"  {line}\n" for line in group.splitlines())
        (copy / PROBLEMS).write_text(f"{codes}\n  }},\n{indented} }},\n{rest}", encoding="utf-8")
    return copy


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(directory), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=directory, env=variables, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_exercise_changes_at_most_three_files() -> None:
    assert len({CHECK, PROBLEMS, TEST}) == 3


@pytest.mark.slow
def test_the_check_of_the_exercise_runs(changed: Path) -> None:
    [command] = re.findall(r"^\$ \.venv/bin/(validator check .*)$", EXERCISE, re.MULTILINE)
    done = run(changed, *command.split())
    assert done.returncode == 0, done.stderr
    assert re.search(r"^open_files +pass +this process may open \d+ files ", done.stdout, re.MULTILINE)


@pytest.mark.service
def test_the_test_of_the_exercise_passes_and_sees_the_check_fail(changed: Path) -> None:
    arguments = ("pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={changed / 'own'}", TEST)
    done = run(changed, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    module = changed / CHECK
    whole = module.read_text(encoding="utf-8")
    try:
        module.write_text(whole.replace("if limit < LEAST_FILES", "if False"), encoding="utf-8")
        assert "1 failed, 1 passed" in run(changed, *arguments).stdout
    finally:
        module.write_text(whole, encoding="utf-8")
