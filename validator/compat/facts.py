"""Read the facts. Every row is a fact with an identifier, a status and its sources.

People edit `data/*.yaml`, which `scripts/compile-data` turns into the one JSON file that is read here. The
modules with the rules make typed tables of their rows.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import marshal
import os
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.prediction import Outcome, Reason

#: One row of a data file. JSON has text for keys, so numbers that are keys in YAML are text here.
Row = dict[str, Any]

DATA = Path(__file__).parent / "data"
COMPILED = DATA / "compiled.json"

DERIVED = "derived"
UNVERIFIED = "unverified"
#: The statuses of facts, most certain first. An `unverified` fact never decides an outcome by itself.
STATUSES = ("verified", "verified-local", DERIVED, UNVERIFIED)

#: The first word of a reason that does not change the outcome.
ADVISORY = "advisory"

#: An issue or pull request by repository and number. It needs no entry in sources.yaml.
_THREAD = re.compile(r"^[\w.-]+/[\w.-]+#\d+$")


@dataclass(frozen=True)
class Fact:
    """A fact that a reason is based on.

    source: where it was read, as one line that a person can follow.
    """

    id: str
    status: str
    source: str

    @property
    def decides(self) -> bool:
        """True if an outcome of `works` or `fails` may be based on this fact."""
        return self.status != UNVERIFIED

    def with_(self, other: Fact) -> Fact:
        """Return this fact based on another one too: the less certain status, and the sources of both."""
        sources = dict.fromkeys((*self.source.split("; "), *other.source.split("; ")))
        return Fact(self.id, max(self.status, other.status, key=STATUSES.index), "; ".join(sources))

    def derived(self) -> Fact:
        """Return this fact for a conclusion from it that nobody has run on hardware."""
        return Fact(self.id, max(self.status, DERIVED, key=STATUSES.index), self.source)

    def works(self, text: str) -> Reason:
        """Return a reason why the cell works."""
        return self._reason(Outcome.WORKS, text)

    def fails(self, text: str) -> Reason:
        """Return a reason why the cell fails."""
        return self._reason(Outcome.FAILS, text)

    def unknown(self, text: str) -> Reason:
        """Return a reason why the outcome is not known."""
        return self._reason(Outcome.UNKNOWN, text)

    def advises(self, text: str) -> Reason:
        """Return a remark that does not change the outcome, whatever the status of the fact."""
        return Reason(Outcome.WORKS, f"{ADVISORY}: {text}", self.id, self.source, self.status, True)

    def _reason(self, outcome: Outcome, text: str) -> Reason:
        if not self.decides and outcome is not Outcome.UNKNOWN:
            outcome, text = Outcome.UNKNOWN, f"{text} (not verified)"
        return Reason(outcome, text, self.id, self.source, self.status)


@functools.cache
def _documents() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = json.loads(COMPILED.read_bytes())
    return content


def rows(name: str, section: str) -> list[Row]:
    """Return the rows of one section of `data/<name>.yaml`. Raises KeyError for an unknown one."""
    found: list[Row] = _documents()[name][section]
    return found


def fact(row: Row) -> Fact:
    """Return the identifier, status and sources of a row."""
    return Fact(row["id"], row["status"], "; ".join(source_line(key) for key in row["sources"]))


@functools.cache
def rule(name: str, identifier: str) -> Fact:
    """Return a fact that is a sentence and not a row of a table, by file and id. Raises KeyError."""
    known = {row["id"]: row for row in rows(name, "rules")}
    return fact(known[identifier])


@functools.cache
def source_line(key: str) -> str:
    """Return a source as a line that a person can follow. Raises KeyError for an unknown key."""
    if _THREAD.match(key):
        repository, number = key.split("#")
        return f"https://github.com/{repository}/issues/{number}"
    line: str = _documents()["sources"][key]
    return line


# Reading the project's own data files.

#: Bytes of the checksum before what is kept.
_SUM = 4


def read(path: Path) -> Any:
    """What is in a YAML file. Raises OSError and yaml.YAMLError."""
    source = path.read_bytes()
    kept = Path(importlib.util.cache_from_source(f"{path}.py"))
    # Whatever is wrong with what was kept, the file itself is at hand.
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        written = kept.read_bytes()
        # What is damaged is not looked into: it may ask for any amount of memory.
        if written[:_SUM] == _sum(written[_SUM:]):
            of, content = marshal.loads(written[_SUM:])
            if of == source:
                return content
    content = _parsed(source)
    if not sys.dont_write_bytecode:
        _keep(kept, source, content)
    return content


def _parsed(source: bytes) -> Any:
    # Importing it takes as long as the rest, and where all is kept it is not needed.
    import yaml

    # With libyaml it takes a fifth of the time.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(source, Loader=loader)


def _keep(kept: Path, source: bytes, content: Any) -> None:
    """Keep it, if that can be done: not on a full disk, in a directory of others, or with a date in it."""
    with contextlib.suppress(OSError, ValueError):
        written = marshal.dumps((source, content))
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            temporary.write_bytes(_sum(written) + written)
            temporary.replace(kept)
        finally:
            temporary.unlink(missing_ok=True)


def _sum(written: bytes) -> bytes:
    return zlib.crc32(written).to_bytes(_SUM, "little")
