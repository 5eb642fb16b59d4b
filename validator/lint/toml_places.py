"""Find where the strings and keys of a TOML file are: the standard library's reader forgets it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..model.finding import Place
from ..system import toml
from .source_file import Source

_TOKEN = re.compile(
    r"#[^\n]*"
    r'|"""(?P<long>(?:[^\\]|\\.)*?)"""|\'\'\'(?P<raw>.*?)\'\'\''
    r'|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?P<literal>[^\'\n]*)\''
    r"|(?m:^[ \t]*)\[\[?(?P<table>[^\]\n]*)\]\]?"
    r"|(?m:^[ \t]*)(?P<key>[A-Za-z0-9_-]+)(?=[ \t]*[=.])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Places:
    """The places in a file, in its order.

    strings: text -> its places. keys: table, the number of tables of its name before it, and key -> place.
    """

    strings: Mapping[str, list[Place]]
    keys: Mapping[tuple[str, int, str], Place]
    start: Place

    def string(self, text: str) -> Place:
        """Return the next place of a string that has not been asked for, or the last one."""
        places = self.strings.get(text)
        if not places:
            return self.start
        return places.pop(0) if len(places) > 1 else places[0]

    def key(self, table: str, name: str, before: int = 0) -> Place:
        """Return the place of a key in a table. before: the number of tables of its name that come before."""
        return self.keys.get((table, before, name), self.start)


def parse(source: Source) -> tuple[dict[str, Any], Places]:
    """Return the document, and its places. Raises InputError for a file that is not TOML."""
    try:
        document = toml.loads(source.text)
    except (toml.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source.name} is not TOML: {str(error) or 'it nests too deep'}") from None
    return document, _places(source)


def table_of(document: object, *names: str) -> Mapping[str, Any]:
    """Return a table inside a table, or the table itself without names; empty if there is no such table."""
    table = document
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a value that is a list, and an empty list for any other value."""
    return value if isinstance(value, list) else []


def texts_of(value: object) -> list[str]:
    """Return the texts in a list; none for any other value."""
    return [item for item in list_of(value) if isinstance(item, str)]


def _places(source: Source) -> Places:
    strings: dict[str, list[Place]] = {}
    keys: dict[tuple[str, int, str], Place] = {}
    seen: dict[str, int] = {}
    table, line, counted = "", 1, 0
    for match in _TOKEN.finditer(source.text):
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        line, counted = line + source.text.count("\n", counted, start), start
        place = Place(source.name, line, start - source.text.rfind("\n", 0, start))
        if match["table"] is not None:
            table = ".".join(part.strip().strip("\"'") for part in match["table"].split("."))
            seen[table] = seen.get(table, -1) + 1
        elif match["key"] is not None:
            keys.setdefault((table, seen.get(table, 0), match["key"]), place)
        else:
            texts = match.group("long", "raw", "text", "literal")
            content = next((text for text in texts if text is not None), None)
            if content is not None:
                # An escaped character does not occur in what is looked for, apart from quotes.
                strings.setdefault(content.replace('\\"', '"'), []).append(place)
    return Places(strings, keys, Place(source.name, 1, 1))
