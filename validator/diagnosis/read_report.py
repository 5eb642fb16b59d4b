"""From a probe's report to observations: fields by `data/report.yaml`, logs by the catalogue of messages."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..model.report import Report
from . import compiled
from .messages import FAULT, UNRECOGNIZED, Catalogue
from .observations import WIDTH, Observation, Observations
from .read_log import observe
from .text import read_text

#: The text of an absent value; only a pattern that is this very text matches it.
_NULL = "null"


@dataclass(frozen=True)
class Field:
    """A field of the report that shows something.

    path: names joined by dots; `*` is every entry of a list or every key; checks are named by their id.
    pattern: RE2, for all of the field's text (`null`, `true`, a number, a string); named groups are values.
    when: texts that fields beside it must have.
    beside: values taken from fields beside it: name of the value -> name of the field.
    key: the name of the value that the key, which the last `*` stood for, is given as.
    """

    kind: str
    path: tuple[str, ...]
    pattern: str
    values: Mapping[str, str]
    when: Mapping[str, str]
    beside: Mapping[str, str]
    key: str


@dataclass(frozen=True)
class _Place:
    """A value in the document, with what it lies in and where."""

    value: Any
    parent: Any
    where: str
    key: str


def observe_report(report: Report, catalogue: Catalogue) -> Observations:
    """Everything that the report shows."""
    found = Observations()
    document = {**report.raw, "checks": {entry["id"]: entry for entry in report.raw["checks"]}}
    for row in fields():
        for place in _places(document, row.path):
            observation = _observation(row, place)
            if observation is not None:
                found.add(observation)
    for where, text in _printed(report):
        for observation in observe(read_text(text), catalogue, where):
            # A check may have provoked a line on purpose; what it means is for the check to say.
            if observation.kind not in (UNRECOGNIZED, FAULT):
                found.add(observation)
    for check in report.checks:
        if check.went_wrong:
            where, text = f"checks.{check.id}", f"{check.id}: {check.outcome.value}: {check.sentence}"
            values = {"check": check.id, "outcome": check.outcome.value}
            found.add(Observation("check_not_passed", MappingProxyType(values), text[:WIDTH], where))
    return found


def _printed(report: Report) -> Iterator[tuple[str, str]]:
    """What software said, with where: the logs, and what the checks that did not pass caught of it."""
    printed = {
        "logs.host_stderr, ": report.logs.host_stderr or "",
        "logs.tensorflow_stderr, ": report.logs.tensorflow_stderr or "",
    }
    for check in report.checks:
        if check.went_wrong:
            printed[f"checks.{check.id}, "] = "\n".join([check.sentence, *check.evidence.printed])
    yield from ((where, text) for where, text in printed.items() if text.strip())


@functools.cache
def fields() -> tuple[Field, ...]:
    """The list of fields, read once."""
    rows = compiled.section("report")
    return tuple(
        Field(
            kind=row["kind"],
            path=tuple(row["field"].split(".")),
            pattern=row.get("pattern", ".+"),
            values=row.get("values", {}),
            when=row.get("when", {}),
            beside=row.get("beside", {}),
            key=row.get("key", ""),
        )
        for row in rows
    )


def _observation(row: Field, place: _Place) -> Observation | None:
    if place.value is None and row.pattern != _NULL:
        return None
    beside = place.parent if isinstance(place.parent, dict) else {}
    if any(_text(beside.get(name)) != wanted for name, wanted in row.when.items()):
        return None
    text = _text(place.value)
    match = re.fullmatch(row.pattern, text, re.DOTALL | re.ASCII)
    if match is None:
        return None
    values = {name: value for name, value in match.groupdict().items() if value is not None}
    values |= {
        name: _text(beside[field]) for name, field in row.beside.items() if beside.get(field) is not None
    }
    if row.key:
        values[row.key] = place.key
    return Observation(row.kind, MappingProxyType({**row.values, **values}), text[:WIDTH], place.where)


def _places(document: Any, path: tuple[str, ...], where: str = "", parent: Any = None) -> Iterator[_Place]:
    if not path:
        yield _Place(document, parent, where, where.rpartition(".")[2])
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        for key in [key for key in document if name in ("*", key)]:
            yield from _places(document[key], rest, f"{where}.{key}".lstrip("."), document)
    elif isinstance(document, list) and name == "*":
        for number, entry in enumerate(document):
            yield from _places(entry, rest, f"{where}[{number}]", document)


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return str(value).lower()
    # Bytes that were no text in a path or a variable came as surrogates, which RE2 does not take.
    return str(value).encode(errors="backslashreplace").decode()
