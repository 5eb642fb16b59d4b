"""Write the tables of keys in the references of the matrix file and the fleet file, from their JSON Schemas.

A page says with a comment where the table of a definition belongs: `<!-- generated: keys ImageEntry -->`.
`scripts/update-docs` runs this file. If a page is out of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from validator.fleet.settings import SCHEMA as FLEET
from validator.matrix.schema import PATH as MATRIX

REFERENCE = Path(__file__).parent / "reference"
#: The schema of the file that a page describes, by page.
SCHEMAS = {REFERENCE / "matrix.md": MATRIX, REFERENCE / "fleet.md": FLEET}
TABLE = re.compile(r"(<!-- generated: keys (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
#: The key of a section that has an entry for each host class.
_PLACES = "host_classes"


def refreshed(page: Path) -> str:
    """Return the text of a page with the current tables."""
    definitions = json.loads(SCHEMAS[page].read_text(encoding="utf-8"))["definitions"]
    return TABLE.sub(
        lambda match: f"{match[1]}{''.join(_table(match[2], definitions))}{match[3]}",
        page.read_text(encoding="utf-8"),
    )


def _table(name: str, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table. Keys that a section shares with its host classes are only in theirs."""
    definition = definitions[name]
    shared = _shared(name, definitions)
    elsewhere = _place(definition).partition("/definitions/")[2]
    moved = definitions[elsewhere]["properties"].keys() if elsewhere else ()
    yield "| key | value | default | meaning |\n|---|---|---|---|\n"
    for key, value in sorted(definition["properties"].items(), key=lambda entry: entry[0] in shared):
        if key in moved:
            continue
        default = "required" if key in definition.get("required", ()) else _default(value)
        kinds = " or ".join(dict.fromkeys(_kinds(value)))
        meaning = value["description"] + (" Also for the whole cluster." if key in shared else "")
        yield f"| `{key}` | {kinds} | {default} | {meaning.replace('|', chr(92) + '|')} |\n"


def _place(definition: Mapping[str, Any]) -> str:
    """Return the reference of a section to the definition of its host classes, or no text."""
    entries = definition["properties"].get(_PLACES, {}).get("additionalProperties", {})
    return str(entries.get("$ref", ""))


def _shared(name: str, definitions: Mapping[str, Any]) -> set[str]:
    """Return the keys that the section of these host classes has as well; none if it is something else."""
    owners = [one for one in definitions.values() if _place(one) == f"#/definitions/{name}"]
    return {key for owner in owners for key in owner["properties"]}


def _default(value: Mapping[str, Any]) -> str:
    return f"`{json.dumps(value['default']).strip(chr(34))}`" if "default" in value else ""


def _kinds(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a value may be, in words."""
    if "$ref" in value:
        yield "mapping"
    elif "anyOf" in value:
        for one in value["anyOf"]:
            yield from _kinds(one)
    elif value["type"] == "integer":
        yield f"{value['minimum']} to {value['maximum']:,}"
    else:
        yield {"string": "text", "array": "list", "boolean": "`true` or `false`", "object": "mapping"}[
            value["type"]
        ]


def main() -> int:
    for page in SCHEMAS:
        page.write_text(refreshed(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
