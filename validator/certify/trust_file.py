"""Read `trust.yaml`, next to `matrix.yaml`, and write to it: who may sign, and which limits are refused.

The file is read from the certifier's own checkout, never from an artifact: whoever can change it decides what
is certified. It belongs to people, so their comments and their style stay when a machine's key is registered
or revoked: a line is inserted, and the result is read again before it replaces the file.

A machine has one key for what it measures, and another one for what it builds. They have no password, since
nobody is there to type it at night. So only their owner can read them, and what is measured runs in a
container.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from yaml import CollectionNode, MappingNode, Node, SequenceNode

from ..errors import InputError, MissingError
from ..matrix.document import (
    Document,
    EmptyFile,
    MatrixError,
    check_shape,
    keys_of,
    parse_document,
    quote,
    read_document,
    unknown_name,
)
from ..matrix.document import Path as Place
from ..matrix.schema import Axis, Text
from ..model.codec import now_utc
from ..model.record import Source
from ..problems import CATALOGUE, LIMIT
from ..resources import manual
from ..system.files import machine_directory, make_machine_directory, read_text, write_atomically
from .signatures import Signer, make_key_pair
from .trust import THROW_AWAY, Party, Signatory, TrustFile, public_pem, read_key

#: The file's name, next to the matrix.
NAME = "trust.yaml"
_HEADER = f"# Who may sign measurements and images. `certify` reads this file; see {manual('trust.md')}\n"
#: The sections of the file. A machine has one key for what it measures, and one for what it builds.
RUNNERS, BUILDERS = "runners", "builders"
_ROLES = {RUNNERS: "runner", BUILDERS: "builder"}
#: How long a machine is registered for, unless somebody says otherwise.
TERM = timedelta(days=365)
HINT = f"{manual('reference/trust-file.md')} describes the file"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PEM = re.compile(
    rf"\s*({re.escape(THROW_AWAY)}\s+)?"
    r"-----BEGIN PUBLIC KEY-----\s+[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----\s*"
)
_GLOB = re.compile(r"[a-z0-9.*+-]+")
#: The facts from outside that have to be allowed. What the host itself reads always counts.
_SOURCES = (Source.NODE_LABELS.value,)
#: The codes of the limits that a probe can report.
_LIMITS = tuple(code for code, kind in CATALOGUE.items() if kind.severity == LIMIT)


def read_trust_file(path: Path) -> TrustFile:
    """Read the file. Raises InputError, with the line of each problem."""
    if not path.exists():
        raise InputError(
            f"{path}: does not exist, so nobody may sign measurements or images",
            hint="pass --trust with the file that lists the runners and builders that you trust, or write it;"
            f" `runner init --register` adds the runner of a machine; {HINT}",
        )
    try:
        return _parties(read_document(path))
    except EmptyFile:
        return TrustFile()
    except MatrixError as error:
        raise InputError(str(error), hint=HINT) from None


def is_empty(path: Path) -> bool:
    """Tell whether the reader of YAML finds nothing but comments in the file."""
    try:
        read_document(path)
    except MatrixError as error:
        return isinstance(error, EmptyFile)
    return False


# The shape of the file.


_NOT_REVOKED = datetime.max.replace(tzinfo=timezone.utc)


class _Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Text = ""
    identity: Text = ""
    issuer: Text = ""


# Not a kind of _Release: messages list the keys in this order.
class _Builder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Text
    key: Text = ""
    identity: Text = ""
    issuer: Text = ""
    until: datetime
    revoked: datetime = _NOT_REVOKED


class _Runner(_Builder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    host_classes: Axis
    outside: Axis = []


_Parties = Annotated[list[_Builder], Meta(max_length=1000)]
_Runners = Annotated[list[_Runner], Meta(max_length=1000)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    release: _Release = _Release()
    builders: _Parties = []
    runners: _Runners = []
    refuse_limits: Axis = []


def _parties(document: Document) -> TrustFile:
    content = check_shape(document, _File)
    document.raise_problems()
    given = isinstance(document.root, MappingNode) and "release" in keys_of(document.root)
    release = _signatory(content.release, ("release",), document) if given else None
    found = {
        section: tuple(_party(entry, (section, index), document) for index, entry in enumerate(entries))
        for section, entries in ((BUILDERS, content.builders), (RUNNERS, content.runners))
    }
    document.raise_problems()
    _refuse_repeats(release, found, document)
    for index, code in enumerate(content.refuse_limits):
        if code not in _LIMITS:
            document.report(("refuse_limits", index), unknown_name(code, _LIMITS))
    document.raise_problems()
    return TrustFile(release, found[BUILDERS], found[RUNNERS], tuple(content.refuse_limits))


def _party(entry: _Builder, place: Place, document: Document) -> Party:
    if not _NAME.fullmatch(entry.name):
        document.report((*place, "name"), f"{quote(entry.name)} is not a name: use letters, digits, . _ -")
    globs, sources = (entry.host_classes, entry.outside) if isinstance(entry, _Runner) else ([], [])
    for index, glob in enumerate(globs):
        if not _GLOB.fullmatch(glob):
            message = f'{quote(glob)} is not a host class (such as "r580-h100", or "*-h100" for every driver)'
            document.report((*place, "host_classes", index), message)
    for index, source in enumerate(sources):
        if source not in _SOURCES:
            document.report((*place, "outside", index), unknown_name(source, _SOURCES))
    revoked = None if entry.revoked == _NOT_REVOKED else entry.revoked
    known = tuple(Source(source) for source in sources if source in _SOURCES)
    signatory = _signatory(entry, place, document)
    return Party(entry.name, signatory, entry.until, revoked, tuple(globs), known)


def _signatory(entry: _Release | _Builder, place: Place, document: Document) -> Signatory:
    given = {name for name in ("key", "identity", "issuer") if getattr(entry, name)}
    if given == {"key"}:
        try:
            is_key = _PEM.fullmatch(entry.key) is not None and bool(public_pem(entry.key))
        except InputError:
            is_key = False
        if not is_key:
            message = "not a public key in PEM: it begins with -----BEGIN PUBLIC KEY-----"
            document.report((*place, "key"), message)
        return Signatory(key=f"{entry.key.strip()}\n")
    if given == {"identity", "issuer"}:
        return Signatory(identity=entry.identity, issuer=entry.issuer)
    document.report(place, "needs either a key, or an identity and its issuer")
    return Signatory()


def _refuse_repeats(
    release: Signatory | None, found: dict[str, tuple[Party, ...]], document: Document
) -> None:
    """Report names and signers that are given twice: it would not be clear which entry revokes a key.

    The release signer may have the identity of a builder, because one workflow may be both, unless that is
    revoked: the release signer can't be.
    """
    names: set[str] = set()
    keys = {release.signer} if release is not None and release.key is not None else set[str]()
    placed = (((section, index), one) for section in found for index, one in enumerate(found[section]))
    for place, party in placed:
        if party.name in names:
            document.report((*place, "name"), f"the name {quote(party.name)} is given twice")
        names.add(party.name)
        if release is not None and party.revoked is not None and party.signatory == release:
            document.report(("release",), f"its identity is revoked as that of {quote(party.name)}")
        if party.signatory.key is not None:
            signer = party.signatory.signer
            message = "this key is given twice; each role needs a key of its own"
        else:
            signer = f"{party.signatory.identity}\n{party.signatory.issuer}"
            message = "this identity is given twice; each party needs one of its own"
        if signer in keys:
            document.report((*place, "key" if party.signatory.key is not None else "identity"), message)
        keys.add(signer)


def own_signer(section: str) -> Signer | None:
    """Return the signer with this machine's key for a section, or None if it has no such key yet.

    Raises InputError if others can read the key.
    """
    path = machine_directory() / f"{_ROLES[section]}.key"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(
            f"{path}: other users of this machine can use this key (mode {stat.S_IMODE(mode):04o})",
            hint=f"if nobody did, run `chmod 600 {path}`; otherwise revoke it (`certify revoke`), remove it"
            " and make another with `runner init`",
        )
    return Signer(key=str(path), password="")


def make_own_key(section: str, *, throw_away: bool = False) -> Signer:
    """Make this machine's key for a section. throw_away: mark it as made for a test, see `Trust.fixtures`.

    Raises InputError if there is one already, and MissingError if cosign or the directory is missing.
    """
    prefix = make_machine_directory() / _ROLES[section]
    private, _ = make_key_pair(prefix, "", throw_away=throw_away)
    return Signer(key=str(private), password="")


def public_key_of(signer: Signer) -> str:
    """Return the public key, in PEM, that belongs to a key of this machine. Raises InputError."""
    return read_key(Path(str(signer.key)).with_suffix(".pub"))


@dataclass(frozen=True)
class Registration:
    """This machine's signer, and a line for the person who started the run; None if nothing changed.

    signer: None if cosign is missing or the machine's registration has ended.
    """

    signer: Signer | None
    said: str | None = None


def register(trust_path: Path, section: str, models: Sequence[str] = ()) -> Registration:
    """Make this machine's key for a section and register it, if that was not done before.

    models: the slugs of the GPU models of a runner (`h100`): it may sign for them, with every driver. Raises
    InputError if the file can't be read or changed.
    """
    if bool(models) != (section == RUNNERS):
        raise ValueError("a runner signs for GPU models, and a builder for none")
    host_classes = tuple(f"*-{model}" for model in models)
    failed = f"What is {'measured' if section == RUNNERS else 'built'} here can't be certified"
    signer = own_signer(section)
    try:
        signer = signer or make_own_key(section)
    except MissingError as error:
        return Registration(None, f"{failed}: {error}. {error.hint or ''}".rstrip(" ."))
    party = new_party(signer, host_classes=host_classes)
    found = entry_with_same_key(trust_path, party)
    if found is not None:
        since = found.silent_since(now_utc())
        return Registration(None, f"{failed}: {found.name} {since}") if since else Registration(signer)
    add(trust_path, section, party)
    globs = f" for {', '.join(host_classes)}" if host_classes else ""
    return Registration(
        signer, f"Registered this machine in {trust_path} as the {_ROLES[section]} {party.name}{globs} until"
        f" {party.until:%Y-%m-%d}",
    )  # fmt: skip


def new_party(
    signer: Signer,
    *,
    name: str | None = None,
    host_classes: Sequence[str] = (),
    until: datetime | None = None,
) -> Party:
    """Return the entry for a key of this machine. name: by default one that reveals nothing."""
    signatory = Signatory(key=public_key_of(signer))
    short = signatory.signer.removeprefix("sha256:")[:8]
    kind = "runner" if host_classes else "builder"
    end = until or (now_utc() + TERM).replace(hour=0, minute=0, second=0, microsecond=0)
    return Party(name or f"{kind}-{short}", signatory, end, host_classes=tuple(host_classes))


def entry_with_same_key(trust_path: Path, party: Party) -> Party | None:
    """Return the entry with the same key, or None. Raises InputError if the file can't be read."""
    if not trust_path.exists():
        return None
    return read_trust_file(trust_path).party_of(str(party.signatory.key))


