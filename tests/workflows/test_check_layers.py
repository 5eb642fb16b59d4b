"""`scripts/check-layers` compares the layer table with that of a revision."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .support import ROOT

pytestmark = pytest.mark.service

#: In place of the check itself: prints the table that it gets, and fails as it is told.
PYTHON = """#!/bin/sh
echo "$1 $2"
cat "$3"
test ! -e fails
"""


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(
        ["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with the script, and with stubs for what it calls."""
    for name, text in {"scripts/environment": "#!/bin/sh\n", ".venv/bin/python": PYTHON}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts/check-layers", tmp_path / "scripts")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "without a table")
    (tmp_path / "images").mkdir()
    for text in ("first\n", "second\n"):
        (tmp_path / "images/layers.json").write_text(text, encoding="utf-8")
        git(tmp_path, "add", "images")
        git(tmp_path, "commit", "--quiet", "--message", text)
    return tmp_path


def check(checkout: Path, revision: str) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts/check-layers"), revision]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("revision", "table"),
    [("HEAD", "second\n"), ("HEAD~1", "first\n"), ("HEAD~2", "[]\n"), ("0" * 40, "[]\n")],
)
def test_the_table_of_the_revision_is_the_old_one(checkout: Path, revision: str, table: str) -> None:
    done = check(checkout, revision)
    assert (done.returncode, done.stdout) == (0, f"-m validator.pipeline.sharing_layers\n{table}")


@pytest.mark.parametrize(("main", "table"), [("HEAD~1", "first\n"), ("HEAD~2", "[]\n"), ("HEAD", "[]\n")])
def test_an_unknown_revision_is_where_the_branch_began(checkout: Path, main: str, table: str) -> None:
    git(checkout, "update-ref", "refs/remotes/origin/main", main)
    done = check(checkout, "0" * 40)
    assert (done.returncode, done.stdout) == (0, f"-m validator.pipeline.sharing_layers\n{table}")


def test_a_wrong_row_fails(checkout: Path) -> None:
    (checkout / "fails").touch()
    assert check(checkout, "HEAD").returncode == 1
