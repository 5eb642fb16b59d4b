"""Text as people paste it: bytes of any size and kind become clean lines with their numbers.

Bounded whatever comes: at most `LIMIT` bytes are looked at (the first and the last half), in pieces of
at most `PIECE` characters, and no step takes more than time in proportion to what it reads.
"""

from __future__ import annotations

import codecs
import io
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import re2

from ..errors import InputError

#: Bytes that are looked at.
LIMIT = 32 << 20
#: Characters of a line that are looked at in one go; a longer line is cut, with some overlap.
PIECE = 16384
_OVERLAP = 512
_CHUNK = 1 << 20
#: Bytes after which a block ends with the next line, and more than which it ends with the next state of a
#: progress bar.
_BLOCK, _LONG = 1024, 4096
#: Lines up to which text is taken to be a person's paste, in which a terminal or a mailer may have wrapped
#: lines; a longer one is a file, and files are not wrapped.
PASTE_LINES = 20_000
#: A line that is shorter was not wrapped: the time and the letter of a severity have 29 characters.
_SHORTEST = 29
#: Lines that one line may have been broken into.
_PARTS = 4

#: What CI systems, container engines and the journal put before each line. With the line end before it, it is
#: searched for in a tenth of the time.
_STAMP = re.compile(r"\n\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Those of them that are one byte, but for carriage returns.
_CONTROL_BYTES = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
#: Prompts of Python, IPython and shells, and headings in Markdown.
_ASKS = re.compile(r"\s*(?:>\s+)*(?:>>> \S|In ?\[\d*\]: \S|[$%] \S|#{1,6} \S|\*\*[^*]+\*\*:?\s*$)")
#: Quote marks of mails and issue trackers; Python's own prompt goes with them.
_QUOTES = re.compile(r"^\s*(?:>\s?)+")
#: What begins a line of its own, so that it does not continue the line before.
_BEGINS = re.compile(
    r"\s*(?:\d{4}-\d\d-\d\d[ T]|[IWEF]\d{4} |\d\d:\d\d:\d\d|\[|[$#>+|]|Traceback|File \"|WARNING|ERROR|INFO|"
    r"\*\* |- |\* |[\w.]+(?:Error|Exception|Warning)\b)"
)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PACKED = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
)
#: How the probe's reports begin.
_REPORT = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"probe":')
#: Where this shows in a block, its lines are not clean as they are. RE2 looks for all of it at once, and its
#: sets are asked with the least ado.
_UNCLEAN = re2.Set.SearchSet()
_UNCLEAN.Add(
    r"(?m)[\x00-\x08\x0b-\x1f\x7f-\x9f\x{feff}&]|[ \t\p{Z}]$|^[\s\p{Z}]*>|^\d{4}-\d\d-\d\dT|^\{\"log\":\""
)
_UNCLEAN.Compile()


class Line(NamedTuple):
    """One cleaned line.

    number: from 1; 0 where it is not known. asks: whether the next line that is not empty may be its answer:
    after a prompt, and after a heading of an issue form.
    """

    number: int
    text: str
    asks: bool = False


