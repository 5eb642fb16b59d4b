"""Write comments, shell lines, and YAML and JSON with comments."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ..start import Image

_WIDTH = 100
_STEP = "  "


@dataclass(frozen=True)
class Noted:
    """A value of a mapping or list, with a comment that says why it is there."""

    value: Any
    why: str


def header(image: Image, *more: str) -> list[str]:
    """Return the sentences at the top of every file: what the image is and how the file is used."""
    loud = () if image.certified else ("NOT CERTIFIED.",)
    return [image.name, *loud, *image.standing, *more]


def sentence(text: str) -> str:
    """Return a reason as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def comments(texts: Iterable[str], mark: str = "#", indent: str = "") -> list[str]:
    """Return the lines of comments. Nothing in a text can end its comment."""
    lines = []
    for text in texts:
        shown = " ".join("".join(map(_visible, text)).split())
        width = max(40, _WIDTH - len(indent) - len(mark))
        wrapped = textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
        lines += [f"{indent}{mark} {line}" for line in wrapped]
    return lines


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\n\t"
    return "?" if hidden else character


def assignment(name: str, value: str) -> str:
    """Return `NAME=value` for a shell."""
    return f"{name}={shlex.quote(value)}"


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return a mapping as YAML. Every text is in double quotes, which have an escape for each character."""
    return "".join(f"{line}\n" for line in _mapping(document, ""))


def _mapping(mapping: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, given in mapping.items():
        value, notes = _unpack(given, "#", indent)
        lines += notes
        nested = _nested(value, indent + _STEP)
        lines += [f"{indent}{key}:", *nested] if nested else [f"{indent}{key}: {_scalar(value)}"]
    return lines


def _nested(value: Any, indent: str) -> list[str]:
    """Return the lines of a mapping or list that is not empty; nothing for other values."""
    if isinstance(value, Mapping):
        return _mapping(value, indent)
    return _list(value, indent) if isinstance(value, list) else []


def _list(items: Sequence[Any], indent: str) -> list[str]:
    lines = []
    for given in items:
        value, notes = _unpack(given, "#", indent)
        lines += notes
        nested = _nested(value, indent + _STEP)
        if nested and isinstance(value, Mapping):
            # A comment on the first key would come between the dash and the key.
            first = next(at for at, line in enumerate(nested) if not line.lstrip().startswith("#"))
            lines += [line[len(_STEP) :] for line in nested[:first]]
            nested = [f"{indent}- {nested[first].lstrip()}", *nested[first + 1 :]]
            lines += nested
        elif nested:
            lines += [f"{indent}-", *nested]
        else:
            lines.append(f"{indent}- {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return str(yaml.dump(value, default_style='"', width=math.inf, allow_unicode=True)).strip()
    return json.dumps(value)


def to_jsonc(document: Mapping[str, Any], top: Iterable[str]) -> str:
    """Return a mapping as JSON with comments. top: the comments before it."""
    lines = [*comments(top, "//"), *_json(document, "", "")]
    return "".join(f"{line}\n" for line in lines)


def _json(value: Any, indent: str, before: str) -> list[str]:
    """Return the lines of a value. before: what is on its first line, such as the key."""
    is_mapping = isinstance(value, Mapping)
    if not value or not (is_mapping or isinstance(value, list)):
        return [f"{indent}{before}{json.dumps(value, ensure_ascii=False)}"]
    opening, closing = ("{", "}") if is_mapping else ("[", "]")
    pairs = (
        [(f"{json.dumps(key)}: ", inner) for key, inner in value.items()]
        if is_mapping
        else [("", inner) for inner in value]
    )
    lines = [f"{indent}{before}{opening}"]
    for number, (key, given) in enumerate(pairs, 1):
        inner, notes = _unpack(given, "//", indent + _STEP)
        written = _json(inner, indent + _STEP, key)
        if number < len(pairs):
            written[-1] += ","
        lines += [*notes, *written]
    return [*lines, f"{indent}{closing}"]


def _unpack(given: Any, mark: str, indent: str) -> tuple[Any, list[str]]:
    if isinstance(given, Noted):
        return given.value, comments([given.why], mark, indent)
    return given, []
