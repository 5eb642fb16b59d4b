"""Read a document, such as a matrix file, into the types of its schema, with a problem for each misfit.

Only the shape is checked here. `images` and `hosts` check whether a release, a version or a GPU exists,
because they know the facts and can name the nearest ones.
"""

from __future__ import annotations

import difflib
import functools
import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import (
    BoolType,
    DateTimeType,
    DictType,
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

from ..model.timestamps import NEVER, parse_timestamp
from .document import Document, Path, keys_of, kind_of
from .problems import join_words, quote

_File = TypeVar("_File", bound=msgspec.Struct)

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


def check_shape(document: Document, kind: type[_File]) -> _File:
    """Report everything in a document that does not have the types of this struct, and return its content.

    Where a value has the wrong type, the content has the text that was written, or nothing. So what is known
    of the rest can still be checked; further problems at such a value are ignored. A list of texts that was
    given has at least one text.
    """
    content: _File = _read_struct(document.root, _struct(kind), (), document)
    document.close_reported()
    return content


@functools.cache
def _struct(kind: type[msgspec.Struct]) -> StructType:
    struct = type_info(kind)
    assert isinstance(struct, StructType)
    return struct


def _read(node: Node, expected: Type, path: Path, document: Document) -> Any:
    if isinstance(expected, Metadata):
        return _read(node, expected.type, path, document)
    if isinstance(expected, UnionType):
        return _read_text_or_struct(node, expected, path, document)
    if isinstance(expected, StructType):
        return _read_struct(node, expected, path, document)
    if isinstance(expected, DictType):
        return _read_dict(node, expected, path, document)
    if isinstance(expected, ListType):
        return _read_list(node, expected, path, document)
    if isinstance(expected, DateTimeType):
        return _read_time(node, path, document)
    if isinstance(expected, BoolType):
        if kind_of(node) != "bool":
            document.report(path, _wrong_type("true or false", node))
        return isinstance(node, ScalarNode) and node.value.lower() not in _FALSE
    if isinstance(expected, IntType):
        return _read_integer(node, expected, path, document)
    assert isinstance(expected, StrType)
    return _read_text(node, expected, path, document)


def _read_text_or_struct(node: Node, expected: UnionType, path: Path, document: Document) -> Any:
    if isinstance(node, SequenceNode):
        document.report(path, _wrong_type("text or a mapping", node))
        return ""
    wanted = StructType if isinstance(node, MappingNode) else StrType
    return _read(
        node, next(one for one in map(_plain, expected.types) if isinstance(one, wanted)), path, document
    )


def _plain(expected: Type) -> Type:
    return _plain(expected.type) if isinstance(expected, Metadata) else expected


def _read_struct(node: Node, expected: StructType, path: Path, document: Document) -> Any:
    fields = {field.name: field for field in expected.fields}
    empty = {field.name: _empty(_plain(field.type)) for field in expected.fields if field.required}
    if not isinstance(node, MappingNode):
        document.report(path, _wrong_type("a mapping", node))
        return expected.cls(**empty)
    values = {}
    for name, (_, value) in keys_of(node).items():
        if name in fields:
            values[name] = _read(value, fields[name].type, (*path, name), document)
        else:
            document.report((*path, name), _unknown_key(name, list(fields)), at_key=True)
    for name in empty.keys() - values.keys():
        document.report(path, f"the key {name} is missing")
    return expected.cls(**{**empty, **values})


def _empty(expected: Type) -> Any:
    if isinstance(expected, ListType | DictType):
        return [] if isinstance(expected, ListType) else {}
    return NEVER if isinstance(expected, DateTimeType) else ""


def _read_dict(node: Node, expected: DictType, path: Path, document: Document) -> Any:
    if not isinstance(node, MappingNode):
        document.report(path, _wrong_type("a mapping", node))
        return {}
    _check_length(node, expected, path, document)
    return {
        name: _read(value, expected.value_type, (*path, name), document)
        for name, (_, value) in keys_of(node).items()
    }


def _read_list(node: Node, expected: ListType, path: Path, document: Document) -> Any:
    of_texts = isinstance(_plain(expected.item_type), StrType | UnionType)
    if not isinstance(node, SequenceNode):
        if of_texts:
            return [_read(node, expected.item_type, path, document)]
        document.report(path, _wrong_type("a list", node))
        return []
    _check_length(node, expected, path, document)
    items = [
        _read(item, expected.item_type, (*path, index), document)
        for index, item in enumerate(node.value[: expected.max_length])
    ]
    return items or ([""] if of_texts else [])


def _check_length(node: Node, expected: ListType | DictType, path: Path, document: Document) -> None:
    if len(node.value) < (expected.min_length or 0):
        document.report(path, "is empty; it needs at least one value")
    elif expected.max_length is not None and len(node.value) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} values")


def _read_text(node: Node, expected: StrType, path: Path, document: Document) -> str:
    text: str = node.value if isinstance(node, ScalarNode) else ""
    if kind_of(node) != "str":
        document.report(path, _wrong_type("text", node))
    elif len(text) < (expected.min_length or 0):
        document.report(path, "is empty")
    elif expected.max_length is not None and len(text) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} characters")
    return text


def _read_integer(node: Node, expected: IntType, path: Path, document: Document) -> int:
    limits = f"a whole number from {expected.ge} to {expected.le}"
    if not isinstance(node, ScalarNode) or not _INTEGER.fullmatch(node.value):
        document.report(path, _wrong_type(limits, node))
        return 0
    if not (expected.ge or 0) <= int(node.value) <= (expected.le or 0):
        document.report(path, f"expected {limits}, found {node.value}")
    return int(node.value)


def _read_time(node: Node, path: Path, document: Document) -> datetime:
    """Read a time in ISO 8601. YAML reads some of them as dates when they are not quoted."""
    if kind_of(node) not in ("str", "timestamp"):
        document.report(path, _wrong_type("a date or a time", node))
        return NEVER
    time = parse_timestamp(node.value)
    if time is None:
        document.report(path, f"{quote(node.value)} is not a time (such as 2027-11-22 or 2027-11-22T06:30Z)")
    return time or NEVER


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
