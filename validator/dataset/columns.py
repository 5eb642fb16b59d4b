"""The columns of a table, read from the fields of its class."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from msgspec import Struct, inspect


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


_KINDS: dict[type[inspect.Type], Kind] = {
    inspect.StrType: Kind.TEXT,
    inspect.EnumType: Kind.CHOICE,
    inspect.LiteralType: Kind.CHOICE,
    inspect.IntType: Kind.INTEGER,
    inspect.FloatType: Kind.NUMBER,
    inspect.BoolType: Kind.BOOLEAN,
    inspect.DateTimeType: Kind.TIME,
    inspect.VarTupleType: Kind.LIST,
    inspect.ListType: Kind.JSON,
    inspect.DictType: Kind.JSON,
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


@functools.cache
def columns_of(row: type[Struct]) -> tuple[Column, ...]:
    """Return the columns of a class in `tables`."""
    described = inspect.type_info(row)
    assert isinstance(described, inspect.StructType)
    return tuple(_column(field) for field in described.fields)


def _column(field: inspect.Field) -> Column:
    assert isinstance(field.type, inspect.Metadata)
    about = field.type.extra_json_schema or {}
    found = field.type.type
    members: Sequence[inspect.Type] = found.types if isinstance(found, inspect.UnionType) else (found,)
    value = next(member for member in members if not isinstance(member, inspect.NoneType))
    choices: tuple[str, ...] = ()
    if isinstance(value, inspect.EnumType):
        choices = tuple(member.value for member in value.cls)
    elif isinstance(value, inspect.LiteralType):
        choices = tuple(map(str, value.values))
    return Column(
        name=field.name,
        kind=_KINDS[type(value)],
        nullable=len(members) > 1,
        description=about["description"],
        example=about["examples"][0],
        choices=choices,
        is_array=isinstance(value, inspect.ListType),
    )
