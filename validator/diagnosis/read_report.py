"""From a probe's report to observations: fields by `data/report.yaml`, logs by the catalogue of messages."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import re2
import yaml

from ..model.report import CheckOutcome, Report
from .messages import DATA, UNRECOGNIZED, Catalogue
from .observations import WIDTH, Observation, Observations
from .read_log import observe
from .text import read_text

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BAD = (CheckOutcome.FAIL, CheckOutcome.ERROR, CheckOutcome.TIMEOUT, CheckOutcome.CRASH)


@dataclass(frozen=True)
class Field:
    """A field of the report that shows something.

    path: names joined by dots; `*` is every entry of a list or every key; checks are named by their id.
    pattern: RE2, for all of the field's text (`null`, `true`, a number, a string); named groups are values.
    beside: values taken from fields beside it: name of the value -> name of the field.
    key: the name of the value that the key, which the last `*` stood for, is given as.
    """

    kind: str
    path: tuple[str, ...]
    pattern: str
    values: Mapping[str, str]
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
    logs = report.raw.get("logs", {})
    for name in ("host_stderr", "tensorflow_stderr"):
        text = logs.get(name) if isinstance(logs, dict) else None
        if isinstance(text, str) and text.strip():
            for observation in observe(read_text(text), catalogue, f"logs.{name}, "):
                # What a check provoked on purpose stands in the logs too; the checks say what it means.
                if observation.kind != UNRECOGNIZED:
                    found.add(observation)
    for check in report.checks:
        if check.outcome in _BAD:
            where, text = f"checks.{check.id}", f"{check.id}: {check.outcome.value}: {check.summary}"
            values = {"check": check.id, "outcome": check.outcome.value}
            found.add(Observation("check_not_passed", MappingProxyType(values), text[:WIDTH], where))
    return found


@functools.cache
def fields() -> tuple[Field, ...]:
    """The list of fields, read once."""
    rows = yaml.load((DATA / "report.yaml").read_bytes(), Loader=_LOADER)
    return tuple(
        Field(
            kind=row["kind"],
            path=tuple(row["field"].split(".")),
            pattern=row.get("pattern", ".+"),
            values=row.get("values", {}),
            beside=row.get("beside", {}),
            key=row.get("key", ""),
        )
        for row in rows
    )


def _observation(row: Field, place: _Place) -> Observation | None:
    text = _text(place.value)
    match = re2.compile(row.pattern, _options()).fullmatch(text)
    if match is None:
        return None
    values = {name: value for name, value in match.groupdict().items() if value is not None}
    if isinstance(place.parent, dict):
        beside = {name: place.parent.get(field) for name, field in row.beside.items()}
        values |= {name: _text(value) for name, value in beside.items() if value is not None}
    if row.key:
        values[row.key] = place.key
    return Observation(
        row.kind, MappingProxyType({**row.values, **values}), f"{place.key}: {text}"[:WIDTH], place.where
    )


@functools.cache
def _options() -> Any:
    options = re2.Options()
    options.dot_nl = True
    return options


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
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
