"""Nodes into the schema's models, with the schema's complaints turned into sentences."""

from __future__ import annotations

import difflib
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from .nodes import Entries, Findings, Items, Node, Path, Scalar, locate
from .problems import one_of, quote
from .schema import MAX_AXIS, ExcludeEntry, HostEntry, ImageEntry, MatrixFile, ProfileEntry

_M = TypeVar("_M", bound=BaseModel)

#: The model of the entries at each key, for naming the keys that an unknown one may have meant.
_MODELS: dict[str, type[BaseModel]] = {
    "images": ImageEntry,
    "hosts": HostEntry,
    "profiles": ProfileEntry,
    "exclude": ExcludeEntry,
}

#: What YAML reads a bare scalar as, in words.
_KINDS = {
    "float": "a number",
    "int": "a number",
    "bool": "a truth value",
    "null": "nothing",
    "timestamp": "a date",
}


def check_shape(findings: Findings) -> None:
    """Hold the whole document against the schema; what is wrong goes into `findings`."""
    value = plain(findings.root, {})
    try:
        MatrixFile.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=True):
            _report(detail["loc"], detail["type"], detail.get("ctx", {}), detail["msg"], findings)
    findings.seal()


def entry(model: type[_M], node: Node) -> _M | None:
    """One entry of the document; None where it is no mapping.

    Where the shape is wrong, every value is taken as the text that stands there, so that one wrong value does
    not hide what else is wrong with the entry. `model_fields_set` has the keys that were given.
    """
    if not isinstance(node, Entries):
        return None
    try:
        return model.model_validate(plain(node, {}))
    except ValidationError:
        given = {name: _texts(value) for name, (_, value) in node.entries.items()}
        values = {
            name: given.get(name, []) if get_origin(info.annotation) is list else "".join(given.get(name, []))
            for name, info in model.model_fields.items()
        }
        return model.model_construct(_fields_set=set(given), **values)


def _texts(node: Node) -> list[str]:
    items = node.items[:MAX_AXIS] if isinstance(node, Items) else (node,)
    return [item.text if isinstance(item, Scalar) else "" for item in items]


def plain(node: Node, seen: dict[int, Any]) -> Any:
    """The node as lists, mappings and text. What YAML reads as anything but text becomes None, which no
    key takes; the complaint then quotes what was written."""
    if isinstance(node, Scalar):
        return node.text if node.kind == "str" else None
    if id(node) not in seen:  # an alias repeats a node
        if isinstance(node, Items):
            seen[id(node)] = [plain(item, seen) for item in node.items]
        else:
            seen[id(node)] = {name: plain(value, seen) for name, (_, value) in node.entries.items()}
    return seen[id(node)]


def _report(path: Path, kind: str, context: dict[str, Any], said: str, findings: Findings) -> None:
    node, _ = locate(findings.root, path)
    if kind == "missing":
        findings.add(path, f"needs the key {path[-1]}")
    elif kind == "extra_forbidden":
        findings.add(path, _unknown_key(path), at_key=True)
    elif kind in _WRONG_TYPE:
        # The lists inside an entry are axes, which a single text may stand for.
        expected = "text" if kind == "list_type" and len(path) > 1 else _WRONG_TYPE[kind]
        findings.add(path, _wrong_type(expected, node))
    elif kind in ("too_short", "string_too_short"):
        findings.add(path, "is empty; it needs at least one value" if kind == "too_short" else "is empty")
    elif kind in ("too_long", "string_too_long"):
        what = "values" if kind == "too_long" else "characters"
        findings.add(path, f"is longer than {context['max_length']} {what}")
    else:
        findings.add(path, said)


_WRONG_TYPE = {
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": "text",
}


def _wrong_type(expected: str, node: Node) -> str:
    if not isinstance(node, Scalar):
        found = "a mapping" if isinstance(node, Entries) else "a list"
        return f"expected {expected}, found {found}"
    if node.kind == "null":
        return "is empty"
    if node.kind == "str":
        return f"expected {expected}, found the text {quote(node.text)}"
    found = f"{_KINDS.get(node.kind, 'a ' + node.kind)} ({node.text})"
    if expected == "text":
        return f"expected text, found {found}; write {quote(node.text)}, in quotes"
    return f"expected {expected}, found {found}"


def _unknown_key(path: Path) -> str:
    model = _MODELS[str(path[0])] if len(path) > 1 else MatrixFile
    known = list(model.model_fields)
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    advice = f"did you mean {near[0]}?" if near else f"the keys here are {one_of(known)}"
    return f"is not a key; {advice}"
