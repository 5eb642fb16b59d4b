"""Check the shape of a document, such as a matrix file, against the types of its schema.

Only the shape is checked here. `images` and `hosts` check whether a release, a version or a GPU exists,
because they know the facts and can name the nearest ones.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import (
    BoolType,
    DateTimeType,
    DictType,
    Field,
    IntType,
    ListType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from ..model.timestamps import parse_timestamp
from .document import Document, Path, keys_of, kind_of
from .problems import join_words, quote
from .schema import MAX_AXIS, MatrixFile

_Entry = TypeVar("_Entry", bound=msgspec.Struct)

_INTEGER = re.compile(r"[0-9]{1,9}")
#: What YAML reads as false.
_FALSE = ("false", "no", "off")

#: The words of messages for the types that YAML gives to plain scalars.
_KINDS = {
    "float": "a number",
    "int": "a number",
    "bool": "a truth value",
    "null": "nothing",
    "timestamp": "a date",
}


def check_shape(document: Document, kind: type[msgspec.Struct] = MatrixFile) -> None:
    """Report everything in a document that does not have the types of this struct."""
    _check(document.root, type_info(kind), (), document)
    document.close_reported()


def read_entry(kind: type[_Entry], node: Node) -> _Entry | None:
    """Return one entry of the document, or None if it is not a mapping.

    Every value is taken as the text that was written, whatever its type. So when `check_shape` has reported a
    value of the wrong type, the rest of the entry is still checked. A key that was given has at least one
    value.
    """
    if not isinstance(node, MappingNode):
        return None
    given = {name: value for name, (_, value) in keys_of(node).items()}
    values = {
        field.name: _value(given[field.name], _plain(field.type))
        for field in _fields(kind)
        if field.name in given
    }
    missing = {field.name: _empty(_plain(field.type)) for field in _fields(kind) if field.required}
    return kind(**{**missing, **values})


def _value(node: Node, expected: Type) -> Any:
    if isinstance(expected, ListType):
        items = node.value[:MAX_AXIS] if isinstance(node, SequenceNode) else [node]
        return [_value(item, _plain(expected.item_type)) for item in items] or [""]
    if isinstance(expected, DictType):
        inner = keys_of(node) if isinstance(node, MappingNode) else {}
        return {name: _value(value, _plain(expected.value_type)) for name, (_, value) in inner.items()}
    if isinstance(expected, UnionType):
        struct = _alternative(expected, StructType)
        if isinstance(node, MappingNode) and isinstance(struct, StructType):
            return read_entry(struct.cls, node)
    if isinstance(expected, BoolType):
        return isinstance(node, ScalarNode) and node.value.lower() not in _FALSE
    if isinstance(expected, IntType):
        return int(node.value) if isinstance(node, ScalarNode) and _INTEGER.fullmatch(node.value) else 0
    return node.value if isinstance(node, ScalarNode) else ""


def _empty(expected: Type) -> Any:
    return [] if isinstance(expected, ListType) else ""


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    info = type_info(kind)
    assert isinstance(info, StructType)
    return info.fields


def _alternative(union: UnionType, kind: type[Type]) -> Type:
    """Return the type of this kind in a union of text and a mapping."""
    return next(plain for one in union.types if isinstance(plain := _plain(one), kind))


def _plain(expected: Type) -> Type:
    """Return a type without its description."""
    return _plain(expected.type) if isinstance(expected, Metadata) else expected


def _check(node: Node, expected: Type, path: Path, document: Document) -> None:
    expected = _plain(expected)
    if isinstance(expected, UnionType):
        struct, text = (_alternative(expected, kind) for kind in (StructType, StrType))
        if isinstance(node, SequenceNode):
            document.report(path, _wrong_type("text or a mapping", node))
        else:
            _check(node, struct if isinstance(node, MappingNode) else text, path, document)
    elif isinstance(expected, StructType):
        _check_struct(node, expected, path, document)
    elif isinstance(expected, DictType):
        _check_dict(node, expected, path, document)
    elif isinstance(expected, ListType) and isinstance(_plain(expected.item_type), StrType | UnionType):
        _check_axis(node, expected, path, document)
    elif isinstance(expected, ListType):
        _check_list(node, expected, path, document)
    elif isinstance(expected, DateTimeType):
        _check_time(node, path, document)
    elif isinstance(expected, BoolType):
        if kind_of(node) != "bool":
            document.report(path, _wrong_type("true or false", node))
    elif isinstance(expected, IntType):
        limits = f"a whole number from {expected.ge} to {expected.le}"
        if not isinstance(node, ScalarNode) or not _INTEGER.fullmatch(node.value):
            document.report(path, _wrong_type(limits, node))
        elif not (expected.ge or 0) <= int(node.value) <= (expected.le or 0):
            document.report(path, f"expected {limits}, found {node.value}")
    else:
        assert isinstance(expected, StrType)
        _check_text(node, expected, path, document)


def _check_struct(node: Node, expected: StructType, path: Path, document: Document) -> None:
    if not isinstance(node, MappingNode):
        document.report(path, _wrong_type("a mapping", node))
        return
    given = keys_of(node)
    fields = {field.name: field for field in expected.fields}
    for name, (_, value) in given.items():
        if name in fields:
            _check(value, fields[name].type, (*path, name), document)
        else:
            document.report((*path, name), _unknown_key(name, list(fields)), at_key=True)
    for name, field in fields.items():
        if field.required and name not in given:
            document.report(path, f"the key {name} is missing")


def _check_dict(node: Node, expected: DictType, path: Path, document: Document) -> None:
    if not isinstance(node, MappingNode):
        document.report(path, _wrong_type("a mapping", node))
        return
    _check_length(node, expected, path, document)
    for name, (_, value) in keys_of(node).items():
        _check(value, expected.value_type, (*path, name), document)


def _check_axis(node: Node, expected: ListType, path: Path, document: Document) -> None:
    if isinstance(node, SequenceNode):
        _check_list(node, expected, path, document)
    else:
        _check(node, expected.item_type, path, document)


def _check_list(node: Node, expected: ListType, path: Path, document: Document) -> None:
    if not isinstance(node, SequenceNode):
        document.report(path, _wrong_type("a list", node))
    elif _check_length(node, expected, path, document):
        for index, item in enumerate(node.value):
            _check(item, expected.item_type, (*path, index), document)


def _check_length(node: Node, expected: ListType | DictType, path: Path, document: Document) -> bool:
    if len(node.value) < (expected.min_length or 0):
        document.report(path, "is empty; it needs at least one value")
    elif expected.max_length is not None and len(node.value) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} values")
    else:
        return True
    return False


def _check_text(node: Node, expected: Type, path: Path, document: Document) -> None:
    assert isinstance(expected, StrType)
    if not isinstance(node, ScalarNode) or kind_of(node) != "str":
        document.report(path, _wrong_type("text", node))
    elif len(node.value) < (expected.min_length or 0):
        document.report(path, "is empty")
    elif expected.max_length is not None and len(node.value) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} characters")


def _check_time(node: Node, path: Path, document: Document) -> None:
    """Check a time in ISO 8601. YAML reads some of them as dates when they are not quoted."""
    if not isinstance(node, ScalarNode) or kind_of(node) not in ("str", "timestamp"):
        document.report(path, _wrong_type("a date or a time", node))
    elif parse_timestamp(node.value) is None:
        document.report(path, f"{quote(node.value)} is not a time (such as 2027-11-22 or 2027-11-22T06:30Z)")


def _wrong_type(expected: str, node: Node) -> str:
    if not isinstance(node, ScalarNode):
        found = "a mapping" if isinstance(node, MappingNode) else "a list"
        return f"expected {expected}, found {found}"
    kind = kind_of(node)
    if kind == "null":
        return "is empty"
    if kind == "str":
        return f"expected {expected}, found the text {quote(node.value)}"
    found = f"{_KINDS.get(kind, 'a ' + kind)} ({node.value})"
    if expected == "text":
        return f"expected text, found {found}; write {quote(node.value)}, in quotes"
    return f"expected {expected}, found {found}"


def _unknown_key(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"unknown key; {f'did you mean {near[0]}?' if near else f'the keys here are {join_words(known)}'}"
