"""`scripts/environment` installs a lock only where the environment does not have it already."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from .support import ROOT

pytestmark = pytest.mark.service
#: A Python that is new enough, and writes down what pip is asked for.
PYTHON = """\
#!/bin/sh
[ "$1" = -m ] && echo "$@" >>calls
exit 0
"""
LOCKS = ("runtime", "mcp", "parquet", "test")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in ("scripts/environment", "pyproject.toml", *(f"requirements/{name}.txt" for name in LOCKS)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / path, tmp_path / path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def installed(checkout: Path, extra: str) -> str:
    """Return what the environment says if an extra, or "" for none, is installed as the lock has it now."""
    paths = ["pyproject.toml", f"requirements/{extra or 'runtime'}.txt"]
    sums = [f"{hashlib.sha256((checkout / path).read_bytes()).hexdigest()}  {path}" for path in paths]
    return "\n".join([f"extra: {extra}", *sums, ""])


@pytest.mark.parametrize(
    ("there", "asked", "lock"),
    [
        (None, "", "runtime"),
        ("", "", None),
        ("", "parquet", "parquet"),
        ("parquet", "mcp", "mcp"),
        ("parquet", "", None),
        ("parquet", "test", "test"),
        ("test", "parquet", None),
        ("test", "", None),
    ],
)
def test_what_is_installed(checkout: Path, there: str | None, asked: str, lock: str | None) -> None:
    mark = checkout / ".venv" / ".installed"
    if there is not None:
        mark.write_text(installed(checkout, there))
    subprocess.run([checkout / "scripts" / "environment", *([asked] if asked else [])], check=True)
    calls = checkout / "calls"
    text = calls.read_text() if calls.exists() else ""
    assert (f"--requirement requirements/{lock}.txt" in text) if lock else not text
    assert mark.read_text() == installed(checkout, (lock or there or "").replace("runtime", ""))


@pytest.mark.parametrize("there", [None, "", "test"])
def test_an_extra_without_a_lock_is_named(checkout: Path, there: str | None) -> None:
    if there is not None:
        (checkout / ".venv" / ".installed").write_text(installed(checkout, there))
    done = subprocess.run(
        [checkout / "scripts" / "environment", "parket"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no lock requirements/parket.txt; the extras are: mcp, parquet, test" in done.stderr
