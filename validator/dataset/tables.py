"""The tables of an export, made from `tables.yaml`: for each a class of its rows, its columns, and the rows.

Everything else is made from the classes: the JSON Schemas, the types of the columns in Parquet, the Table
Schemas in `datapackage.json`, and the site's reference. The rows come from the facts, the cells, the records
and the catalogue of messages.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import yaml
from msgspec import Meta

from ..compat import facts, releases
from ..conditions import AllOf, AnyOf, Comparison, Condition, Named
from ..diagnosis.catalogue import catalogue, causes, section
from ..diagnosis.observations import Certainty
from ..model import codec
from ..model.codec import encode, parse_timestamp
from ..model.prediction import Outcome, PlannedCell, Rank, Reason, Rule
from ..model.record import Origin, Record, Verdict
from ..model.report import CheckOutcome
from ..model.spec import Variant, cell_identifier
from ..redaction.redact import Redaction, names_in
from ..reports.printable import printable

#: The version of the tables. It changes when a program that reads the older one would misread the newer one.
SCHEMA_VERSION = 1

#: `compat.facts.STATUSES`, as a type.
Status = Literal["measured", "verified", "verified-local", "derived", "unverified", "reported"]


#: The kinds of columns. `list`: of texts. `json`: an object or an array of any shape.
Kind = Literal["text", "choice", "integer", "number", "boolean", "time", "list", "json"]
#: The types in `tables.yaml` that have no fixed values, with their kind.
_TYPES: dict[str, tuple[Kind, Any]] = {
    "text": ("text", str),
    "integer": ("integer", int),
    "number": ("number", float),
    "boolean": ("boolean", bool),
    "time": ("time", Annotated[datetime, Meta(tz=True)]),
    "texts": ("list", tuple[str, ...]),
    "array": ("json", list[Any]),
    "object": ("json", dict[str, Any]),
    "text object": ("json", dict[str, str]),
}
#: Those with fixed values: an Enum in its own order, a Literal sorted.
_ENUMS: tuple[type[Enum], ...] = (Certainty, CheckOutcome, Origin, Outcome, Rank, Variant, Verdict)
_LITERALS = {"Status": Status, "Rule": Rule, "Mode": Literal["eager", "xla"]}
_CHOICES: dict[str, tuple[Any, tuple[str, ...]]] = {
    **{kind.__name__: (kind, tuple(member.value for member in kind)) for kind in _ENUMS},
    **{name: (kind, tuple(sorted(get_args(kind)))) for name, kind in _LITERALS.items()},
}


@dataclass(frozen=True)
class Column:
    """A column.

    choices: the values of a choice, in the order in which the code lists them.
    is_array: for JSON, whether it is an array and not an object.
    """

    name: str
    kind: Kind
    nullable: bool
    description: str
    example: Any
    choices: tuple[str, ...] = ()
    is_array: bool = False


@dataclass(frozen=True)
class Table:
    """A table. row: makes a row. refers: by column, the table whose id the column holds."""

    name: str
    about: str
    row: Callable[..., Any]
    columns: tuple[Column, ...]
    refers: Mapping[str, str]


def _table(name: str, stated: Mapping[str, Any]) -> Table:
    columns, fields = [], []
    for column, (type_, description, example) in stated["columns"].items():
        plain = type_.removesuffix("?")
        nullable = plain != type_
        if plain in _CHOICES:
            value, choices = _CHOICES[plain]
            kind: Kind = "choice"
        else:
            (kind, value), choices = _TYPES[plain], ()
        columns.append(Column(column, kind, nullable, description, example, choices, plain == "array"))
        meta = Meta(description=description, examples=[example])
        fields.append((column, Annotated[value | None if nullable else value, meta]))
    row = msgspec.defstruct(
        stated["row"], fields, namespace={"__doc__": stated["about"]}, frozen=True, forbid_unknown_fields=True
    )
    return Table(name, stated["about"], row, tuple(columns), stated.get("refers", {}))


_STATED = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
TABLES = {name: _table(name, stated) for name, stated in _STATED.items()}


def encoded(row: object) -> bytes:
    """Return a row, or the value of a column, as JSON: the same bytes for the same values."""
    return msgspec.json.encode(row, order="deterministic")


def digest_of(*values: object) -> str:
    """Return 12 hex digits of a digest of values that JSON can express: the same for the same values."""
    return hashlib.sha256(codec.canonical(list(values))).hexdigest()[:12]


# The facts with their sources, and the predictions with their reasons, as rows.


#: The fields of a fact that have a column each. Everything else is in `content`.
_COLUMNS = ("id", "status", "sources")
#: The file whose rows were read from wheels. The source of such a fact has the id of the fact.
_BUILDS = "builds"


def fact_rows(texts: dict[str, str]) -> Iterator[Any]:
    """Yield every fact, in the order of the data files, and put its sources into `texts`, by id."""
    for file, name, row in facts.all_rows():
        if file == _BUILDS:
            known = releases.fact_of(row)
            sources = {known.id: known.source}
        else:
            known = facts.fact(row)
            sources = {source: facts.source_line(source) for source in row["sources"]}
        texts |= sources
        content = {name: value for name, value in row.items() if name not in _COLUMNS}
        yield TABLES["facts"].row(known.id, file, name, row["status"], tuple(sources), content)


def source_rows(texts: Mapping[str, str]) -> Iterator[Any]:
    """Yield every source, sorted by id."""
    for source, text in sorted(texts.items()):
        is_address = text.startswith("https://") and " " not in text
        yield TABLES["sources"].row(source, text, text if is_address else None)


def prediction_rows(
    cells: Iterable[PlannedCell], reasons: dict[Reason, str], names: set[str]
) -> Iterator[Any]:
    """Yield the row of each cell, in the order of the cells.

    Puts each reason with its id into `reasons`, and the identifiers of images and host classes into `names`.
    """
    for planned in cells:
        document: dict[str, Any] = {**planned.as_json()}
        names.update((document["image"], document["host"]))
        # Labels of runners reveal the machines of the matrix's owner.
        del document["runner"]
        predicted = planned.prediction
        for reason in predicted.reasons:
            if reason not in reasons:
                values = (reason.outcome.value, reason.text, reason.source, reason.status, reason.advisory)
                reasons[reason] = f"{reason.fact}/{digest_of(*values, reason.rule, reason.mode)}"
        changed = {
            "evidence": [attempt.id for attempt in predicted.evidence],
            "reasons": [reasons[reason] for reason in predicted.reasons],
        }
        yield TABLES["predictions"].row(**document | document.pop("prediction") | changed)


def reason_rows(reasons: Mapping[Reason, str]) -> Iterator[Any]:
    """Yield each reason, sorted by id."""
    for reason, identifier in sorted(reasons.items(), key=lambda entry: entry[1]):
        yield TABLES["reasons"].row(
            id=identifier, outcome=reason.outcome, text=reason.text, fact=reason.fact,
            source=reason.source, status=reason.status, advisory=reason.advisory, rule=reason.rule,
            mode=reason.mode,
        )  # fmt: skip


# Records and their checks as rows, without what must not leave a machine.
#
# Every text of a record passes through the redaction, and control characters become visible codes. Only
# identifiers of the matrix, which is published in the same export, stay as they are.


#: Texts that are remembered with the names in them, or redacted.
_REMEMBERED = 20_000


def exported(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records that belong in an export: all but rehearsals, which prove nothing."""
    return (record for record in records if record.origin is not Origin.REHEARSAL)


