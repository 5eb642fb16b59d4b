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

#: Separates the names in a scheduler's list of nodes.
_LIST = re.compile(r"(?:\[[^\]]*\]?)?,|\[[^\]]*\]?")
#: The most texts that a `Redaction` remembers. More texts than this would all be stripped twice, since they
#: are read again in the same order; this is more than most reports have, and still bounds the memory.
_REMEMBERED = 20_000


class Redaction:
    """Take the same names out of several texts: a name that is found in one of them is taken out of all.

    names: to take out in addition. Redacting a text again changes nothing.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        # Most texts are read twice: for the names in them, and to take names out.
        self._stripped = functools.lru_cache(_REMEMBERED)(_stripped)
        found = (name for text in dict.fromkeys(texts) for name in _names(self._stripped(text)))
        given = [name.strip(".- ") for name in (*names, *_local_names(), *found)]
        # A machine is also known by the first part of its name.
        known = {*given, *(name.partition(".")[0] for name in given)}
        # Common words are only taken out of the places that hold names.
        self._names = KnownNames(
            name for name in known if name.lower() not in COMMON and not name.isdecimal()
        )

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
    stripped, home = text, _home()
    if home is not None and str(home) not in ("/", "/root"):
        stripped = re.sub(rf"(?<![\w./-]){re.escape(str(home))}(?![\w.-])", "~", stripped)
    for pattern, instead in IDENTIFIERS:
        stripped = pattern.sub(instead, stripped)
    return _Stripped(text, stripped)


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


#: Names have at least this many characters, and are looked up by their first ones.
SHORTEST = 3
#: No name of a person or a machine is longer.
_LONGEST = 255
_BEGINNING = re.compile(r"(?<![A-Za-z0-9])(?=\S)")


class KnownNames:
    """Replaces names wherever they are whole words, in upper or lower case. The longer of two names counts.

    A pattern with an alternative for each name would try all of them at each place.
    """

    def __init__(self, names: Iterable[str]) -> None:
        #: The names by their first characters, then by their length, longest first.
        self._names: dict[str, dict[int, set[str]]] = {}
        for name in sorted(map(_lowered, names), key=len, reverse=True):
            if SHORTEST <= len(name) <= _LONGEST:
                self._names.setdefault(name[:SHORTEST], {}).setdefault(len(name), set()).add(name)

    def replaced(self, text: str, instead: str) -> str:
        """Return the text with `instead` in the place of each name."""
        if not self._names:
            return text
        lowered = _lowered(text)
        parts, end = [], 0
        for match in _BEGINNING.finditer(lowered):
            start = match.start()
            lengths = self._names.get(lowered[start : start + SHORTEST])
            if lengths is None or start < end:
                continue
            for length, names in lengths.items():
                stop = start + length
                following = lowered[stop : stop + 1]
                # Skip it if the word goes on after the name.
                if lowered[start:stop] in names and not (following.isascii() and following.isalnum()):
                    parts += [text[end:start], instead]
                    end = stop
                    break
        return "".join([*parts, text[end:]])


def _lowered(text: str) -> str:
    """Return the text in lower case, with as many characters as before."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


# Places in a text that contain names of people and machines: home directories, prompts, the system log,
# variables, the output of `id`, `uname` and `ps`.

