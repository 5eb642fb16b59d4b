"""Takes out of text what names people and machines, so that it can be pasted where everyone reads it.

What is needed to find a fault stays: versions, error codes, names of libraries, paths below the home
directory. Names are learnt where their place tells that they are names (home directories, prompts, lines in
which TensorFlow and the system log name the host) and then taken out wherever they stand; identifiers are
known by their form.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Names that tell nothing of anybody.
_PLACEHOLDERS = (
    "user",
    "host",
    "name",
    "email",
    "credentials",
    "gpu-uuid",
    "uuid",
    "mac",
    "ip",
    "token",
    "serial",
    "secret",
)
_COMMON = frozenset(
    (
        *_PLACEHOLDERS,
        "root",
        "users",
        "home",
        "ubuntu",
        "debian",
        "localhost",
        "admin",
        "jovyan",
        "runner",
        "app",
        "work",
        "tf",
        "gpu",
        "node",
        "docker",
        "nobody",
        "default",
        "public",
        "test",
        "python",
        "conda",
        "tensorflow",
        "nvidia",
        "linux",
        "windows",
    )
)
#: What stands in place of something that was taken out.
PLACEHOLDER = re.compile(f"<({'|'.join(_PLACEHOLDERS)})>")
#: Shorter names stand by chance in other words; where their place tells what they are, they go all the same.
_SHORTEST = 3

_HOMES = re.compile(
    r"(?P<before>/home/|/Users/|/mnt/[a-z]/Users/|\b[A-Za-z]:\\{1,2}Users\\{1,2})(?P<name>[^/\\\s:'\"<>|]+)"
)
_PROMPT = re.compile(
    r"(?<![\w./@:+-])(?P<user>[A-Za-z_][\w.-]{0,31})@(?P<host>[A-Za-z0-9][\w.-]{0,62})(?=[:~ \])]|$)",
    re.MULTILINE,
)
#: Places where software names the host: the system log, TensorFlow's diagnostics, uname.
_HOSTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?P<before>^\s*(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]+) )"
        r"(?P<name>[\w.-]+)(?= [\w./()-]+(?:\[\d+\])?:)",
        r"(?P<before>\b(?:on this host \(|diagnostic information for host: |[Hh]ostname\s?[:=]\s?))"
        r"(?P<name>[\w.-]+)",
        r"(?P<before>^Linux )(?P<name>[\w.-]+)(?= \d+\.\d+)",
    )
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IP = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
#: Identifiers by their form, with what is put in their place. An address has the form of a version of four
#: numbers; it is one where a port follows, its place tells so, or it begins as no version does.
_FORMS = (
    (re.compile(r"(?<=://)[^/\s:@<]+(?::[^/\s@]*)?@"), "<credentials>@"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"), "<email>"),
    (
        re.compile(
            r"\b(?:GPU|MIG)-(?:GPU-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?:/\d+/\d+)?"
        ),
        "<gpu-uuid>",
    ),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b"), "<mac>"),
    (re.compile(rf"(?<![\w.]){_IP}(?=:\d{{2,5}}\b|/\d{{1,2}}\b)"), "<ip>"),
    (
        re.compile(rf"(?i)(?P<before>//|\b(?:inet|from|address|addr:?|peer|server) ){_IP}(?![\w.])"),
        r"\g<before><ip>",
    ),
    (re.compile(rf"(?<![\w.=-])(?:1[0-9]\d|2[0-4]\d|25[0-5])(?:\.{_OCTET}){{3}}(?![\w.])"), "<ip>"),
    (re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])"), "<ip>"),
    (
        re.compile(
            r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|hf_\w{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
            r"|xox[abp]-[\w-]{10,})"
        ),
        "<token>",
    ),
    (re.compile(r"(?i)(?P<before>\bserial(?: number)?\s*[:=]\s*)[^\s<]\S*"), r"\g<before><serial>"),
    (
        re.compile(
            r"(?i)(?P<before>\b[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential)[\w-]*\s*[=:]\s*)"
            r"[^\s,;'\"<]+"
        ),
        r"\g<before><secret>",
    ),
)


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """The text without names of people and machines, UUIDs, serials, addresses and credentials.

    names: further names to take out. Redacting what is redacted changes nothing.
    """
    for pattern, instead in _FORMS:
        text = pattern.sub(instead, text)
    known = {name for name in (*names, *_local_names(), *_named_in(text)) if _telling(name)}
    text = _HOMES.sub(r"\g<before><user>", text)
    text = _PROMPT.sub("<user>@<host>", text)
    for pattern in _HOSTS:
        text = pattern.sub(r"\g<before><host>", text)
    for name in sorted(known, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9<]){re.escape(name)}(?![A-Za-z0-9>])", "<name>", text)
    return text


def _named_in(text: str) -> Iterator[str]:
    for match in _HOMES.finditer(text):
        yield match["name"]
    for match in _PROMPT.finditer(text):
        yield from (match["user"], match["host"])
    for pattern in _HOSTS:
        for match in pattern.finditer(text):
            yield match["name"]


def _local_names() -> Iterator[str]:
    """Of whoever runs this, and of this machine."""
    host = socket.gethostname()
    yield from (host, host.partition(".")[0], Path.home().name)
    try:
        yield getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return


def _telling(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in _COMMON and not name.isdecimal()