class Block:
    """Some lines in a row, to be looked at together.

    data: the cleaned lines, with line ends between them, in UTF-8.
    """

    def __init__(self, raw: bytes, number: int, of_paste: bool) -> None:
        self._raw, self._number, self._of_paste = raw, number, of_paste
        self._lines: list[Line] | None = None
        self._together = _cleaned_together(raw)
        if self._together is None:
            self.data = "\n".join(line.text for line in self.lines).encode()
        else:
            self.data = self._together.replace(b"\r", b"\n")

    @property
    def lines(self) -> list[Line]:
        """The cleaned lines. Progress bars write over their line with carriage returns: each state of it that
        shows something counts as a line here."""
        if self._lines is None:
            if self._together is None:
                raw = zip(self._numbers(), io.BytesIO(self._raw), strict=False)
                made = [line for number, one in raw for line in self._one_by_one(one, number)]
            else:
                whole = zip(self._numbers(), self._together.decode().split("\n"), strict=False)
                if self._of_paste or b"\r" in self._together:
                    made = [
                        Line(number, state, self._asks(state))
                        for number, line in whole
                        for state in _shown(line.split("\r"))
                    ]
                else:
                    made = list(itertools.starmap(Line, whole))
            self._lines = made
        return self._lines

    def _numbers(self) -> Iterator[int]:
        return itertools.count(self._number) if self._number else itertools.repeat(0)

    def _one_by_one(self, raw: bytes, number: int) -> Iterator[Line]:
        text = _unstamped(_logged(raw.rstrip(b"\r\n").decode("utf-8", errors="replace")))
        for piece in _shown([_seen(piece) for state in text.split("\r") for piece in _pieces(state)]):
            yield Line(number, _unquoted(piece), self._asks(piece))

    def _asks(self, text: str) -> bool:
        """Only a paste is searched for questions and their answers."""
        return self._of_paste and _ASKS.match(text) is not None


class Pasted:
    """What was read, to be gone through.

    read: how much, in words. is_paste: it is short enough to be a person's paste.
    """

    def __init__(self, first: bytes, last: bytes, total: int) -> None:
        self._first = first
        # How many lines lie between is not known, and so are their numbers.
        self._last = last.partition(b"\n")[2] or last
        count = first.count(b"\n") + (not first.endswith(b"\n"))
        self.is_paste = not last and count <= PASTE_LINES
        self.read = "1 line" if count == 1 else f"{count:,} lines"
        if last:
            half = LIMIT // 2 >> 20
            self.read = f"the first and the last {half} MiB of {total / (1 << 20):,.0f} MiB"

    def blocks(self) -> Iterator[Block]:
        """All of it, block by block."""
        for data, number in ((self._first, 1), (self._last, 0)):
            start = line_end = 0
            while start < len(data):
                if line_end <= start + _BLOCK:
                    line_end = data.find(b"\n", start + _BLOCK) + 1 or len(data)
                end = line_end
                if end - start > _LONG:
                    # A progress bar writes an epoch into one line.
                    end = data.find(b"\r", start + _BLOCK, min(end - 2, start + PIECE)) + 1 or end
                raw = data[start:end]
                yield Block(raw, number, self.is_paste)
                start = end
                number += raw.count(b"\n") if number else 0

    def __iter__(self) -> Iterator[Line]:
        for block in self.blocks():
            yield from block.lines


def read(stream: BinaryIO, name: str) -> Pasted:
    """Read a stream of any size. Raises InputError for what is empty, no text, or a report."""
    first, last, total = _ends(stream)
    first = _as_utf8(first, name)
    if not first.strip():
        raise InputError(
            f"{name} is empty", hint="paste the lines that TensorFlow printed from its import on"
        )
    if _REPORT.match(first):
        raise InputError(f"{name} is a report of `check`, no log", hint="give it to --report")
    return Pasted(first, last, total)


def read_text(text: str) -> Pasted:
    """The same of text that is at hand."""
    return read(io.BytesIO(text.encode("utf-8", errors="surrogatepass")), "the text")


