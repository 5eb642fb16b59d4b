"""Make text from elsewhere safe to print, and name the parts of a diagnosis in words.

An imported record, a pasted log or the output of a container can contain escape sequences. A terminal would
act on them: they can recolor, overwrite or hide other output, or set the window's title or the clipboard.
GitHub's runners execute commands in the output of a step: `::error::` at the start of a line, after blanks,
and `##[error]` anywhere in it (ActionCommand.cs in https://github.com/actions/runner).

This imports only the standard library, because a browser has nothing else.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.diagnosis import Diagnosis

#: C0 and C1 controls except line feed and tab, characters that change the writing direction or act as a line
#: separator, and surrogates, which no output can encode.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: The first character of what a runner takes for a command. What else ends a line is unprintable.
COMMAND = re.compile(r"(?m)#(?=#\[)|^(?P<blanks>[^\S\n]*):(?=:)")


def printable(text: str) -> str:
    """Replace what controls a terminal or a runner with codes: `\\x1b`, `\\u202e`, `\\x23#[error]`."""
    # Most text has none of it, and Python's own search shows that many times faster than the expressions.
    if text.isprintable() and "::" not in text and "##[" not in text:
        return text
    return COMMAND.sub(
        lambda match: "\\x23" if match["blanks"] is None else f"{match['blanks']}\\x3a",
        _UNPRINTABLE.sub(_escape, text),
    )


def json_text(document: Any) -> str:
    """Return a document as JSON on several lines, in which no runner finds a command."""
    # A line of JSON can't start with a colon, and only its strings can hold a number sign.
    return json.dumps(document, indent=2).replace("##[", "\\u0023#[")


#: Characters that could end a script.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def clean(value: Any) -> Any:
    """Make every text in a value printable, and turn numbers that JSON can't express into text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def script_json(value: Any) -> str:
    """Return a value as ASCII JSON in which `<`, `>` and `&` are escaped."""
    text = json.dumps(clean(value), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


def one_line(text: str) -> str:
    """Make text printable on a single line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def wrapped(prose: str, width: int, indent: str = "", following: str | None = None) -> list[str]:
    """Return prose as printable lines. following: the indent of all lines but the first, if it differs."""
    return textwrap.wrap(
        printable(prose),
        width,
        initial_indent=indent,
        subsequent_indent=indent if following is None else following,
        break_long_words=False,
        break_on_hyphens=False,
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 image` or `2 images`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


#: Names of the facts, in the order in which they are shown.
_FACTS = {
    "tensorflow": "TensorFlow",
    "python": "Python",
    "keras": "Keras",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "driver": "driver",
    "driver_cuda": "CUDA of the driver",
    "gpu": "GPU",
    "os": "on",
    "image": "image",
}
#: Names of the facts that are missing, by the fields of `Host` and `Software`.
MISSING = {
    "tensorflow": "the TensorFlow release",
    "python": "the Python version",
    "cuda": "the CUDA libraries",
    "cudnn": "cuDNN",
    "machine": "the processor architecture",
    "wheel": "where TensorFlow was installed from",
    "library_path": "LD_LIBRARY_PATH",
    "driver": "the NVIDIA driver",
    "gpu": "the GPU",
    "system": "the operating system",
}


def environment_facts(diagnosis: Diagnosis) -> Sequence[str]:
    """Return what is known about the environment: `TensorFlow 2.18.0`, `driver 535.183.01`."""
    return [f"{_FACTS[name]} {one_line(diagnosis.facts[name])}" for name in _FACTS if name in diagnosis.facts]


def headline(diagnosis: Diagnosis) -> str:
    """Return the answer in one sentence where no cause was found."""
    # Every command imports this module, and only a diagnosis needs that one.
    from ..model.diagnosis import GPU_USED, NO_FAULT, NO_GPU_LISTED, NOT_SHOWN, UNRECOGNIZED

    if diagnosis.answer == NOT_SHOWN and diagnosis.harmless:
        return "No fault found: the messages are harmless. This does not show whether the GPU is used."
    headlines = {
        UNRECOGNIZED: "Unknown: this matches no known cause.",
        NO_GPU_LISTED: "TensorFlow lists no GPU, but this does not show why.",
        GPU_USED: "No fault found: TensorFlow uses the GPU.",
        NO_FAULT: "No fault found.",
        NOT_SHOWN: "Not enough to tell: this shows neither a fault nor that the GPU is used.",
    }
    return headlines[diagnosis.answer]


def fact_names(fields: Iterable[str]) -> Sequence[str]:
    """Return what fields of `Host` and `Software` are about, in words."""
    return [MISSING.get(name, name) for name in fields]