def trusts_labels(trust_path: Path, signer: Signer) -> bool:
    """Tell whether the file trusts the labels of nodes for this key's runner. Raises InputError."""
    party = entry_with_same_key(trust_path, new_party(signer))
    return party is not None and party.labels_trusted


def entry_line(party: Party) -> str:
    """Return the entry as one line of YAML, without the dash before it."""
    fields = [f"name: {party.name}"]
    if party.host_classes:
        fields.append(f"host_classes: {json.dumps(list(party.host_classes))}")
    if party.outside:
        fields.append(f"outside: [{', '.join(source.value for source in party.outside)}]")
    fields += [f"until: {_time(party.until)}", f"key: {json.dumps(party.signatory.key)}"]
    return f"{{{', '.join(fields)}}}"


def add(trust_path: Path, section: str, party: Party) -> None:
    """Add an entry to `runners` or `builders`; make the file if there is none. Raises InputError."""
    before, text = TrustFile(), _HEADER
    if trust_path.exists():
        text = read_text(trust_path)
        before = read_trust_file(trust_path)
    party = replace(party, until=party.until.replace(microsecond=0))
    entry = f"- {entry_line(party)}"
    changed = _with_entry(text, section, entry, trust_path)
    wanted = _with(before, section, (*getattr(before, section), party))
    _write(trust_path, changed, wanted, f"add this line to its {section}: {entry}")


