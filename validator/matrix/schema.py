"""The shape of a matrix file: its types, the check of a document against them, and its JSON Schema.

Only the shape is checked here. `images` and `hosts` check whether a release, a version or a GPU exists,
because they know the facts and can name the nearest ones.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
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
from ..resources import newest_manual, newest_source
from .document import Document, Path, keys_of, kind_of
from .problems import join_words, quote

#: Longest text allowed for one value, in characters.
MAX_TEXT = 500
#: Longest list allowed for one axis.
MAX_AXIS = 200

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
#: At least one value. A file may give a single value in place of the list.
Axis = Annotated[list[Text], Meta(min_length=1, max_length=MAX_AXIS)]


class ProjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A uv project whose dependencies an image has. The project itself is not installed."""

    project: Annotated[
        Text, Meta(description="The directory of its `pyproject.toml` and its `uv.lock`, such as `.`.")
    ]
    group: Annotated[Text, Meta(description="A dependency group that the image has as well.")] = ""


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check of your own."""

    path: Annotated[Text, Meta(description="Its file, relative to this one.")]
    required: Annotated[bool, Meta(description="Whether the verdict depends on it.")] = True
    timeout: Annotated[int, Meta(ge=1, le=3600, description="Seconds for the whole check.")] = 120


#: Checks as paths or with their settings; a single one needs no list.
CheckList = Annotated[list[Text | CheckEntry], Meta(min_length=1, max_length=MAX_AXIS)]


class ImageEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images to build. Every key takes one value or a list; the lists multiply."""

    tensorflow: Annotated[
        Axis,
        Meta(
            description='A release (`"2.21.0"`), every patch of a minor version (`"2.21"`), a range over the'
            ' known releases (`">=2.14,<2.20"`, never a prerelease), `newest`, or `candidate`: the newest'
            " candidate of each release that is not out yet, and nothing if there is none."
        ),
    ]
    python: Annotated[
        Axis, Meta(description='Versions (`"3.12"`), or `all`: every Python that the release has wheels for.')
    ]
    policy: Annotated[
        Axis,
        Meta(
            description="CUDA and cuDNN together: `as-built` (what the wheel was built with; the default) or"
            " `latest` (the newest versions that its metadata allows)."
        ),
    ] = []
    cuda: Annotated[
        Axis,
        Meta(
            description='Only CUDA: `as-built` (the default), `latest`, or a version to pin (`"12.8"`). Not'
            " together with `policy`."
        ),
    ] = []
    cudnn: Annotated[
        Axis,
        Meta(
            description='Only cuDNN: `as-built` (the default), `latest`, or a version to pin (`"9.10"`). Not'
            " together with `policy`."
        ),
    ] = []
    variant: Annotated[
        Axis,
        Meta(
            description="`gpu` (the default); `cpu`: tensorflow-cpu, which has no CUDA; or `jupyter`: `gpu`"
            " with JupyterLab, which it starts on port 8888."
        ),
    ] = []
    base: Annotated[
        Axis,
        Meta(
            description="A base image, or `default`: the official image of the Python version (the default)."
        ),
    ] = []
    name: Annotated[
        Text,
        Meta(
            description="What the names of images with additions (the keys below) end in: up to 32 lower-case"
            " letters, digits, dots and dashes."
        ),
    ] = ""
    packages: Annotated[
        Axis,
        Meta(
            description='More packages: requirements (`"pandas>=2"`), and paths of wheels, relative to this'
            " file (`./wheels/ours-1.0-py3-none-any.whl`). They are resolved together with TensorFlow."
        ),
    ] = []
    requirements: Annotated[
        Text | ProjectEntry,
        Meta(description="More packages: a `requirements.txt`, a `pylock.toml`, or a uv project."),
    ] = ""
    system_packages: Annotated[
        Axis, Meta(description="Packages of the base's distribution, Debian or Ubuntu (`libgl1`, `git`).")
    ] = []
    environment: Annotated[
        dict[str, Text], Meta(description="Environment variables of the image, each with its value.")
    ] = {}
    checks: Annotated[
        CheckList,
        Meta(description="Files with checks of your own, which run with the others (`checks/our_check.py`)."),
    ] = []
    max_size: Annotated[
        Text, Meta(description="The most that the compressed image may have: `3.5GB`, `800MiB`.")
    ] = ""


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Host classes. Lists multiply: every driver with every GPU."""

    driver: Annotated[
        Axis,
        Meta(
            description='Driver branches (`"535"`: the newest release of that branch) or releases'
            ' (`"535.183.01"`). Required with a GPU.'
        ),
    ] = []
    gpu: Annotated[
        Axis,
        Meta(
            description="GPU models by any common name (`h100`, `rtx-4090`, `Tesla T4`), or `none`: a machine"
            " without a GPU, for cpu images. Either this or `compute_capability` is required."
        ),
    ] = []
    compute_capability: Annotated[
        Axis, Meta(description='Compute capabilities (`"9.0"`), for a GPU that is not known by name.')
    ] = []
    compat: Annotated[
        Axis,
        Meta(
            description='CUDA versions of a cuda-compat package on the loader path (`"12.9"`), or `none` (the'
            " default)."
        ),
    ] = []
    runner: Annotated[
        Axis,
        Meta(
            description="Labels of the CI runner. `{host}`, `{driver}` and `{gpu}` are replaced with those of"
            " the host class."
        ),
    ] = []


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the matrix under a name."""

    description: Annotated[Text, Meta(description="One sentence for people.")] = ""
    select: Annotated[
        Axis,
        Meta(
            description='Selectors that must all match: `tensorflow=newest`, `"tensorflow>=2.14"`,'
            " `python=3.12`, `host=r535-*`. Without this key, the profile has everything."
        ),
    ] = []
    first_available_python: Annotated[
        Axis,
        Meta(
            description="Pythons in order of preference. If images differ only in their Python, the first one"
            " that the engine can provide is taken. Without this key, all are."
        ),
    ] = []


class ExcludeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells that are left out, and why."""

    select: Annotated[Axis, Meta(description="Selectors. A cell is left out if all of them match.")]
    reason: Annotated[
        Text, Meta(description="One sentence that says why these cells are not built or validated.")
    ]
    link: Annotated[Text, Meta(description="Where the reason was found or is discussed.")] = ""


class MatrixFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The images to build, the host classes to validate them on, and the cells to leave out."""

    images: Annotated[list[ImageEntry], Meta(min_length=1, description="What to build.")]
    hosts: Annotated[list[HostEntry], Meta(min_length=1, description="Where to validate.")]
    profiles: Annotated[
        dict[str, ProfileEntry],
        Meta(
            min_length=1,
            description="Named parts of the matrix. Commands without --profile use quick.",
        ),
    ]
    exclude: Annotated[list[ExcludeEntry], Meta(description="What is left out, with the reason.")] = []


# The check of a document against these types.

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


# The JSON Schema of the matrix file, for editors: `python -m validator.matrix.schema` writes it. It is in the
# form that the catalogue of https://www.schemastore.org asks for: draft 07, which most editors know, with a
# title and a description of each property, and with links to the manual.

#: The copy that is checked in.
PATH = FilePath(__file__).with_name("schema.json")


def schema_text() -> str:
    """Return the JSON Schema of a matrix file, as the checked-in copy has it."""
    return editor_schema(
        MatrixFile, "TensorFlow GPU matrix", "validator/matrix/schema.json", "reference/matrix.md"
    )


def editor_schema(kind: type[msgspec.Struct], title: str, path: str, page: str) -> str:
    """Return the JSON Schema of a file whose content has the type `kind`.

    path: of the schema in this repository. page: of the manual, with a section for each key of the file.
    """
    (_,), definitions = msgspec.json.schema_components([kind], ref_template="#/definitions/{name}")
    definitions = {name: _for_editors(definition) for name, definition in definitions.items()}
    whole = definitions.pop(kind.__name__)
    link = newest_manual(page)
    for name, value in whole["properties"].items():
        value["description"] += f"\n{link}#{name}"
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": newest_source(path),
        "title": title,
        **whole,
        "description": f"{whole['description']}\n{link}",
        "definitions": definitions,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _for_editors(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition without its title, and with every axis as one value or a list."""
    properties = {name: _property(name, value) for name, value in definition["properties"].items()}
    return {**{key: value for key, value in definition.items() if key != "title"}, "properties": properties}


def _property(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a property: its title, its description, its default, and what its value may be.

    An empty default only says that the key may be absent, so it is left out.
    """
    rules = _rules({key: inner for key, inner in value.items() if key not in ("default", "description")})
    about = {"title": name.replace("_", " "), "description": value["description"]}
    return {**about, **({"default": value["default"]} if value.get("default") else {}), **rules}


def _rules(value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in value:
        # In draft 07, everything next to a reference is ignored.
        return {"allOf": [value]}
    if isinstance(inner := value.get("additionalProperties"), dict):
        return {**value, "additionalProperties": inner if "$ref" in inner else _rules(inner)}
    items = value.get("items", {})
    if items.get("type") != "string" and "anyOf" not in items:
        return value
    return {"anyOf": [items, {**value, "uniqueItems": True}]}


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
