"""Read text as people paste it: bytes of any size and kind.

At most `LIMIT` bytes of a text are examined: the first and the last half.
"""

from __future__ import annotations

import codecs
import io
import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ..errors import InputError
from . import notebook
from .lines import PIECE, Block, Line

#: The most bytes that are examined.
LIMIT = 32 << 20
_CHUNK = 1 << 20
#: A block ends with the next line after this many bytes. If it is longer than `_LONG` by then, it ends with
#: the next state of a progress bar.
_BLOCK, _LONG = 1024, 4096
#: A text of at most this many lines counts as a person's paste, in which a terminal or a mailer may have
#: wrapped lines. A longer text is a file, and lines of files are not wrapped.
PASTE_LINES = 20_000

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
_READ_REPORT = "`python -m validator doctor --report FILE` reads a report"
#: The beginning of the probe's reports.
_REPORT = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"probe":')


class Pasted:
    """A text that was read.

    read: how much of it, in words. is_paste: it is short enough to be a person's paste.

    each: the size of both parts, if there is a last one.
    """

    def __init__(
        self, first: bytes, last: bytes, total: int, places: Sequence[str] = (), *, each: int = LIMIT // 2
    ) -> None:
        self._first, self._places = first, places
        # The number of lines between the two parts is not known, so the last part has no line numbers.
        self._last = last.partition(b"\n")[2] or last
        count = first.count(b"\n") + (not first.endswith(b"\n"))
        self.is_paste = not last and count <= PASTE_LINES
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


def read(stream: BinaryIO, name: str) -> Pasted:
    """Read a stream of any size. name: its name in errors.

    Raises InputError if it is empty, not text, or a report.
    """
    return read_ends(_ends(stream), name)


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
    if _REPORT.match(first):
        raise InputError(f"{name} is a report of `check`, not a log", hint=_READ_REPORT)
    if notebook.is_notebook(first):
        return _notebook(first, name)
    return Pasted(first, last, total, each=len(ends.first))


def _notebook(data: bytes, name: str) -> Pasted:
    lines, places = notebook.render(data.decode("utf-8", errors="replace"))
    content = "\n".join(lines).encode()
    if not content.strip():
        raise InputError(
            f"{name} is a notebook without text", hint="save it with its outputs, then try again"
        )
    pasted = Pasted(content, b"", len(data), places)
    pasted.read = f"{pasted.read} of a notebook"
    return pasted


def read_text(text: str) -> Pasted:
    """Read a string. Raises InputError if it is empty or a report."""
    return read(io.BytesIO(text.encode("utf-8", errors="surrogatepass")), "the text")


def refuse_compressed(data: bytes, name: str) -> None:
    """Raise InputError if the data begins as a compressed file does."""
    for magic, kind in _COMPRESSED:
        if data.startswith(magic):
            raise InputError(f"{name} is compressed ({kind}), not text", hint="decompress it first")


def _ends(stream: BinaryIO) -> Ends:
    first = stream.read(LIMIT)
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
    refuse_compressed(data, name)
    if b"\0" in data[: 1 << 20]:
        raise InputError(
            f"{name} is binary, not text", hint=f"pass the text that was printed; {_READ_REPORT}"
        )
    return data