def revoke(trust_path: Path, name: str, at: datetime) -> Party:
    """Revoke a runner or a builder from that time on, and return it.

    Raises InputError if nobody has that name, or if it was revoked from an earlier time on.
    """
    before = read_trust_file(trust_path)
    party = next((party for party in (*before.runners, *before.builders) if party.name == name), None)
    if party is None:
        known = ", ".join(party.name for party in (*before.runners, *before.builders)) or "nobody"
        raise InputError(f"{trust_path}: {name} is not registered", hint=f"the file has {known}")
    if party.revoked is not None and party.revoked <= at:
        raise InputError(f"{trust_path}: {name} was already revoked from {_time(party.revoked)} on")
    section = RUNNERS if party in before.runners else BUILDERS
    at = at.astimezone(timezone.utc).replace(microsecond=0)
    revoked = replace(party, revoked=at)
    entries = tuple(revoked if entry is party else entry for entry in getattr(before, section))
    text = read_text(trust_path)
    node = _entries(text, section, trust_path).value[getattr(before, section).index(party)]
    changed = _revoked(text, node, _time(at))
    _write(trust_path, changed, _with(before, section, entries), f"add `revoked: {_time(at)}` to {name}")
    return revoked


def _with(file: TrustFile, section: str, parties: tuple[Party, ...]) -> TrustFile:
    return replace(file, runners=parties) if section == RUNNERS else replace(file, builders=parties)


