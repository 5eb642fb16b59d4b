"""Test that help and complaints about options come without loading what takes long to load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from validator.cli import COMMANDS

ROOT = Path(__file__).parents[2]
HEAVY = (
    "cyclonedx", "docker", "jinja2", "mcp", "psycopg", "pydantic", "pynvml", "re2", "requests", "rich",
    "sqlalchemy", "yaml",
)  # fmt: skip


def heavy_modules_after(*commands: list[str], heavy: tuple[str, ...] = HEAVY) -> tuple[list[str], str]:
    """Run commands in one new process. Returns the heavy modules that it loaded, and its other output."""
    program = (
        f"import sys\nfrom validator import cli\ncodes = [cli.run(words) for words in {list(commands)}]\n"
        f"print('heavy:', *(name for name in {heavy} if name in sys.modules))\nsys.exit(any(codes))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    output, _, last = done.stdout.rstrip("\n").rpartition("\n")
    return last.split()[1:], output


@pytest.mark.slow
def test_help_loads_nothing_heavy_and_lists_every_command() -> None:
    heavy, output = heavy_modules_after(["--help"], heavy=(*HEAVY, "msgspec"))
    assert heavy == []
    assert all(command in output for command in COMMANDS)


@pytest.mark.slow
def test_the_help_of_every_command_loads_nothing_heavy() -> None:
    heavy, output = heavy_modules_after(*([command, "--help"] for command in COMMANDS))
    assert heavy == []
    assert output.count("Usage: validator") == len(COMMANDS)