#: The replacements, without their angle brackets.
PLACEHOLDERS = (
    "user", "host", "name", "email", "credentials", "gpu-uuid", "uuid", "mac", "ip", "token", "serial",
    "secret", "container",
)  # fmt: skip
#: Words that occur in such places and identify nobody.
COMMON = {
    *PLACEHOLDERS,
    "root", "users", "home", "ubuntu", "debian", "localhost", "admin", "jovyan", "runner", "app", "work",
    "tf", "gpu", "node", "docker", "nobody", "default", "public", "test", "python", "conda", "tensorflow",
    "nvidia", "linux", "windows", "kernel", "cuda", "cudnn", "xla", "keras", "numpy", "pip", "usr", "opt",
    "lib", "bin", "tmp", "var", "venv", "env", "src", "workspace", "project", "data", "model", "train",
    "error", "warning", "failed", "info", "cpu", "driver", "device", "library", "line", "file", "true",
    "false", "none", "null", "self", "unknown", "local", "server", "client", "worker", "master", "main",
    "all", "any", "str", "int", "titan", "tesla", "quadro", "geforce", "ampere", "hopper", "volta",
    "pascal", "turing", "ada", "rtx", "gtx", "amd", "intel", "ryzen", "xeon", "ubuntu2204", "wsl", "colab",
    "kaggle", "jupyter", "notebook", "anaconda", "miniconda", "conda-forge", "mambaforge", "desktop",
    "laptop", "workstation", "repo",
}  # fmt: skip
#: Mount points that are named after their content, not after their owner.
_MOUNTS = (
    "[a-z]|azureml|backups?|batch|cache|cdrom|cloud|cluster|common|data\\w*|disks?|drive|efs|external|fast|fsx|gcs"
    "|gdrive|gpfs|hdd|homes?|local|lustre|models?|nas|nfs|nvme|pool|opt|projects?|public|pvc?|raid|resource|s3|scratch|shared?"
    "|slow|srv|ssd|storage|tank|te?mp|usb|users?|usr|var|volumes?|vol|windows|work|workspace|wslg?|zfs"
)
#: Directories next to home directories.
_SHARED = (
    "(?:ana|mini)?conda|(?:mini|mamba)forge|v?envs?|containers?|images?|jobs?|logs?|slurm[\\w-]*|software"
)
_NAME = r"[A-Za-z_][\w.-]*"
#: Places that always hold a name.
ALWAYS = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        # A name that contains blanks ends at the next backslash.
        (r"(?P<before>\b[A-Za-z]:\\{1,2}Users\\{1,2})(?P<name>[^/\\:'\"<>|\n]+)(?=\\)", "<user>"),
        (
            # Clusters group home directories by team or first letter.
            r"(?P<before>/homes?\d*/(?:(?:users?|staff|students?|people|faculty|corp|grad|[a-z0-9])/)?|/[Uu]sers/"
            r"|/afs/(?:[\w.-]+/){1,6}users?/(?:[a-z]/){0,3}|\b[A-Za-z]:\\{1,2}Users\\{1,2})"
            # Not the group of a home directory whose name is already replaced.
            r"(?P<name>[^/\\\s:'\"<>|]+)(?![^/\\\s:'\"<>|])(?!/<user>)",
            "<user>",
        ),
        (r"(?P<before>\b[ug]id=\d+\()(?P<name>[A-Za-z_][\w.-]*)", "<user>"),
        (
            # The system log.
            r"(?P<before>^[^\S\n]*(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]+) )"
            r"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|[IWEF])\b)"
            r"(?P<name>[\w.-]+)(?= [\w./()-]+(?:\[\d+\])?:)",
            "<host>",
        ),
        (
            # TensorFlow's diagnostics; variables.
            r"(?P<before>\bon this host \(|\bdiagnostic information for host: "
            r"|(?i:(?:host|node)name)[\"']?\s?[:=]\s?[\"']?)"
            r"(?P<name>[\w.-]+)",
            "<host>",
        ),
        (
            # A scheduler's list of nodes: `gpu[01-04],login1`.
            r"(?P<before>\b(?i:\w*node_?list)[\"']?\s?[=:]\s?[\"']?)(?=[\w.-]*[\[,])(?P<name>[A-Za-z][\w.,\[\]-]*)",
            "<host>",
        ),
        (
            # uname, and not the name of a distribution.
            r"(?P<before>^Linux )(?!(?:Ubuntu|Debian|Mint|Fedora|CentOS|Rocky|AlmaLinux|openSUSE) )"
            r"(?P<name>[\w.-]+)(?= \d+\.\d+)",
            "<host>",
        ),
    )
)
#: Places that may also hold a word that is not a name: `user=None`, `host=localhost`, `/mnt/data`.
MOSTLY = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        (rf"(?P<before>/mnt/|/(?:run/)?media/)(?!(?i:{_MOUNTS})\d*(?![\w.-]))(?P<name>{_NAME})", "<user>"),
        (
            rf"(?P<before>/scratch\d*/(?:users?/|[a-z]/)?)(?!(?i:{_MOUNTS}|{_SHARED})\d*(?![\w.-]))"
            # Not a file in that directory.
            rf"(?P<name>{_NAME}(?=/)|[A-Za-z_][\w-]*(?![\w.-]))",
            "<user>",
        ),
        (r"(?P<before>(?<![\w/.~])~)(?P<name>[a-z][\w-]{2,})(?=/)", "<user>"),
        (
            r"(?i)(?P<before>\b(?:\w*_)?(?:user(?:[ _-]?name)?|logname|login|owner)[\"']?\s*=\s*[\"']?"
            r"|[\"'](?:\w*_)?(?:user(?:[ _-]?name)?|logname|login|owner)[\"']\s*:\s*[\"'])"
            rf"(?P<name>{_NAME})(?![\w.(\[])",
            "<user>",
        ),
        (
            rf"(?i)(?P<before>\buser(?:[ _-]?name)?[ \t]*:[ \t]+)(?P<name>{_NAME})(?=[ \t]*(?:$|[,;|)]))",
            "<user>",
        ),
        (rf"(?P<before>\bwhoami[ \t]*\r?\n)(?P<name>{_NAME})(?=[ \t]*\r?$)", "<user>"),
        (
            rf"(?P<before>\b(?:run|started|submitted|launched|owned) by )(?P<name>{_NAME})"
            r"(?= on (?:host|node|machine)\b)",
            "<user>",
        ),
        (
            r"(?i)(?P<before>\b(?:\w*_)?(?:host|node|nodelist)[\"']?\s*=\s*[\"']?"
            r"|[\"'](?:host|node)[\"']\s*:\s*[\"'])"
            r"(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)(?![\w.(])",
            "<host>",
        ),
        (
            r"(?P<before>^[^\S\n]*(?:Host|Node)[ \t]*:[ \t]+)(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)"
            r"(?=[ \t]*$|/)",
            "<host>",
        ),
        # TF_CONFIG; variables and options of schedulers and engines.
        (r"(?P<before>[\"'])(?P<name>[A-Za-z][\w.-]*)(?=:\d{4,5}[\"'])", "<host>"),
        (
            r"(?P<before>\b(?:POD|NODE|HOST)_NAME=|--hostname[= ])(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)",
            "<host>",
        ),
        (r"(?P<before>\bSuccessfully assigned \S+ to )(?P<name>[\w.-]+)", "<host>"),
        # An ordinary word after it is usually not a name: `on host memory`.
        (
            r"(?P<before>\bon (?:the )?(?:host|node|machine) )"
            r"(?=[\w.-]*(?:[\d-]|\.\w))(?P<name>[A-Za-z][\w.-]*\w)",
            "<host>",
        ),
    )
)
_JOB = r"^[ \t]*\d+(?:_\d+)?[ \t]+\S+[ \t]+\S+[ \t]+"
#: Rows of `ps aux`, `ls -l` and `squeue`. Names are learned here, and taken out wherever they occur.
ROWS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"^(?P<name>{_NAME})\+?\s+\d+\s+\d+\.\d\s+\d+\.\d\s",
        rf"^[dlcbps-][rwxsStT-]{{9}}[.+@]?\s+\d+\s+(?P<name>{_NAME})\s",
        rf"^[dlcbps-][rwxsStT-]{{9}}[.+@]?\s+\d+\s+\S+\s+(?P<name>{_NAME})\s",
        # Job, partition, name, user, state, time, number of nodes, nodes.
        rf"{_JOB}(?P<name>{_NAME})[ \t]+(?:R|CG|PD|S)[ \t]+(?:\d+-)?\d+:[\d:]+[ \t]+\d+[ \t]",
        rf"{_JOB}\S+[ \t]+(?:R|CG|S)[ \t]+(?:\d+-)?\d+:[\d:]+[ \t]+\d+[ \t]+(?P<name>{_NAME})[ \t]*$",
    )
)
#: What has the form of a user at a host: a cell of this project, and the digest of an image.
_NOBODY = (
    r"(?!tf\d[\w.]{1,24}(?:\+[a-z\d.]{8,40})?-(?:cpu|cuda[\w.]{1,8}-cudnn[\w.]{1,8})-py3\d{1,2}[\w.-]{0,64}"
    r"@(?:no-gpu|r\d{3}[\d.]{0,10}-[a-z\d][a-z\d.-]{0,40})(?![\w.-]*[\w-])|[\w.-]{1,128}@sha256:[0-9a-f])"
)
PROMPT = re.compile(
    # A host name contains a letter; `python@3.11` is a version.
    rf"(?<![\w./@:+-]){_NOBODY}(?P<user>[A-Za-z_][\w.-]{{0,31}})"
    r"@(?P<host>(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{0,62})(?=[:~ \])]|$)",
    re.MULTILINE,
)
#: The same where it can only be a prompt, not a mail address.
SHELL = re.compile(
    rf"(?<![\w./@:+-]){_NOBODY}(?P<user>[A-Za-z_][\w.-]{{0,31}})@(?P<host>[A-Za-z0-9][\w.-]{{0,62}})"
    r"(?=:[~/]| [~/][^\n]*\][$#])"
)
COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
