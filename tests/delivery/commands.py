"""Commands as a person runs them, against a shelf of a test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .shelf import Shelf

#: A machine with a GPU that the shelf has images for.
HERE = ("--driver", "580.95.05", "--gpu", "h100")


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def ask(shelf: Shelf, command: str, *arguments: str, cwd: Path | None = None, **variables: str) -> Said:
    environment = {
        **os.environ,
        "VALIDATOR_REGISTRY": str(shelf.registry.repository),
        "VALIDATOR_KEY": str(shelf.trust.key),
        **variables,
    }
    words = [sys.executable, "-m", "validator", command, *arguments]
    done = subprocess.run(
        words, env=environment, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Said(done.returncode, done.stdout, done.stderr)
