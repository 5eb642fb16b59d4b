"""Read and write the index of the corpus."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .rendering.console import Facts
from .rendering.forms import render

HERE = Path(__file__).parent
INDEX = HERE / "index.yaml"
REPORTS = HERE / "reports"
KINDS = ("told", "pasted", "written", "captured", "reports")
#: Answers without a cause: no line is about a fault; some are, and no known cause fits them.
BENIGN, UNKNOWN = "benign_only", "unknown"

_HEAD = """\
# The corpus: see __init__.py for the kinds of entries and `Entry` in reader.py for the fields.
# `python -m tests.emulation --write` writes the rows of its captured logs anew and keeps all others.
"""
#: The fields of a told case from which its text is made.
_FACTS = ("reported", "observed", "context")
# With libyaml both take a fifth of the time.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SAFE_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SAFE_DUMPER):  # type: ignore[misc]
    """Write text of several lines line by line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


@dataclass(frozen=True)
class Entry:
    """A text or report, and the right answer to it.

    name: its kind and what distinguishes it, `pasted/163-unknown.txt`; unique
    cause: the code of the cause to be named first, or `benign_only`, or `unknown`; None where the text does
        not show the cause: both of these two are right then
    accept: other answers that the text allows
    harmless: codes of messages to be named as harmless
    says, never: patterns that the remedies of the first cause must match, and must not match
    miss: why the diagnosis gives a wrong answer, where it is known to do so
    source: where the case was published, such as `tensorflow/tensorflow#16860`
    confirmed: what was found to be the cause, and by whom
    tensorflow: the release, where it is known
    facts: for a told case, when it was reported, what was observed, and in what environment
    fault: the fault that was made for a captured log
    made: how a captured log or a report was made
    text: the text, if it has no file of its own
    """

    name: str
    cause: str | None
    accept: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    miss: str | None = None
    source: str | None = None
    confirmed: str | None = None
    tensorflow: str | None = None
    facts: Facts | None = None
    fault: str | None = None
    made: str | None = None
    text: str | None = None

    @property
    def kind(self) -> str:
        """Return one of `KINDS`."""
        return self.name.partition("/")[0]

    @property
    def expected(self) -> frozenset[str]:
        """Return the answers that count as right."""
        cause = {BENIGN, UNKNOWN} if self.cause is None else {self.cause}
        return frozenset({*cause, *self.accept})

    @property
    def path(self) -> Path:
        """Return the place of the file, if `has_file`."""
        return HERE / self.name

    @property
    def has_file(self) -> bool:
        """Return False for a told case, and where the index has the text."""
        return self.facts is None and self.text is None

    def content(self) -> bytes:
        """Return the text or report as a person would hand it in."""
        if self.facts is not None:
            return render(self.facts).encode()
        return self.path.read_bytes() if self.text is None else self.text.encode()


def entries(*kinds: str) -> tuple[Entry, ...]:
    """Return the entries of these kinds, or all, in the order of the index."""
    return tuple(entry for entry in _by_name().values() if not kinds or entry.kind in kinds)


def entry(name: str) -> Entry:
    """Return the entry of this name. Raises KeyError."""
    return _by_name()[name]


def write(found: Iterable[Entry]) -> None:
    """Replace the index."""
    rows = [_row(entry) for entry in sorted(found, key=lambda entry: (KINDS.index(entry.kind), entry.name))]
    # Wide enough for a row without lists to stand on one line.
    body = yaml.dump(
        rows, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=1000
    )
    INDEX.write_text(_HEAD + body, encoding="utf-8")
    _by_name.cache_clear()


@functools.cache
def _by_name() -> dict[str, Entry]:
    rows = yaml.load(INDEX.read_bytes(), Loader=_LOADER)
    found = {row["name"]: _entry(row) for row in rows}
    if len(found) < len(rows):
        raise ValueError(f"{INDEX} has two rows of one name")
    return found


def _entry(row: dict[str, Any]) -> Entry:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    if values["name"].startswith("told/"):
        reported, observed, context = (values.pop(name) for name in _FACTS)
        context = {key: str(value) for key, value in context.items()}
        values["facts"] = Facts(row["source"], reported, observed, context)
    return Entry(**values)


def _row(entry: Entry) -> dict[str, Any]:
    """Return the inverse of `_entry`: fields with their default are left out."""
    row: dict[str, Any] = {"name": entry.name, "cause": entry.cause}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.name == "facts" and value is not None:
            row |= {name: _plain(getattr(value, name)) for name in _FACTS}
        elif value != field.default:
            row[field.name] = _plain(value)
    return row


def _plain(value: Any) -> Any:
    """Return the lists and dictionaries that YAML writes."""
    return list(value) if isinstance(value, tuple) else value
