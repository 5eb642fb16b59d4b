"""Turn raw lines of pasted text into clean ones, and join those that belong together.

Every step takes time in proportion to its input.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .patterns import searcher

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
#: Prompts of Python, IPython and shells, and headings in Markdown.
_QUESTION = re.compile(r"\s*(?:>\s+)*(?:>>> \S|In ?\[\d*\]: \S|[$%] \S|#{1,6} \S|\*\*[^*]+\*\*:?\s*$)")
#: Quote marks of mails and issue trackers; Python's own prompt goes with them.
_QUOTES = re.compile(r"^\s*(?:>\s?)+")
#: A row of a table in Markdown with two cells, of which the first names something.
_TABLE_ROW = re.compile(r"\s*\|?\s*([*`_]*[A-Za-z][^|]{0,60}?)\s*\|\s*([^|]*[\w][^|]{0,120}?)\s*\|?\s*")
#: The beginning of a new line of a log, which does not continue the line before.
_NEW_LINE = re.compile(
    r"\s*(?:\d{4}-\d\d-\d\d[ T]|[IWEF]\d{4} |\d\d:\d\d:\d\d|\[|[$#>+|]|Traceback|File \"|WARNING|ERROR|INFO|"
    r"\*\* |- |\* |[\w.]+(?:Error|Exception|Warning)\b)"
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
