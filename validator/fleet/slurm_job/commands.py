"""Ask the commands of a node, and read what they print."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_ASK_LIMIT_S = 30.0
FULL = ("no space left on device", "disk quota exceeded")


def node_name() -> str:
    return os.environ.get("SLURMD_NODENAME", "")


def succeeds(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_ASK_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_ASK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def says(text: str, messages: Sequence[str]) -> bool:
    return any(message in text.lower() for message in messages)


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
