"""Write to `trust.yaml`: register a machine's key, and revoke it.

The file belongs to people, so their comments and their style stay: a line is inserted, and the result is read
again before it replaces the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from yaml import CollectionNode, MappingNode, Node, SequenceNode

from ..errors import InputError, MissingError
from ..matrix.document import keys_of, parse_document
from ..model.codec import now_utc
from ..resources import manual
from ..system.files import read_text, write_atomically
from .machine_keys import (
    builder_signer,
    make_builder_key,
    make_runner_key,
    public_key_of,
    runner_signer,
)
from .signatures import Signer
from .trust import Signatory
from .trust_file import HINT, Party, TrustFile, is_empty, read_trust_file

#: How long a machine is registered for, unless somebody says otherwise.
TERM = timedelta(days=365)
_HEADER = f"# Who may sign measurements and images. `certify` reads this file; see {manual('trust.md')}\n"
RUNNERS, BUILDERS = "runners", "builders"


@dataclass(frozen=True)
class Registration:
    """This machine's signer, if it has one, and a line for the person who started the run.

    signer: None if cosign is missing or the machine's registration has ended.
    said: None if nothing changed.
    """

    signer: Signer | None
    said: str | None = None


def register_runner(trust_path: Path, models: Sequence[str]) -> Registration:
    """Make a key for the measurements of this machine and register it, if that was not done before.

    models: the slugs of its GPU models (`h100`): it may sign for them, with every driver. Raises InputError
    if the file can't be read or changed.
    """
    return _register(trust_path, RUNNERS, tuple(f"*-{model}" for model in models))


def register_builder(trust_path: Path) -> Registration:
    """Make a key for what this machine builds and register it; otherwise like `register_runner`."""
    return _register(trust_path, BUILDERS, ())


def _register(trust_path: Path, section: str, host_classes: tuple[str, ...]) -> Registration:
    role, work = (
        ("runner", "What is measured here") if section == RUNNERS else ("builder", "What is built here")
    )
    signer = runner_signer() if section == RUNNERS else builder_signer()
    try:
        if signer is None:
            signer = make_runner_key() if section == RUNNERS else make_builder_key()
    except MissingError as error:
        return Registration(None, f"{work} can't be certified: {error}. {error.hint or ''}".rstrip(" ."))
    party = new_party(signer, host_classes=host_classes)
    found = entry_with_same_key(trust_path, party)
    if found is not None:
        since = found.silent_since(now_utc())
        return (
            Registration(None, f"{work} can't be certified: {found.name} {since}")
            if since
            else (Registration(signer))
        )
    add(trust_path, section, party)
    globs = f" for {', '.join(host_classes)}" if host_classes else ""
    return Registration(
        signer, f"Registered this machine in {trust_path} as the {role} {party.name}{globs} until"
        f" {party.until:%Y-%m-%d}",
    )  # fmt: skip


def new_party(
    signer: Signer,
    *,
    name: str | None = None,
    host_classes: Sequence[str] = (),
    until: datetime | None = None,
) -> Party:
    """Return the entry for a key of this machine.

    name: None for a name that is made from the key's fingerprint and reveals nothing about the machine.
    """
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
