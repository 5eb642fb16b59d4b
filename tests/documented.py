"""Compare JSON with the type that the reference of its fields is made from."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any

from docs.fields import fields

#: Fields that a document lacks where nothing is known (docs/reference/json.md says so).
_MAY_BE_MISSING = {"layers", "tensorflow_wheel", "measurement"}


def misfits(found: object, kind: Any, place: str = "it") -> Iterator[str]:
    """Yield what differs: fields that are missing or not described, and values of another type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object):
        return
    if origin in (typing.Union, types.UnionType):
        if found is not None or types.NoneType not in inner:
            likely = [one for one in inner if one is not types.NoneType]
            problems = [list(misfits(found, one, place)) for one in likely]
            yield from min(problems, key=len)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(found, dict):
            yield f"{place} is {found!r}, not an object"
        else:
            for name, value in found.items():
                yield from misfits(value, inner[1], f"{place}.{name}")
    elif isinstance(origin, type) and issubclass(origin, Sequence | Set):
        if not isinstance(found, list):
            yield f"{place} is {found!r}, not a list"
        else:
            item = inner[0]
            for number, value in enumerate(found):
                yield from misfits(value, item, f"{place}[{number}]")
    elif origin is typing.Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        allowed = inner or [member.value for member in kind]
        if found not in allowed:
            yield f"{place} is {found!r}, not one of {allowed}"
    elif described := fields(kind):
        yield from _of_object(found, kind, described, place)
    elif not isinstance(found, (int, float) if kind is float else kind) or (
        isinstance(found, bool) and kind is not bool
    ):
        yield f"{place} is {found!r}, not {kind.__name__}"


def _of_object(found: object, kind: Any, described: Mapping[str, str], place: str) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{place} is {found!r}, not an object"
        return
    yield from (f"{place} lacks {name}" for name in described.keys() - found.keys() - _MAY_BE_MISSING)
    yield from (f"{place} has {name}, which is not described" for name in found.keys() - described.keys())
    hints = typing.get_type_hints(kind)
    for name in described.keys() & found.keys():
        yield from misfits(found[name], hints[name], f"{place}.{name}")
