"""Take names of people and machines out of a text, so that it can be published.

What is needed to find a fault stays: versions, error codes, names of libraries, paths below the home
directory. Names are learned from places that hold names (home directories, prompts, lines in which TensorFlow
and the system log name the host), and then taken out wherever they occur: see `personal_names`. Identifiers
are known by their form: see `identifiers`.
"""

from __future__ import annotations

import functools
import getpass
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .identifiers import IDENTIFIERS, hosts_in, is_address, is_public
from .known_names import SHORTEST, KnownNames
from .personal_names import ALWAYS, COLOURS, COMMON, MOSTLY, PROMPT, ROWS, SHELL

#: Separates the names in a scheduler's list of nodes.
_LIST = re.compile(r"(?:\[[^\]]*\]?)?,|\[[^\]]*\]?")


class Redaction:
    """Take the same names out of several texts: a name that is found in one of them is taken out of all.

    names: to take out in addition. Redacting a text again changes nothing.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        # Most texts are read twice: for the names in them, and to take names out.
        self._stripped = functools.cache(_stripped)
        found = (name for text in dict.fromkeys(texts) for name in _names(self._stripped(text)))
        given = [name.strip(".- ") for name in (*names, *_local_names(), *found)]
        # A machine is also known by the first part of its name.
        known = {
            name for whole in given for name in (whole, whole.partition(".")[0]) if _is_distinctive(name)
        }
        self._names = KnownNames(known)

    def __call__(self, text: str) -> str:
        """Return the text without names of people and machines, UUIDs, serials, addresses and credentials."""
        text = self._stripped(text).without_identifiers
        for pattern, instead in ALWAYS:
            text = pattern.sub(rf"\g<before>{instead}", text)
        text = PROMPT.sub("<user>@<host>", text)
        for pattern, instead in MOSTLY:
            text = pattern.sub(functools.partial(_replaced, instead), text)
        return self._names.replaced(text, "<name>")


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """Redact a single text, see `Redaction`."""
    return Redaction([text], names)(text)


def names_in(text: str) -> Iterator[str]:
    """Return the names of people and machines that a text reveals, for `Redaction`."""
    return _names(_stripped(text))


class _Stripped(NamedTuple):
    """A text without colours, and the same without identifiers too."""

    text: str
    without_identifiers: str


def _stripped(text: str) -> _Stripped:
    text = COLOURS.sub("", text)
    return _Stripped(text, _without_identifiers(text))


def _names(stripped: _Stripped) -> Iterator[str]:
    # Some places are only found before identifiers are taken out, such as a whole host name, and some only
    # after.
    for version in dict.fromkeys(stripped):
        for pattern in (*(pattern for pattern, _ in (*ALWAYS, *MOSTLY)), *ROWS):
            for match in pattern.finditer(version):
                yield from (name for name in _LIST.split(match["name"]) if _is_name(name))
    for match in (*SHELL.finditer(stripped.text), *PROMPT.finditer(stripped.without_identifiers)):
        yield from (name for name in (match["user"], match["host"]) if _is_name(name))
    yield from hosts_in(stripped.text)


def _is_name(found: str) -> bool:
    return not is_address(found) and not is_public(found)


def _replaced(instead: str, match: re.Match[str]) -> str:
    kept = match["name"].lower() in COMMON or not _is_name(match["name"])
    return match[0] if kept else f"{match['before']}{instead}"


def _without_identifiers(text: str) -> str:
    home = _home()
    if home is not None and str(home) not in ("/", "/root"):
        text = re.sub(rf"(?<![\w./-]){re.escape(str(home))}(?![\w.-])", "~", text)
    for pattern, instead in IDENTIFIERS:
        text = pattern.sub(instead, text)
    return text


def _home() -> Path | None:
    """Return the home directory of the user who runs this; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _local_names() -> Iterator[str]:
    """Yield the names of the user who runs this and of this machine."""
    host = socket.gethostname()
    yield host
    if (home := _home()) is not None:
        yield home.name
    try:
        yield getpass.getuser()
    except (OSError, KeyError):
        # A container may run with a user ID that has no name.
        return


def _is_distinctive(name: str) -> bool:
    # Shorter names are common words. They are only taken out of the places that hold names.
    return len(name) >= SHORTEST and name.lower() not in COMMON and not name.isdecimal()
