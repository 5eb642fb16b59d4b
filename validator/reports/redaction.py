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
    "container",
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
        "kernel",
        "cuda",
        "cudnn",
        "xla",
        "keras",
        "numpy",
        "pip",
        "usr",
        "opt",
        "lib",
        "bin",
        "tmp",
        "var",
        "venv",
        "env",
        "src",
        "workspace",
        "project",
        "data",
        "model",
        "train",
        "error",
        "warning",
        "failed",
        "info",
        "cpu",
        "driver",
        "device",
        "library",
        "line",
        "file",
    )
)
#: What stands in place of something that was taken out.
PLACEHOLDER = re.compile(f"<({'|'.join(_PLACEHOLDERS)})>")
#: Shorter names stand by chance in other words; where their place tells what they are, they go all the same.
_SHORTEST = 3

_HOMES = tuple(
    re.compile(pattern)
    for pattern in (
        # A name with blanks in it ends at the next backslash.
        r"(?P<before>\b[A-Za-z]:\\{1,2}Users\\{1,2})(?P<name>[^/\\:'\"<>|\n]+)(?=\\)",
        r"(?P<before>/home\d*/|/[Uu]sers/|\b[A-Za-z]:\\{1,2}Users\\{1,2})(?P<name>[^/\\\s:'\"<>|]+)",
    )
)
#: Variables and answers of `id` that name the user.
_USERS = re.compile(
    r"(?P<before>\b(?:USER|LOGNAME|USERNAME|SUDO_USER|NB_USER)=[\"']?|\b[ug]id=\d+\()(?P<name>[A-Za-z_][\w.-]*)"
)
_PROMPT = re.compile(
    # A host has a letter in its name; `python@3.11` is a version.
    r"(?<![\w./@:+-])(?P<user>[A-Za-z_][\w.-]{0,31})"
    r"@(?P<host>(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{0,62})(?=[:~ \])]|$)",
    re.MULTILINE,
)
#: Places where software names the host: the system log, TensorFlow's diagnostics, uname.
_HOSTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?P<before>^\s*(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]+) )"
        r"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|[IWEF])\b)"
        r"(?P<name>[\w.-]+)(?= [\w./()-]+(?:\[\d+\])?:)",
        r"(?P<before>\bon this host \(|\bdiagnostic information for host: |(?i:(?:host|node)name)\s?[:=]\s?)"
        r"(?P<name>[\w.-]+)",
        r"(?P<before>^Linux )(?P<name>[\w.-]+)(?= \d+\.\d+)",
    )
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IP = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
#: Identifiers by their form, with what is put in their place. An address has the form of a version of four
#: numbers; it is one where a port follows, its place tells so, or it begins as no version does.
_FORMS = (
    (re.compile(r"(?<=://)[^/\s:@<]+(?::[^/\s@]*)?@[^/\s:@<]+"), "<credentials>@<host>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"), "<email>"),
    (re.compile(rf"\b(?:GPU|MIG)-(?:GPU-)?{_UUID}(?:/\d+/\d+)?(?![0-9A-Fa-f])"), "<gpu-uuid>"),
    (re.compile(rf"(?<![0-9A-Fa-f]){_UUID}(?![0-9A-Fa-f])"), "<uuid>"),
    (re.compile(r"\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b"), "<mac>"),
    (re.compile(rf"(?<![\w.]){_IP}(?=:\d{{2,5}}\b|/\d{{1,2}}\b| port\b)"), "<ip>"),
    (
        re.compile(
            r"(?i)(?P<before>//|\b(?:inet|from|address|addr:?|peer|server|connect\w* to|listen\w* on) )"
            rf"{_IP}(?![\w.])"
        ),
        r"\g<before><ip>",
    ),
    (re.compile(rf"(?<![\w.=-])(?:1[0-9]\d|2[0-4]\d|25[0-5])(?:\.{_OCTET}){{3}}(?![\w.])"), "<ip>"),
    (re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])"), "<ip>"),
    (
        # With `::` in it; names of C++ have the form too, but no digit that begins a part.
        re.compile(
            r"(?<![\w:.])(?=[0-9A-Fa-f:]*\d)(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}(?![\w:])"
        ),
        "<ip>",
    ),
    # Of a container; what follows `sha256:` is the digest of something that everybody has.
    (re.compile(r"(?<![0-9A-Za-z:=])[0-9a-f]{64}(?![0-9A-Za-z])"), "<container>"),
    (
        re.compile(
            r"(?P<before>(?i:\bcontainer(?:[ _]id)?[ =:\"']+)|^)(?=[0-9a-f]*\d)[0-9a-f]{12}(?=[\s\"',:]|$)",
            re.MULTILINE,
        ),
        r"\g<before><container>",
    ),
    (
        re.compile(
            r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|hf_\w{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
            r"|xox[abp]-[\w-]{10,}|eyJ[\w-]{6,}\.[\w-]+\.[\w-]*)"
        ),
        "<token>",
    ),
    (
        re.compile(r"(?i)(?P<before>\bserial(?: number)?\s*(?:[:=]\s*|(?<=number)\s+(?=[\w-]*\d)))[^\s<]\S*"),
        r"\g<before><serial>",
    ),
    (
        re.compile(
            r"(?i)(?P<before>\b[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential)[\w-]*\s*[=:]\s*"
            r"|--[\w-]*(?:token|secret|passw(?:or)?d|api-?key) +|\b(?:bearer|basic) (?=\S{8}))"
            r"[^\s,;'\"<]+"
        ),
        r"\g<before><secret>",
    ),
)


class Redaction:
    """Takes the same names out of several texts: what one of them gives away goes from all.

    names: to be taken out besides those that are found. Redacting what is redacted changes nothing.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        found = (name for text in texts for name in _named_in(_without_forms(text)))
        given = [name.strip(".- ") for name in (*names, *_local_names(), *found)]
        # A machine is called by the first part of its name too.
        known = {name for whole in given for name in (whole, whole.partition(".")[0]) if _telling(name)}
        longest_first = sorted(known, key=lambda name: (-len(name), name))
        either = "|".join(re.escape(name) for name in longest_first)
        self._names = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])") if known else None

    def __call__(self, text: str) -> str:
        """The text without names of people and machines, UUIDs, serials, addresses and credentials."""
        text = _without_forms(text)
        for pattern in (*_HOMES, _USERS):
            text = pattern.sub(r"\g<before><user>", text)
        text = _PROMPT.sub("<user>@<host>", text)
        for pattern in _HOSTS:
            text = pattern.sub(r"\g<before><host>", text)
        return self._names.sub("<name>", text) if self._names else text


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """One text by itself, see `Redaction`."""
    return Redaction([text], names)(text)


def _without_forms(text: str) -> str:
    home = str(Path.home())
    if home not in ("/", "/root"):
        text = re.sub(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])", "~", text)
    for pattern, instead in _FORMS:
        text = pattern.sub(instead, text)
    return text


def _named_in(text: str) -> Iterator[str]:
    for pattern in (*_HOMES, _USERS, *_HOSTS):
        for match in pattern.finditer(text):
            yield match["name"]
    for match in _PROMPT.finditer(text):
        yield from (match["user"], match["host"])


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
    return len(name) >= _SHORTEST and name.lower() not in _COMMON and not name.isdecimal()
