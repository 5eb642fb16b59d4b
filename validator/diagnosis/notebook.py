"""Turn a Jupyter notebook into the text that its reader sees: what was typed, and what it printed.

Format: nbformat 4, https://nbformat.readthedocs.io/en/latest/format_description.html.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: What every notebook with a cell contains, even one that is cut off.
_MARK = b'"cell_type"'
#: The beginning of a notebook, also below somebody's words.
_START = re.compile(r'^[ \t]*\{\s*"(?:cells|metadata|nbformat(?:_minor)?)"\s*:', re.MULTILINE)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
#: A string that is longer than this and has no blank is an image.
_LONGEST_WORD = 400
#: Strings that are read in one line of a notebook that is cut off.
_MOST_STRINGS = 100_000
#: Strings that are names of fields or types, and not text of the notebook.
_NAMES = (
    "cells cell_type code markdown raw source outputs output_type stream name stdout stderr text metadata"
    " data text/plain text/html image/png execution_count execute_result display_data error ename evalue"
    " traceback id nbformat nbformat_minor kernelspec display_name language language_info codemirror_mode"
    " version file_extension mimetype nbconvert_exporter pygments_lexer python ipython application/javascript"
)
_FIELDS = frozenset(_NAMES.split())


class Rendered(NamedTuple):
    """A notebook as text. places: that of each line, such as `cell 3, line 2` or `cell 3, output line 1`."""

    lines: list[str]
    places: list[str]


def is_notebook(data: bytes) -> bool:
    """Return whether a text is or contains a notebook, whole or cut off."""
    return _MARK in data and _START.search(data.decode("utf-8", errors="replace")) is not None


def render(text: str) -> Rendered:
    """Return a text with the notebook in it as lines. A notebook that is no JSON is read string by string."""
    start = _START.search(text)
    begin = start.start() if start is not None else 0
    line = text.count("\n", 0, begin)
    try:
        document, end = json.JSONDecoder().raw_decode(text, text.index("{", begin))
        cells = list(_of(document))
    except (ValueError, KeyError, TypeError, RecursionError):
        lines = [*_plain(text[:begin], 1), *_strings(text[begin:], line + 1)]
    else:
        lines = [*_plain(text[:begin], 1), *cells, *_plain(text[end:], text.count("\n", 0, end) + 1)]
    return Rendered([shown for shown, _ in lines], [place for _, place in lines])


_Placed = tuple[str, str]


def _plain(text: str, first: int) -> Iterator[_Placed]:
    for number, line in enumerate(text.splitlines(), start=first):
        yield line, f"line {number}"


def _of(document: dict[str, Any]) -> Iterator[_Placed]:
    yield from _metadata(document.get("metadata"))
    for number, cell in enumerate(_list(document["cells"]), start=1):
        if not isinstance(cell, dict):
            continue
        is_code = cell.get("cell_type") == "code"
        for line_number, line in enumerate(_text(cell.get("source")).splitlines(), start=1):
            # Show code with Python's prompt, so that the first line of output answers the last line of code.
            yield f">>> {line}" if is_code and line.strip() else line, f"cell {number}, line {line_number}"
        asked = _text(cell.get("source")).rstrip().rpartition("\n")[2].strip()
        printed = "\n".join(_output(output, asked) for output in _list(cell.get("outputs")))
        for line_number, line in enumerate(printed.split("\n") if printed else (), start=1):
            yield line, f"cell {number}, output line {line_number}"
        yield "", f"cell {number}"


def _metadata(metadata: Any) -> Iterator[_Placed]:
    if not isinstance(metadata, dict):
        return
    language = metadata.get("language_info")
    if isinstance(language, dict) and language.get("name") == "python" and language.get("version"):
        yield f"Python {language['version']}", "metadata.language_info"
    for name, host in (("colab", "Google Colab"), ("kaggle", "/kaggle/working")):
        if name in metadata:
            yield host, f"metadata.{name}"


def _output(output: Any, asked: str) -> str:
    """Return what an output shows as text. asked: the last line of its cell; a result is its value."""
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") == "error":
        traceback = "\n".join(_text(one) for one in _list(output.get("traceback")))
        return traceback or f"{output.get('ename', '')}: {output.get('evalue', '')}"
    data = output.get("data")
    shown = data.get("text/plain") if isinstance(data, dict) else output.get("text")
    result = f"{asked} " if output.get("output_type") == "execute_result" else ""
    return result + _text(shown).rstrip("\n")


def _text(value: Any) -> str:
    """Return a multiline string, which the format allows as one string or as a list of lines."""
    if isinstance(value, list):
        value = "".join(line for line in value if isinstance(line, str))
    # JSON may hold half of a surrogate pair, which can't be encoded.
    return value.encode("utf-8", errors="replace").decode() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(text: str, first: int) -> Iterator[_Placed]:
    """Yield the texts in a notebook that is cut off. Lines outside the notebook stay as they are."""
    for number, line in enumerate(text.splitlines(), start=first):
        place = f"line {number}"
        if '"' not in line and line.strip(" \t{}[],"):
            yield line, place
        for string in itertools.islice(_STRING.finditer(line), _MOST_STRINGS):
            try:
                content = _text(json.loads(string[0]))
            except ValueError:
                content = string[0].strip('"')
            if content in _FIELDS or (len(content) > _LONGEST_WORD and " " not in content):
                continue
            for part in content.splitlines():
                yield part, place