def answered(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Each line that asks, put together with the next that is not empty, if that is none which asks itself.

    Each with the lines that it was made of.
    """
    for position, line in enumerate(lines):
        if not line.asks:
            continue
        for following in lines[position + 1 : position + 4]:
            if following.text.strip():
                if not following.asks:
                    question = line.text.strip("#*: ")
                    yield f"{question}: {following.text.strip()}", (line, following)
                break


def joined(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    """What a wrapped line may have been: two to four lines in a row, put together with and without a blank.

    Each with the lines that it was made of. A line that begins as log lines do continues none.
    """
    for position, line in enumerate(lines):
        if not _SHORTEST <= len(line.text) <= 400:
            continue
        glued = spaced = line.text
        for end in range(position + 1, min(position + _PARTS, len(lines))):
            following = lines[end].text
            if not following.strip() or _BEGINS.match(following):
                break
            glued += following
            spaced += " " + following.strip()
            parts = lines[position : end + 1]
            yield glued, parts
            yield spaced, parts


def _ends(stream: BinaryIO) -> tuple[bytes, bytes, int]:
    """All of a stream, or its first and last halves of the limit, and its size in bytes."""
    first = stream.read(LIMIT)
    total = len(first)
    if total < LIMIT:
        return first, b"", total
    kept: deque[bytes] = deque()
    held = 0
    if stream.seekable():
        total = stream.seek(0, io.SEEK_END)
        stream.seek(max(LIMIT, total - LIMIT // 2))
        kept.append(stream.read(LIMIT // 2))
    else:
        while chunk := stream.read(_CHUNK):
            total += len(chunk)
            kept.append(chunk)
            held += len(chunk)
            while held - len(kept[0]) >= LIMIT // 2:
                held -= len(kept.popleft())
    if total == LIMIT:
        return first, b"", total
    return first[: LIMIT // 2], b"".join(kept)[-(LIMIT // 2) :], total


def _as_utf8(data: bytes, name: str) -> bytes:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace").encode()
    refuse_packed(data, name)
    if b"\0" in data[: 1 << 20]:
        raise InputError(
            f"{name} is binary, not text", hint="give the text that was printed, or a report with --report"
        )
    return data


def refuse_packed(data: bytes, name: str) -> None:
    """Raise InputError for what begins as a packed file does."""
    for magic, kind in _PACKED:
        if data.startswith(magic):
            raise InputError(f"{name} is packed ({kind}), not text", hint="unpack it first")


def _cleaned_together(raw: bytes) -> bytes | None:
    """The lines of a block, cleaned all at once, or nothing if each has to be looked at by itself."""
    if len(raw) > PIECE:
        return None
    lines = (raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw).removesuffix(b"\n")
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        return None
    if _UNCLEAN.Match(lines):
        # Most that is unclean is time stamps, colours and progress bars.
        seen = _ESCAPES.sub("", _unstamped(text)).encode().translate(None, _CONTROL_BYTES)
        lines = b"\n".join(b"\r".join(map(bytes.rstrip, line.split(b"\r"))) for line in seen.split(b"\n"))
        if _UNCLEAN.Match(lines.replace(b"\r", b"\n")):
            return None
    return lines


def _unstamped(lines: str) -> str:
    return _STAMP.sub("\n", f"\n{lines}")[1:]


def _pieces(text: str) -> list[str]:
    """All of it, or pieces that overlap of what is too long for one go."""
    if len(text) <= PIECE:
        return [text]
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE - _OVERLAP)]


def _shown(states: list[str]) -> list[str]:
    """Of a line that was written over, what shows something; of an empty one, that."""
    return states if len(states) == 1 else [state for state in states if state.strip()] or states[:1]


def _logged(text: str) -> str:
    """The line in an entry of Docker's log driver json-file; any other as it is."""
    if not text.startswith('{"log":"') or len(text) > PIECE:
        return text
    try:
        entry = json.loads(text)
    except ValueError:
        return text
    if not isinstance(entry, dict):
        return text
    # JSON may hold half of a surrogate pair, which is no text.
    return str(entry["log"]).encode("utf-8", errors="replace").decode().rstrip("\r\n")


def _seen(line: str) -> str:
    """What a terminal shows of a line: neither colours nor control characters."""
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    return line if line.isprintable() else _CONTROL.sub("", line)


def _unquoted(line: str) -> str:
    """A line without quote marks, entities and trailing blanks."""
    stripped = line.lstrip()
    if stripped.startswith(">"):
        line = _QUOTES.sub("", line)
    if "&" in line:
        # Its table of names takes time to import, and few texts have one.
        import html

        line = html.unescape(line)
    return line.rstrip()
