"""Remove from a log what belongs to the machine on which it was made."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

HOST = "workstation"
#: Lines in which installers name where packages come from.
_INDEX = re.compile(
    r"^(Looking in indexes|Looking in links|WARNING: .*trusted-host|WARNING: Location 'file:).*\n",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"https?://[^\s'\")]+")
#: A longer log loses its middle, as in texts that people paste.
LARGEST = 56_000
#: More than enough room for the line that replaces the middle of a log.
LIMIT = 60_000


def redact(text: str, places: Mapping[Path, str]) -> str:
    """places: the replacement of each directory of this machine; the longest are replaced first."""
    for path in sorted(places, key=lambda path: -len(str(path))):
        text = text.replace(str(path), places[path])
        # XLA leaves out the first slash.
        text = text.replace(f'"{str(path)[1:]}/', f'"{places[path][1:]}/')
    text = text.replace(str(Path.home()), "/home/user")
    # TensorFlow writes the host's name after "host:", "hostname:" and "host (" only.
    text = re.sub(rf"(host(?:name)?(?:: | \()){re.escape(socket.gethostname())}\b", rf"\g<1>{HOST}", text)
    text = _INDEX.sub("", text)
    return _ADDRESS.sub(_public, text)


def _public(match: re.Match[str]) -> str:
    """Keep public addresses that software prints."""
    known = ("tensorflow.org", "github.com", "developers.google.com", "numpy.org", "nvidia.com", "docker.com",
             "docs.docker", "keras.io", "pypa.io", "python.org", "abseil.io")  # fmt: skip
    address = match.group()
    host = address.split("/")[2].split(":")[0]
    return address if host.endswith(known) else "https://index.example/simple"


def shorten(text: str) -> str:
    """Leave out the middle of what is too long, at line ends."""
    if len(text) <= LARGEST:
        return text
    head = text[: LARGEST // 2].rpartition("\n")[0]
    tail = text[-LARGEST // 2 :].partition("\n")[2]
    left = text.count("\n") - head.count("\n") - tail.count("\n") - 1
    return f"{head}\n[... {left} lines ...]\n{tail}"
