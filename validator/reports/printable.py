"""Make text from elsewhere safe to print on a terminal.

An imported record, a pasted log or the output of a container can contain escape sequences. A terminal would
obey them: they can recolour, overwrite or hide other output, or set the window's title or the clipboard.
"""

from __future__ import annotations

import re

#: C0 and C1 controls except line feed and tab, characters that change the writing direction or act as a line
#: separator, and surrogates, which no output can encode.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Replace each character that a terminal would obey by its code: `\\x1b`, `\\u202e`."""
    return _UNPRINTABLE.sub(_escape, text)


def one_line(text: str) -> str:
    """Make text printable on a single line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 image` or `2 images`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