def _write(path: Path, text: str, wanted: TrustFile, instead: str) -> None:
    """Write the file, if its new text, read again, gives exactly the intended entries."""
    partial = path.with_name(f".{path.name}.new")
    write_atomically(partial, text.encode())
    try:
        found = read_trust_file(partial)
    except InputError:
        found = None
    finally:
        partial.unlink()
    if found != wanted:
        raise InputError(f"{path}: can't be changed automatically, because of its style", hint=instead)
    write_atomically(path, text.encode())


def _time(when: datetime) -> str:
    text = when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return text.removesuffix("T00:00:00Z")


# Changes to the text. Lines and columns are those of PyYAML's marks, counted from 0.


def _with_entry(text: str, section: str, entry: str, path: Path) -> str:
    lines = text.splitlines(keepends=True)
    if not path.exists() or is_empty(path):
        return f"{text}{section}:\n  {entry}\n"
    root = parse_document(text.encode(), str(path)).root
    assert isinstance(root, MappingNode)
    if section not in keys_of(root):
        return f"{text.rstrip()}\n\n{section}:\n  {entry}\n"
    node = _entries(text, section, path)
    if node.flow_style and not node.value:
        start, end = node.start_mark, node.end_mark
        head, tail = lines[start.line][: start.column].rstrip(), lines[end.line][end.column :]
        lines[start.line : end.line + 1] = [f"{head}\n  {entry}{tail or chr(10)}"]
        return "".join(lines)
    if node.flow_style:
        raise InputError(
            f"{path}: {section} is written in [ ]", hint=f"write it as a list with dashes, or add: {entry}"
        )
    return _inserted(lines, _line_after(node), f"{' ' * node.start_mark.column}{entry}\n")


def _revoked(text: str, node: Node, at: str) -> str:
    lines = text.splitlines(keepends=True)
    assert isinstance(node, MappingNode)
    if "revoked" in (keys := keys_of(node)):
        value = keys["revoked"][1]
        start, end = value.start_mark, value.end_mark
        lines[start.line] = lines[start.line][: start.column] + at + lines[end.line][end.column :]
        return "".join(lines)
    if node.flow_style:
        end = node.end_mark
        line = lines[end.line]
        lines[end.line] = f"{line[: end.column - 1].rstrip()}, revoked: {at}{line[end.column - 1 :]}"
        return "".join(lines)
    return _inserted(lines, _line_after(node), f"{' ' * node.start_mark.column}revoked: {at}\n")


def _entries(text: str, section: str, path: Path) -> SequenceNode:
    root = parse_document(text.encode(), str(path)).root
    assert isinstance(root, MappingNode)
    node = keys_of(root)[section][1]
    assert isinstance(node, SequenceNode), HINT
    return node


def _line_after(node: Node) -> int:
    """Return the line after the last value in a node."""
    while isinstance(node, CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end = node.end_mark
    # A block scalar ends at the beginning of the next line.
    return int(end.line if end.column == 0 else end.line + 1)


def _inserted(lines: list[str], at: int, line: str) -> str:
    before = "".join(lines[:at])
    return before + ("" if before.endswith("\n") else "\n") + line + "".join(lines[at:])
