"""Read text as people paste it: bytes of any size and kind.

At most `LIMIT` bytes of a text are examined: the first and the last half.
"""

from __future__ import annotations

import codecs
import io
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from ..errors import InputError
from .patterns import searcher

# Turn raw lines of pasted text into clean ones, and join those that belong together.
#
# Every step takes time in proportion to its input.


#: Characters of a line that are looked at together. A longer line is cut into pieces that overlap.
PIECE = 16384
_OVERLAP = 512
#: A shorter line was not wrapped: the time and the letter of a severity have 29 characters already.
_SHORTEST_WRAPPED = 29
_LONGEST_WRAPPED = 400
#: Lines that one line may have been wrapped into.
_PARTS = 4
#: How many lines one command may span.
_LONGEST_COMMAND = 60
#: Lines after a question among which its answer is looked for.
_ANSWER_WITHIN = 3

#: What CI systems, container engines and the journal put before each line. With the line end before it, the
#: search takes a tenth of the time.
_STAMP = re.compile(r"\n\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
#: A reference to a character in HTML with more digits than any has. Python can't convert very long ones.
_NO_CHARACTER = re.compile(r"&#[0-9]{16,};?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: The control characters of one byte, without carriage returns.
_CONTROL_BYTES = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
#: Bytes, except zero, that only binary data contains.
_NOT_TEXT = bytes({*range(1, 0x20), 0x7F} - set(b"\a\b\t\n\f\r\x1b"))
#: Prompts of Python, IPython and shells, and headings in Markdown.
_QUESTION = re.compile(r"\s*(?:>\s+)*(?:>>> \S|In ?\[\d*\]: \S|[$%] \S|#{1,6} \S|\*\*[^*]+\*\*:?\s*$)")
#: Quote marks of mails and issue trackers; Python's own prompt goes with them.
_QUOTES = re.compile(r"^\s*(?:>\s?)+")
#: A row of a table in Markdown with two cells, of which the first names something.
_TABLE_ROW = re.compile(r"\s*\|?\s*([*`_]*[A-Za-z][^|]{0,60}?)\s*\|\s*([^|]*[\w][^|]{0,120}?)\s*\|?\s*")
#: What TensorFlow writes before its words. Copies from web pages have doubled spaces there.
_SOURCE_LINE = re.compile(r"\.cc:\d+\](?=.*  )")
#: The beginning of a new line of a log, which does not continue the line before.
_NEW_LINE = re.compile(
    r"\s*(?:\d{4}-\d\d-\d\d[ T]|[IWEF]\d{4} |\d\d:\d\d:\d\d|\[|[$#>+|]|Traceback|File \"|WARNING|ERROR|INFO|"
    r"\*\* |- |\* |[\w.]+(?:Error|Exception|Warning)\b|"
    r"(?:FROM|RUN|ENV|ARG|CMD|COPY|ADD|ENTRYPOINT|WORKDIR|USER) |"
    r"(?:sudo |!)?(?:(?:python[\d.]* -m )?pip[\d.]* install|(?:conda|mamba) (?:install|create|activate)|"
    r"docker (?:run|build|pull)|apt(?:-get)? (?:install|update)|export \w+=|source \S+/|unset [A-Z]))"
)
#: Unicode's separators (category Z), which count as blanks.
_BLANKS = "\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
#: Matches a block with a line that is not clean.
_is_unclean = searcher(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\ufeff&]"
    rf"|[\t{_BLANKS}]$|^[\s{_BLANKS}]*>|^\d{{4}}-\d\d-\d\dT|^\{{\"log\":\""
)


class Line(NamedTuple):
    """One clean line.

    number: from 1; 0 where it is not known. asks: the next line that is not empty may be the answer to this
    one, as after a prompt or a heading of an issue form.
    """

    number: int
    text: str
    asks: bool = False


class Block:
    """Some lines in a row that are looked at together.

    data: the clean lines in UTF-8, with line ends between them.
    """

    def __init__(self, raw: bytes, number: int, of_paste: bool) -> None:
        self._raw, self._number, self._of_paste = raw, number, of_paste
        self._lines: list[Line] | None = None
        self._together = _clean_together(raw)
        if self._together is None:
            self.data = "\n".join(line.text for line in self.lines).encode()
        else:
            self.data = self._together.replace(b"\r", b"\n")

    @property
    def lines(self) -> list[Line]:
        """The clean lines. A progress bar overwrites its line with carriage returns: each visible state of it
        counts as a line."""
        if self._lines is None:
            self._lines = self._clean_lines()
        return self._lines

    def _clean_lines(self) -> list[Line]:
        numbers = itertools.count(self._number) if self._number else itertools.repeat(0)
        if self._together is None:
            raw = zip(numbers, io.BytesIO(self._raw), strict=False)
            return [line for number, one in raw for line in self._clean_one(one, number)]
        whole = zip(numbers, self._together.decode().split("\n"), strict=False)
        if not self._of_paste and b"\r" not in self._together:
            return list(itertools.starmap(Line, whole))
        return [
            Line(number, state, self._asks(state))
            for number, line in whole
            for state in _visible_states(line.split("\r"))
        ]

    def _clean_one(self, raw: bytes, number: int) -> Iterator[Line]:
        text = _without_stamp(_docker_entry(raw.rstrip(b"\r\n").decode("utf-8", errors="replace")))
        states = [_as_displayed(piece) for state in text.split("\r") for piece in _pieces(state)]
        for piece in _visible_states(states):
            yield Line(number, _without_quotes(piece), self._asks(piece))

    def _asks(self, text: str) -> bool:
        """Return whether a line asks something. Only a person's paste has questions with their answers."""
        return self._of_paste and _QUESTION.match(text) is not None


def answers(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Yield each line that asks something, joined to the next line that is not empty, unless that asks as
    well.

    Each comes with the lines that it was made of.
    """
    for position, line in enumerate(lines):
        if not line.asks:
            continue
        following = lines[position + 1 : position + 1 + _ANSWER_WITHIN]
        answer = next((one for one in following if one.text.strip()), None)
        if answer is not None and not answer.asks:
            yield f"{line.text.strip('#*: ')}: {answer.text.strip()}", (line, answer)


def continued(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Yield each command that goes on after a backslash at the end of a line, as one line.

    Each comes with the lines that it was made of.
    """
    first: int | None = None
    for position, line in enumerate(lines):
        if line.text.endswith("\\") and len(line.text) <= _LONGEST_WRAPPED:
            first = position if first is None else first
        elif first is not None:
            parts, first = lines[first : position + 1], None
            if len(parts) <= _LONGEST_COMMAND:
                yield " ".join(part.text.rstrip("\\").strip() for part in parts), parts


def table_rows(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Yield each row of a table in Markdown that names something and says its value, as `name: value`.

    Each comes with its line.
    """
    for line in lines:
        row = _TABLE_ROW.fullmatch(line.text) if "|" in line.text else None
        if row is not None:
            yield f"{row[1].strip('*`_ ')}: {row[2].strip('*`_ ')}", (line,)


def evenly_spaced(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Yield each line of TensorFlow's log that has doubled spaces, with single ones."""
    for line in lines:
        if "  " in line.text and _SOURCE_LINE.search(line.text):
            yield " ".join(line.text.split()), (line,)


def unwrapped(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Yield what may have been one line before a terminal or a mailer wrapped it.

    These are two to four lines in a row, joined with and without a blank. Each comes with the lines that it
    was made of. A line that begins as log lines do does not continue another one. Lines that end with a
    backslash are those of `continued`.
    """
    for position, line in enumerate(lines):
        if not _SHORTEST_WRAPPED <= len(line.text) <= _LONGEST_WRAPPED or line.text.endswith("\\"):
            continue
        glued = spaced = line.text
        for end in range(position + 1, min(position + _PARTS, len(lines))):
            following = lines[end].text
            if not following.strip() or _NEW_LINE.match(following):
                break
            glued += following
            spaced += " " + following.strip()
            parts = lines[position : end + 1]
            yield glued, parts
            yield spaced, parts


def _clean_together(raw: bytes) -> bytes | None:
    """Return the clean lines of a block, or None if each line has to be cleaned on its own."""
    if len(raw) > PIECE:
        return None
    lines = (raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw).removesuffix(b"\n")
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        return None
    if _is_unclean(lines):
        # The usual reasons are time stamps, colours and progress bars.
        displayed = _ESCAPES.sub("", _without_stamp(text)).encode().translate(None, _CONTROL_BYTES)
        lines = b"\n".join(
            b"\r".join(map(bytes.rstrip, line.split(b"\r"))) for line in displayed.split(b"\n")
        )
        if _is_unclean(lines.replace(b"\r", b"\n")):
            return None
    return lines


def _without_stamp(lines: str) -> str:
    return _STAMP.sub("\n", f"\n{lines}")[1:]


def _pieces(text: str) -> list[str]:
    """Return a text whole, or cut into pieces that overlap if it is too long."""
    if len(text) <= PIECE:
        return [text]
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE - _OVERLAP)]


def _visible_states(states: list[str]) -> list[str]:
    """Return the visible states of an overwritten line; one state if all are empty."""
    return states if len(states) == 1 else [state for state in states if state.strip()] or states[:1]


def _docker_entry(text: str) -> str:
    """Return the line inside an entry of Docker's json-file log driver; any other line as it is."""
    if not text.startswith('{"log":"') or len(text) > PIECE:
        return text
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(entry, dict):
        return text
    # JSON may hold half of a surrogate pair, which can't be encoded.
    return str(entry["log"]).encode("utf-8", errors="replace").decode().rstrip("\r\n")


def _as_displayed(line: str) -> str:
    """Return a line as a terminal displays it, without colours and control characters."""
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    return line if line.isprintable() else _CONTROL.sub("", line)


def _without_quotes(line: str) -> str:
    """Return a line without quote marks, HTML entities and trailing blanks."""
    stripped = line.lstrip()
    if stripped.startswith(">"):
        line = _QUOTES.sub("", line)
    if "&" in line:
        # The import of its table of names takes time, and few texts have entities.
        import html

        line = html.unescape(_NO_CHARACTER.sub("\ufffd", line))
    return line.rstrip()


# Turn a Jupyter notebook into the text that its reader sees: what was typed, and what it printed.
#
# Format: nbformat 4, https://nbformat.readthedocs.io/en/latest/format_description.html.


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


#: The most bytes that are examined.
LIMIT = 32 << 20
#: How many bytes at each end of a text are searched for names, in addition to the lines that are shown. This
#: takes a second or two.
NAMED = 1 << 20
#: The most bytes that are read from a pipe, which may have no end. A file may have any size.
_MOST_PIPED = 1 << 30
_CHUNK = 1 << 20
#: A block ends with the next line after this many bytes. If it is longer than `_LONG` by then, it ends with
#: the next state of a progress bar.
_BLOCK, _LONG = 1024, 4096
#: A text of at most this many lines counts as a person's paste, in which a terminal or a mailer may have
#: wrapped lines. A longer text is a file, and lines of files are not wrapped.
PASTE_LINES = 10_000

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
#: Bytes by which UTF-16 without a mark is told from binary data.
_SAMPLE = 4096
_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
)
#: Where a report can be read. A browser can't.
READ_REPORT = "read it with `validator doctor --report FILE`"
_LONGEST_TITLE = 200
#: A first line of one sentence, or a short one. If the next line begins with a lower-case letter, it is a
#: wrapped paragraph.
_TITLE = re.compile(rb"(?:[^\n]{1,80}|(?:[^\n.!?]|[.!?](?![ \t]+[^\s.])){1,%d})\n(?![a-z])" % _LONGEST_TITLE)
#: The beginning of the probe's reports.
_REPORT = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"probe":')
#: The beginning of what `predict --json` and `doctor --json` print.
_ANSWER = re.compile(rb'\s*\{\s*"(?:machine"[^\0]*"headline|answer"[^\0]*"causes)":')
#: The fields by which a report is known, alone or inside of a measurement or a record.
_REPORT_FIELDS = frozenset({"format", "probe", "checks"})
#: How a JSON object begins, and how many such places may not be one.
_OBJECT = re.compile(r'\{\s*"')
_NO_OBJECTS = 100


class Pasted:
    """A text that was read.

    read: how much of it, in words. is_paste: it is short enough to be a person's paste. has_title: it is one,
    and its first line is a title, not the beginning of a paragraph. report: the probe's report in it,
    which is left out of the text.

    each: the size of both parts, if there is a last one.
    """

    report: dict[str, Any] | None = None

    def __init__(
        self, first: bytes, last: bytes, total: int, places: Sequence[str] = (), *, each: int = LIMIT // 2
    ) -> None:
        self._first, self._places = first, places
        # The number of lines between the two parts is not known, so the last part has no line numbers.
        self._last = last.partition(b"\n")[2] or last
        count = first.count(b"\n") + (not first.endswith(b"\n"))
        self.is_paste = not last and count <= PASTE_LINES
        self.has_title = self.is_paste and count > 1 and _TITLE.match(first[: 2 * _LONGEST_TITLE]) is not None
        self.read = "1 line" if count == 1 else f"{count:,} lines"
        if last:
            self.read = f"the first and the last {each >> 20} MiB of {total / (1 << 20):,.0f} MiB"

    def place(self, number: int) -> str:
        """Return where a line stands, in words. number: 0 where it is not known."""
        if not number:
            return "the last part"
        return self._places[number - 1] if number <= len(self._places) else f"line {number}"

    def blocks(self) -> Iterator[Block]:
        """Yield all of it, block by block."""
        for data, number in ((self._first, 1), (self._last, 0)):
            start = line_end = 0
            while start < len(data):
                if line_end <= start + _BLOCK:
                    line_end = data.find(b"\n", start + _BLOCK) + 1 or len(data)
                end = line_end
                if end - start > _LONG:
                    # A progress bar writes a whole epoch into one line.
                    end = data.find(b"\r", start + _BLOCK, min(end - 2, start + PIECE)) + 1 or end
                raw = data[start:end]
                yield Block(raw, number, self.is_paste)
                start = end
                number += raw.count(b"\n") if number else 0

    def paste_lines(self) -> list[Line]:
        """Return all lines of a person's paste; none of a longer text."""
        lines = list(itertools.islice(self, PASTE_LINES + 1)) if self.is_paste else []
        return lines if len(lines) <= PASTE_LINES else []

    def __iter__(self) -> Iterator[Line]:
        for block in self.blocks():
            yield from block.lines


@dataclass(frozen=True)
class Ends:
    """The part of a text that is examined.

    first: all of it, or its beginning. last: if it is longer than the limit, its end, of the same size, else
    nothing. total: its size in bytes.
    """

    first: bytes
    last: bytes
    total: int

    def named(self) -> str:
        """Return the first and the last part, in which lines that are not shown may give names away."""
        parts = (self.first[:NAMED], (self.last or self.first[NAMED:])[-NAMED:])
        # Without its zeros, Latin text in UTF-16 is plain text.
        return b"\n".join(parts).replace(b"\0", b"").decode("utf-8", errors="replace")


def read(stream: BinaryIO, name: str) -> Pasted:
    """Read a stream of any size. name: its name in errors.

    Raises InputError if it is empty, not text, an endless pipe, or has several reports.
    """
    return read_ends(ends_of(stream, name), name)


def read_ends(ends: Ends, name: str) -> Pasted:
    """Read what was taken from a text elsewhere. Raises InputError as `read` does."""
    first, last, total = ends.first, ends.last, ends.total
    encoding = _encoding(first)
    first = _as_utf8(first, name, encoding)
    if encoding is not None:
        last = _as_utf8(last, name, encoding)
    if not first.strip():
        raise InputError(
            f"{name} is empty", hint="paste what TensorFlow printed, starting with the lines of its import"
        )
    reports, rest = split_reports(first)
    if len(reports) > 1:
        raise InputError(f"{name} holds {len(reports)} reports", hint="pass a file with only one")
    if reports:
        pasted = Pasted(rest, last, total, each=len(ends.first))
        pasted.report = reports[0]
        return pasted
    if _REPORT.match(first):
        raise damaged_report(name)
    if _ANSWER.match(first):
        raise InputError(f"{name} is an answer of this program", hint="give what TensorFlow printed")
    if is_notebook(first):
        return _notebook(first, name)
    return Pasted(first, last, total, each=len(ends.first))


def split_reports(data: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Return the reports of the probe in a text, and the text with empty lines instead of their JSON."""
    reports: list[dict[str, Any]] = []
    if not all(f'"{name}"'.encode() in data for name in _REPORT_FIELDS):
        return reports, data
    text, kept, position, failed = data.decode("utf-8", errors="replace"), "", 0, 0
    while (start := _OBJECT.search(text, position)) and failed < _NO_OBJECTS:
        end, found = start.end(), []
        try:
            document, end = json.JSONDecoder().raw_decode(text, start.start())
            found = list(_reports_of(document))
        except (ValueError, RecursionError):
            failed += 1
        whole = text[start.start() : end]
        kept += text[position : start.start()] + ("\n" * whole.count("\n") if found else whole)
        reports += found
        position = end
    return reports, (kept + text[position:]).encode()


def _reports_of(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict) and document.keys() >= _REPORT_FIELDS:
        yield document
    elif isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _reports_of(value)


def _notebook(data: bytes, name: str) -> Pasted:
    lines, places = render(data.decode("utf-8", errors="replace"))
    content = "\n".join(lines).encode()
    if not content.strip():
        raise InputError(
            f"{name} is a notebook without text", hint="save it with its outputs, then try again"
        )
    pasted = Pasted(content, b"", len(data), places)
    pasted.read = f"{pasted.read} of a notebook"
    return pasted


def read_text(text: str) -> Pasted:
    """Read a string. Raises InputError if it is empty or has several reports."""
    return read(io.BytesIO(text.encode("utf-8", errors="surrogatepass")), "the text")


def damaged_report(name: str, why: str = "") -> InputError:
    """Return the error for a report that can't be read. why: the rest of the sentence."""
    return InputError(
        f"{name} is a report of `check`, but it was cut off, damaged or made by another version{why}",
        hint="copy the whole file again, or make a new one: `validator check --json > report.json`",
    )


def begins_report(data: bytes, name: str) -> bool:
    """Return True if the data begins as a report does. Raises InputError if it is compressed or binary."""
    start = data[:_SAMPLE]
    return _REPORT.match(_as_utf8(start, name, _encoding(start))) is not None


def ends_of(stream: BinaryIO, name: str) -> Ends:
    """Read the part of a stream that is examined. Raises InputError for a pipe that does not end."""
    # Some files of the kernel have nothing to read yet, and answer None.
    first = stream.read(LIMIT) or b""
    total = len(first)
    if total < LIMIT:
        return Ends(first, b"", total)
    kept: deque[bytes] = deque()
    held = 0
    if stream.seekable():
        total = stream.seek(0, io.SEEK_END)
        stream.seek(max(LIMIT, total - LIMIT // 2))
        kept.append(stream.read(LIMIT // 2))
    else:
        while chunk := stream.read(_CHUNK):
            total += len(chunk)
            if total > _MOST_PIPED:
                raise InputError(
                    f"{name} has more than {_MOST_PIPED >> 20:,} MiB",
                    hint="write it to a file and name that, or pass on only its end, with `tail -c 32M`",
                )
            kept.append(chunk)
            held += len(chunk)
            while held - len(kept[0]) >= LIMIT // 2:
                held -= len(kept.popleft())
    if total == LIMIT:
        return Ends(first, b"", total)
    return Ends(first[: LIMIT // 2], b"".join(kept)[-(LIMIT // 2) :], total)


def _encoding(data: bytes) -> str | None:
    """Return the encoding of a text that has a mark, or that is UTF-16 without one; None for UTF-8."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return encoding
    # In UTF-16, every other byte of Latin text is zero.
    head = data[:_SAMPLE]
    for offset, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, others = head[offset::2], head[1 - offset :: 2]
        if len(head) > 1 and zeros.count(0) > 0.9 * len(zeros) and not others.count(0):
            return encoding
    return None


def _as_utf8(data: bytes, name: str, encoding: str | None) -> bytes:
    if encoding is not None:
        return data.decode(encoding, errors="replace").removeprefix("\ufeff").encode(errors="replace")
    for magic, kind in _COMPRESSED:
        if data.startswith(magic):
            raise InputError(f"{name} is compressed ({kind}), not text", hint="decompress it first")
    begin = data[: 1 << 20]
    if b"\0" in begin and len(begin.translate(None, _NOT_TEXT)) < len(begin):
        raise InputError(
            f"{name} is binary, not text",
            hint="pass the text that was printed, or a report that `validator check --json` wrote",
        )
    # A crash leaves zeros in a log, and so does rotating it.
    return data.translate(None, b"\0")
