"""Takes out of text what names people and machines, so that it can be pasted where everyone reads it.

What is needed to find a fault stays: versions, error codes, names of libraries, paths below the home
directory. Names are learnt where their place tells that they are names (home directories, prompts, lines in
which TensorFlow and the system log name the host) and then taken out wherever they stand; identifiers are
known by their form. See `places` and `identifiers`.
"""

from __future__ import annotations

import functools
import getpass
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from .identifiers import FORMS, hosts_in, is_address, is_public
from .personal_names import ALWAYS, COLOURS, COMMON, MOSTLY, PROMPT, ROWS, SHELL

#: Shorter names stand by chance in other words; where their place tells what they are, they go all the same.
_SHORTEST = 3
#: Between the names of a scheduler's list of nodes.
_LIST = re.compile(r"(?:\[[^\]]*\]?)?,|\[[^\]]*\]?")


class Redaction:
    """Takes the same names out of several texts: what one of them gives away goes from all.

    names: to be taken out besides those that are found. Redacting what is redacted changes nothing.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        found = (name for text in texts for name in names_in(text))
        given = [name.strip(".- ") for name in (*names, *_local_names(), *found)]
        # A machine is called by the first part of its name too.
        known = {name for whole in given for name in (whole, whole.partition(".")[0]) if _telling(name)}
        longest_first = sorted(known, key=lambda name: (-len(name), name))
        either = "|".join(re.escape(name) for name in longest_first)
        self._names = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])") if known else None

    def __call__(self, text: str) -> str:
        """The text without names of people and machines, UUIDs, serials, addresses and credentials."""
        text = _without_forms(COLOURS.sub("", text))
        for pattern, instead in ALWAYS:
            text = pattern.sub(rf"\g<before>{instead}", text)
        text = PROMPT.sub("<user>@<host>", text)
        for pattern, instead in MOSTLY:
            text = pattern.sub(functools.partial(_replaced, instead), text)
        return self._names.sub("<name>", text) if self._names else text


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """One text by itself, see `Redaction`."""
    return Redaction([text], names)(text)


def names_in(text: str) -> Iterator[str]:
    """Names of people and machines that their places in a text give away, for `Redaction`."""
    text = COLOURS.sub("", text)
    # Some places are only seen before forms are taken out, such as a host's whole name, and some only after.
    for version in dict.fromkeys((text, _without_forms(text))):
        for pattern in (*(pattern for pattern, _ in (*ALWAYS, *MOSTLY)), *ROWS):
            for match in pattern.finditer(version):
                yield from (name for name in _LIST.split(match["name"]) if _is_name(name))
    for match in (*SHELL.finditer(text), *PROMPT.finditer(_without_forms(text))):
        yield from (name for name in (match["user"], match["host"]) if _is_name(name))
    yield from hosts_in(text)


def _is_name(found: str) -> bool:
    return not is_address(found) and not is_public(found)


def _replaced(instead: str, match: re.Match[str]) -> str:
    kept = match["name"].lower() in COMMON or not _is_name(match["name"])
    return match[0] if kept else f"{match['before']}{instead}"


def _without_forms(text: str) -> str:
    home = str(Path.home())
    if home not in ("/", "/root"):
        text = re.sub(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])", "~", text)
    for pattern, instead in FORMS:
        text = pattern.sub(instead, text)
    return text


def _local_names() -> Iterator[str]:
    """Of whoever runs this, and of this machine."""
    host = socket.gethostname()
    yield from (host, Path.home().name)
    try:
        yield getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return


def _telling(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in COMMON and not name.isdecimal()
