"""Change rows in the text of a file of facts, and nothing else in it.

In `validator/compat/data/*.yaml`, a row is one line below the name of its section. Comments, the order of the
other rows and their spelling stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

Row = Mapping[str, Any]

#: With libyaml it takes a fifth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SECTION = re.compile(r"^(\w+):\s*$")
_ROW = re.compile(r"^  - \{")
#: Text that YAML reads as the same text, even in a list or a mapping in flow style.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+#-]*")


class Table:
    """The text of one file of facts."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join(self._lines) + "\n"

    def rows(self, section: str) -> list[Row]:
        """Return the rows of a section, in order. Raises KeyError for an unknown section."""
        return [row for _, row in self._numbered(section)]

    def put(self, section: str, row: Row, order: Callable[[Row], Any]) -> None:
        """Put a row in the place of the one with the same id, or before the first row that is greater."""
        there = self._numbered(section)
        line = f"  - {flow(row)}"
        for number, old in there:
            if old["id"] == row["id"]:
                self._lines[number] = line
                return
        after = [number for number, old in there if order(old) > order(row)]
        self._lines.insert(after[0] if after else self._end(section), line)

    def remove(self, section: str, identifier: str) -> None:
        """Remove the row with this id, if there is one."""
        for number, row in self._numbered(section):
            if row["id"] == identifier:
                del self._lines[number]
                return

    def _numbered(self, section: str) -> list[tuple[int, Row]]:
        start = self._lines.index(f"{section}:") if f"{section}:" in self._lines else None
        if start is None:
            raise KeyError(section)
        found = []
        for number in range(start + 1, len(self._lines)):
            line = self._lines[number]
            if _SECTION.match(line):
                break
            if _ROW.match(line):
                found.append((number, yaml.load(line, Loader=_LOADER)[0]))
        return found

    def _end(self, section: str) -> int:
        there = self._numbered(section)
        return (there[-1][0] if there else self._lines.index(f"{section}:")) + 1


def flow(value: Any) -> str:
    """Return a value as YAML on one line, quoted only where YAML would read another value."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and yaml.load(value, Loader=_LOADER) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
