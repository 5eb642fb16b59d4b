"""Read frames: files that came through the output of a job, which is a log that anything may write to.

    tfm-frame NAME LENGTH SHA256
    tfm-data NAME BASE64
    tfm-end NAME

`inside.frame` writes them. There may be any other lines before, after and between these. A frame counts only
if it is whole; anything else is a CutError, which is a fault of the infrastructure and never a verdict.

Two frames with one name and different contents are refused together: a job that ran twice writes two, and so
does a container that tries to put its own words in the place of what its node said.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field

from ..errors import ValidatorError
from .inside import LARGEST

#: Frames of one log.
MOST = 32

_NAME = rb"[a-z][a-z0-9.-]{0,63}"
_HEADER = re.compile(rb"tfm-frame (%s) (0|[1-9][0-9]{0,9}) ([0-9a-f]{64})" % _NAME)
_DATA = re.compile(rb"tfm-data (%s) ([A-Za-z0-9+/]+={0,2})" % _NAME)
_END = re.compile(rb"tfm-end (%s)" % _NAME)
_MARK = b"tfm-"


class CutError(ValidatorError):
    """The output is incomplete: cut off, mixed with another copy, or missing."""


@dataclass
class _Open:
    """A frame whose end was not read yet. Its data never becomes longer than it said."""

    length: int
    digest: str
    data: bytearray = field(default_factory=bytearray)


def read_frames(log: bytes, *required: str) -> dict[str, bytes]:
    """Return the contents of all frames in a log, by name.

    required: names that must be there. Raises CutError unless every frame that begins is whole.
    """
    found: dict[str, bytes] = {}
    opened: dict[str, _Open] = {}
    frames = 0
    for raw in log.split(b"\n"):
        if not raw.startswith(_MARK):
            continue
        line = raw.rstrip(b"\r")
        if header := _HEADER.fullmatch(line):
            name, length = header[1].decode(), int(header[2])
            frames += 1
            if frames > MOST:
                raise CutError(f"the output has more than {MOST} frames")
            if length > LARGEST:
                raise CutError(f"the frame {name} claims to have {length} bytes, more than any report")
            if name in opened:
                raise CutError(f"the frame {name} begins again before its end")
            opened[name] = _Open(length, header[3].decode())
        elif data := _DATA.fullmatch(line):
            _add(opened, data[1].decode(), data[2])
        elif end := _END.fullmatch(line):
            name = end[1].decode()
            content = _whole(name, opened.pop(name, None))
            if found.setdefault(name, content) != content:
                raise CutError(f"there are two frames {name} with different contents")
    if opened:
        raise CutError(f"the frame {min(opened)} has no end: the output was cut")
    for name in required:
        if name not in found:
            raise CutError(f"the output has no frame {name}")
    return found


def _add(opened: dict[str, _Open], name: str, text: bytes) -> None:
    frame = opened.get(name)
    if frame is None:
        raise CutError(f"the frame {name} has data before its beginning")
    try:
        frame.data += base64.b64decode(text, validate=True)
    except binascii.Error:
        raise CutError(f"the frame {name} has a damaged line") from None
    if len(frame.data) > frame.length:
        raise CutError(f"the frame {name} has more than the {frame.length} bytes that it should have")


def _whole(name: str, frame: _Open | None) -> bytes:
    if frame is None:
        raise CutError(f"the frame {name} ends before its beginning")
    content = bytes(frame.data)
    if len(content) != frame.length:
        raise CutError(f"the frame {name} has {len(content)} of {frame.length} bytes")
    if hashlib.sha256(content).hexdigest() != frame.digest:
        raise CutError(f"the frame {name} was altered: its SHA-256 is not the one in its first line")
    return content
