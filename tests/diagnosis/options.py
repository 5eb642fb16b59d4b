"""The programs that remedies may name and their options (`programs.yaml`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

#: Programs with the subcommands and options of another.
_SAME_AS = {"mamba": "conda", "micromamba": "conda", "singularity": "apptainer", "pip3": "pip"}
_HELP = frozenset({"--help", "-h"})
#: Commands whose arguments name another program, after the image or the pod if it is not `srun`.
_START = frozenset(
    {"docker run", "docker exec", "docker compose run", "docker compose exec", "podman run", "srun",
     "apptainer exec", "kubectl exec"}
)  # fmt: skip


@functools.cache
def _data() -> Any:
    return yaml.safe_load((Path(__file__).parent / "programs.yaml").read_text())


@functools.cache
def _tables() -> Mapping[str, Mapping[str, bool]]:
    return {
        name: {word.rstrip("="): word.endswith("=") for word in row.split()}
        for group in _data()["groups"]
        for name, row in group["options"].items()
    }


@functools.cache
def others() -> frozenset[str]:
    """Return the programs whose options are not checked."""
    return frozenset(_data()["others"].split())


def subcommand(program: str, arguments: Sequence[str]) -> str:
    """Return the words that select a known subcommand, or an empty text."""
    program = _SAME_AS.get(program, program)
    for length in (4, 3, 2, 1):
        words = " ".join(arguments[:length])
        if f"{program} {words}" in _tables():
            return words
    return ""


def of(program: str, subcommand: str) -> Mapping[str, bool] | None:
    """Return the options of a program and subcommand, each with whether it takes a value; None if unknown."""
    row = _tables().get(f"{_SAME_AS.get(program, program)} {subcommand}".strip())
    return None if row is None else {**dict.fromkeys(_HELP, False), **row}


def starts(program: str, subcommand: str) -> bool:
    """Return whether the arguments of a command name another program, which it starts."""
    return f"{_SAME_AS.get(program, program)} {subcommand}".strip() in _START


def has_table(program: str) -> bool:
    """Return whether the options of a program are checked."""
    program = _SAME_AS.get(program, program)
    return any(name.split()[0] == program for name in _tables())
