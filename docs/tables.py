"""Make the site's reference of the tables of `data export`, from the classes of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.dataset.tables import SCHEMA_VERSION, TABLES, Column, Table, encoded

_HEAD = f"""\
# The tables of `data export`

`validator data export DIR` writes these tables, each as JSON, CSV and Parquet with the same
columns. [Use the data](../how-to/use-the-data.md) shows how to load them. The JSON Schemas in an export say
the same as this page, which is generated when the site is built.

It describes version {SCHEMA_VERSION} of the tables. A column is never removed and never gets another meaning
without a new version, but there may be new columns, and new values of a choice.

| type | in JSON | in CSV | in Parquet |
|---|---|---|---|
| text | string | text, [guarded](#text-in-csv) | string |
| choice | string, one of those listed | text | dictionary of strings |
| integer | number | digits | int64 |
| number | number | digits | double |
| boolean | `true`, `false` | `true`, `false` | boolean |
| time | string, `2026-11-20T01:00:00Z` | the same | timestamp in microseconds, UTC |
| list | array of strings | the same as in JSON | list of strings |
| JSON | object or array | the same as in JSON | string with JSON |

A `?` after a type means that the value may be null. The rows of a table are in a fixed order.

An `id` is unique in its table. It stays the same as long as the row is about the same thing: facts, cells,
records, checks and causes have names that never change their meaning. The `id` of a reason, a message or a
fix has a digest in it, so it changes when they do.

## Text in CSV

The files follow RFC 4180, in UTF-8. An empty field is null, and `""` is an empty text. A spreadsheet takes a
text for a formula if it starts with `=`, `+`, `-`, `@` (or the wide form of one), a tab or a line break. Such
a text has `'` in front of it, and so has one that starts with `'`. To get the original back, take one `'`
away from the start of each text that has one.
"""


def page() -> str:
    """Return the page. It ends with a newline."""
    return _HEAD + "".join(line for table in TABLES.values() for line in _section(table))


def _section(table: Table) -> Iterator[str]:
    yield f"\n## {table.name}\n\n{table.about}\n\n"
    yield "| column | type | meaning | example |\n|---|---|---|---|\n"
    for column in table.columns:
        meaning = column.description
        if column.choices:
            meaning += f" One of {_listed(column.choices)}."
        kind = "JSON" if column.kind == "json" else column.kind
        type_ = f"{kind}?" if column.nullable else kind
        yield f"| `{column.name}` | {type_} | {meaning} | {_example(column)} |\n"


def _listed(choices: Iterable[str]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices)


def _example(column: Column) -> str:
    value = column.example
    text = value if isinstance(value, str) else encoded(value).decode()
    # GitHub splits a row at a bar even in code.
    return f"`{text}`".replace("|", "\\|")
