"""The tables of an export, made from `tables.yaml`: a class for the rows of each table, and its columns.

Everything else is made from them: the JSON Schemas, the types of the columns in Parquet, the Table Schemas in
`datapackage.json`, and the site's reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import yaml
from msgspec import Meta

from ..diagnosis.observations import Certainty
from ..model.prediction import Outcome, Rank, Rule
from ..model.record import Origin, Verdict
from ..model.report import CheckOutcome
from ..model.spec import Variant

#: The version of the tables. It changes when a program that reads the older one would misread the newer one.
SCHEMA_VERSION = 1

#: `compat.facts.STATUSES`, as a type.
Status = Literal["measured", "verified", "verified-local", "derived", "unverified", "reported"]


class Kind(Enum):
    """The type of a column. LIST: of texts. JSON: an object or an array of any shape."""

    TEXT = "text"
    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    LIST = "list"
    JSON = "json"


#: The types in `tables.yaml` that have no fixed values.
_TYPES: dict[str, tuple[Kind, Any]] = {
    "text": (Kind.TEXT, str),
    "integer": (Kind.INTEGER, int),
    "number": (Kind.NUMBER, float),
    "boolean": (Kind.BOOLEAN, bool),
    "time": (Kind.TIME, Annotated[datetime, Meta(tz=True)]),
    "texts": (Kind.LIST, tuple[str, ...]),
    "array": (Kind.JSON, list[Any]),
    "object": (Kind.JSON, dict[str, Any]),
    "text object": (Kind.JSON, dict[str, str]),
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
            kind, (value, choices) = Kind.CHOICE, _CHOICES[plain]
        else:
            (kind, value), choices = _TYPES[plain], ()
        columns.append(Column(column, kind, nullable, description, example, choices, plain == "array"))
        meta = Meta(description=description, examples=[example])
        fields.append((column, Annotated[value | None if nullable else value, meta]))
    row = msgspec.defstruct(
        stated["row"], fields, namespace={"__doc__": stated["about"]}, frozen=True, forbid_unknown_fields=True
    )
    return Table(name, stated["about"], row, tuple(columns), stated.get("refers", {}))


def _tables() -> Sequence[Table]:
    stated = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
    return [_table(name, entry) for name, entry in stated.items()]


TABLES = {table.name: table for table in _tables()}
