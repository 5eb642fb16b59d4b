"""Run commands against the repository of a test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .. import commands
from .shelf import Shelf

#: Hosts that the tests' images are certified for. They are predicted to work on the first one.
HERE = ("--driver", "580.95.05", "--gpu", "h200")
ON_H100 = ("--driver", "580.95.05", "--gpu", "h100")


@dataclass(frozen=True)
class Outcome:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


def run(shelf: Shelf, command: str, *arguments: str, cwd: Path | None = None, **variables: str) -> Outcome:
    """Run a validator command, with `--exec` in a process of its own. variables: added to the environment."""
    environment = {
        **os.environ,
        "VALIDATOR_REGISTRY": str(shelf.registry.repository),
        "VALIDATOR_KEY": str(shelf.trust.key),
        **variables,
    }
    call = commands.run_alone if "--exec" in arguments else commands.run
    done = call(command, *arguments, cwd=cwd or Path.cwd(), environment=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)
