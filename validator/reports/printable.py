"""Text that came from elsewhere, as it may be written to a terminal.

An imported record, a pasted log or a message of a container can hold escape sequences, and a terminal obeys
them: they recolour, overwrite or hide what was printed, or put text into the window's title or the clipboard.
"""

from __future__ import annotations

import re

#: C0 and C1 controls but the line end and the tab; what turns the direction of writing or begins a line where
#: none is; surrogates, which no output can encode.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with each character that a terminal would obey written out: `\\x1b`, `\\u202e`."""
    return _UNPRINTABLE.sub(_written_out, text)


def one_line(text: str) -> str:
    """The same for a text that is to stay in its line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