def names_of(records: Iterable[Record], known: Collection[str]) -> set[str]:
    """Return the names of people and machines anywhere in the records, even in what is not exported.

    known: identifiers of the matrix, which are not such names.
    """
    # Records repeat each other's texts, and finding names takes time.
    names = functools.lru_cache(_REMEMBERED)(lambda text: tuple(names_in(text)))
    found: set[str] = set()
    for record in records:
        # `image@host` looks like a user at a host.
        document = record.document() | {"cell": None}
        found.update(name for text in dict.fromkeys(texts_in(document)) for name in names(text))
    return found - set(known)


class Cleaner:
    """Cleans the texts of records. names: see `names_of`, or None to keep names. known: as there."""

    def __init__(self, names: Collection[str] | None, known: Collection[str]) -> None:
        redact: Callable[[str], str] = str if names is None else Redaction((), names)

        def clean(text: str) -> str:
            return printable(text if text in known else redact(text))

        # Records repeat each other's texts.
        self.text = functools.lru_cache(_REMEMBERED)(clean)

    def value(self, value: Any) -> Any:
        """Return JSON or a tuple with every text cleaned, also the names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        if not isinstance(value, dict):
            return value
        cleaned: dict[str, Any] = {}
        for name, entry in value.items():
            # Two names may be the same after cleaning.
            clean = self.text(name)
            while clean in cleaned:
                clean += "_"
            cleaned[clean] = self.value(entry)
        return cleaned


#: The texts of a record that are columns under the same name.
_TEXTS = ("reason", "engine", "image_digest", "lock_digest", "base", "probe_version")


def record_rows(records: Iterable[Record], clean: Cleaner) -> Iterator[Any]:
    """Yield the row of each record, in their order."""
    for record in records:
        image, host = clean.text(record.image), clean.text(record.host_class)
        facts = record.facts
        texts = {
            **{name: record.versions.get(name) for name in ("tensorflow", "python", "cuda", "cudnn")},
            **{name: getattr(facts, name) for name in ("driver", "driver_cuda", "os", "kernel", "container")},
            **{name: getattr(record, name) for name in _TEXTS},
            "gpus": tuple(facts.gpu_names),
            "compute_capabilities": tuple(gpu.compute_capability or "unknown" for gpu in facts.gpus),
            "limits": encode(list(record.limits)),
        }
        yield TABLES["records"].row(
            id=record.id,
            cell=cell_identifier(image, host),
            image=image,
            host=host,
            verdict=record.verdict,
            origin=record.origin,
            fixture=(record.report or {}).get("fixture") is True,
            signed=record.measurement is not None,
            started=parse_timestamp(record.started),
            finished=parse_timestamp(record.finished),
            **{name: clean.value(value) for name, value in texts.items()},
        )


def check_rows(records: Iterable[Record], clean: Cleaner) -> Iterator[Any]:
    """Yield the row of each check of each record, in their order."""
    for record in records:
        seen: dict[str, int] = {}
        for check in record.results:
            name = clean.text(check.id)
            seen[name] = seen.get(name, 0) + 1
            repeated = f"/{seen[name]}" if seen[name] > 1 else ""
            yield TABLES["checks"].row(
                id=f"{record.id}/{name}{repeated}",
                record=record.id,
                check=name,
                outcome=check.outcome,
                required=check.required,
                seconds=check.duration_s,
                summary=clean.text(check.sentence),
                codes=clean.value(tuple(problem.code for problem in check.problems)),
                evidence=clean.value(check.evidence.raw),
            )


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in parsed JSON, also the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from texts_in(pair)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from texts_in(entry)


# The catalogue of the diagnosis as rows: messages, the causes that they show, and the fixes.


def message_rows() -> Iterator[Any]:
    """Yield every message, in the order in which they are tried.

    Its causes are those with a comparison in a sign that the message does not contradict.
    """
    wanted: dict[str, list[tuple[str, Comparison]]] = {}
    for entry in causes():
        for comparison in _comparisons(sign.when for sign in entry.signs):
            wanted.setdefault(comparison.kind, []).append((entry.code, comparison))
    for message in catalogue().messages:
        codes = [
            code
            for code, comparison in wanted.get(message.kind, ())
            if all(
                name not in message.values or any(one.accepts(message.values[name]) for one in accepted)
                for name, accepted in comparison.values.items()
            )
        ]
        yield TABLES["messages"].row(
            id=f"{message.kind}/{digest_of(message.pattern)}",
            kind=message.kind,
            pattern=message.pattern,
            values=dict(message.values),
            harmless=message.harmless,
            describes=message.fact,
            certainty=message.certainty,
            causes=tuple(dict.fromkeys(codes)),
        )


def cause_rows() -> Iterator[Any]:
    """Yield every cause, in the order of the causal chain."""
    for position, (entry, row) in enumerate(zip(causes(), section("causes"), strict=True), start=1):
        yield TABLES["causes"].row(
            id=entry.code,
            position=position,
            title=entry.title,
            means=entry.means,
            signs=row["signs"],
            ruled_out_by=row.get("ruled_out_by", []),
            kinds=tuple(sorted({each.kind for each in _comparisons(sign.when for sign in entry.signs)})),
            explains=entry.explains,
            sources=entry.sources,
        )


def fix_rows() -> Iterator[Any]:
    """Yield the fixes of every cause, in the order of the data."""
    for entry, row in zip(causes(), section("causes"), strict=True):
        for position, (remedy, written) in enumerate(
            zip(entry.remedies, row["remedies"], strict=True), start=1
        ):
            when = [written["when"]] if "when" in written else []
            yield TABLES["fixes"].row(
                id=f"{entry.code}/{remedy.way}/{digest_of(remedy.says, remedy.commands, when)}",
                cause=entry.code,
                position=position,
                way=remedy.way,
                says=remedy.says,
                commands=remedy.commands,
                when=when,
                interrupts=remedy.interrupts or None,
            )


def _comparisons(conditions: Iterable[Condition]) -> Iterator[Comparison]:
    """Yield the comparisons in conditions, without those that must not hold."""
    for condition in conditions:
        if isinstance(condition, Comparison):
            yield condition
        elif isinstance(condition, Named):
            yield from _comparisons([condition.condition])
        elif isinstance(condition, AllOf | AnyOf):
            yield from _comparisons(condition.conditions)
