"""What this machine keeps to sign and to certify: its keys, which `trust.yaml` registers, and challenges.

One key signs what the machine measures, another one what it builds. They have no password, since nobody is
there to type it at night. So only their owner can read them, and what is measured runs in a container.

`trust.yaml` belongs to people, so their comments and their style stay: a line is inserted or changed, and the
result is read again before it replaces the file.

A challenge is a random number that a measurement has to repeat, so that an old measurement can't be reused.
Whoever certifies makes one for each cell and run, and accepts a measurement only with a challenge of its own
that no other record has used. The time when it was made is known to the certifier, so a measurement can't
claim to be older than its challenge.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
from yaml import CollectionNode, MappingNode, Node, SequenceNode

from ..errors import InputError, MissingError
from ..matrix.document import keys_of, parse_document
from ..model import codec
from ..model.codec import DocumentError, format_timestamp, now_utc, parse_timestamp
from ..resources import manual
from ..system.files import machine_directory, make_machine_directory, read_file, read_text, write_atomically
from .signatures import Signer, make_key_pair
from .trust import HINT, Party, Signatory, TrustFile, is_empty, read_key, read_trust_file

#: How long a machine is registered for, unless somebody says otherwise.
TERM = timedelta(days=365)
_HEADER = f"# Who may sign measurements and images. `certify` reads this file; see {manual('trust.md')}\n"
#: The sections of the file, and of the keys of a machine: for what it measures, and for what it builds.
RUNNERS, BUILDERS = "runners", "builders"
_ROLES = {RUNNERS: "runner", BUILDERS: "builder"}


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


#: How long a challenge stays valid. By default, certificates are valid for the same time.
LIFETIME = timedelta(days=14)
_FORM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Challenge:
    """32 random bytes in hex, with what they were made for: a cell, or an image spec on any host class."""

    value: str
    asked: str
    issued: datetime

    def is_for(self, image: str, cell: str) -> bool:
        """Return True if a measurement of this cell may answer the challenge."""
        return self.asked in (image, cell)


def new_challenge(asked: str, now: datetime | None = None) -> Challenge:
    """Make a challenge. asked: the cell or the image spec that is to be measured."""
    return Challenge(secrets.token_hex(32), asked, now or now_utc())


# In a workflow, one job makes the challenges and passes them to the certifying job as a file.


class _Row(msgspec.Struct):
    id: str
    challenge: str
    issued: str


class _Rows(msgspec.Struct):
    include: list[_Row]


@dataclass
class IssuedChallenges:
    """The challenges of one run of a workflow."""

    by_value: dict[str, Challenge]
    _used: dict[str, str] = field(default_factory=dict)

    def find(self, value: str) -> Challenge | None:
        """Return the challenge with this value, if the run made it."""
        return self.by_value.get(value)

    def use(self, value: str, record: str) -> str | None:
        """Use a challenge for a record, once. Return the id of another record that has used it before.

        The same record may use it again, so that an interrupted `certify` can be repeated.
        """
        before = self._used.setdefault(value, record)
        return None if before == record else before


def read_challenges(path: Path) -> IssuedChallenges:
    """Read the cells of a workflow's plan: `{"include": [{"id": CELL, "challenge": …, "issued": …}]}`.

    Raises InputError.
    """
    try:
        rows = codec.convert(codec.parse(read_file(path)), _Rows).include
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except DocumentError as error:
        raise InputError(f"{path}: not a file of challenges: {error}", hint=_MADE_BY) from None
    found: dict[str, Challenge] = {}
    for row in rows:
        issued = parse_timestamp(row.issued)
        if not _FORM.fullmatch(row.challenge) or issued is None:
            raise InputError(f"{path}: the challenge of {row.id} can't be read", hint=_MADE_BY)
        if row.challenge in found:
            raise InputError(f"{path}: {row.id} has the challenge of another cell", hint=_MADE_BY)
        found[row.challenge] = Challenge(row.challenge, row.id, issued)
    return IssuedChallenges(found)


_MADE_BY = "`certify challenges` writes such a file"


# On a machine that both measures and certifies, or that certifies for others by hand.


class Ledger:
    """The challenges that this machine made, in its own directory. Several processes may use it at once."""

    def __init__(self) -> None:
        self.path = machine_directory() / "challenges.db"

    def issue(self, asked: str, now: datetime | None = None) -> Challenge:
        """Make a challenge and note it. Raises MissingError if it can't be noted."""
        made = new_challenge(asked, now)
        with self._open() as database:
            # A challenge that is not in the file is refused, so expired ones can be deleted.
            database.execute("DELETE FROM challenges WHERE issued < ?", (_text(made.issued - 2 * LIFETIME),))
            database.execute(
                "INSERT INTO challenges (value, asked, issued) VALUES (?, ?, ?)",
                (made.value, made.asked, _text(made.issued)),
            )
        return made

    def find(self, value: str) -> Challenge | None:
        """Return the challenge with this value, if this machine made it. Raises MissingError."""
        if not self.path.exists():
            return None
        with self._open() as database:
            row = database.execute(
                "SELECT asked, issued FROM challenges WHERE value = ?", (value,)
            ).fetchone()
        issued = parse_timestamp(row[1]) if row else None
        return Challenge(value, row[0], issued) if issued is not None else None

    def use(self, value: str, record: str) -> str | None:
        """Use a challenge for a record, once, like `IssuedChallenges.use`. Raises MissingError."""
        with self._open() as database:
            database.execute(
                "UPDATE challenges SET record = ? WHERE value = ? AND record IS NULL", (record, value)
            )
            row = database.execute("SELECT record FROM challenges WHERE value = ?", (value,)).fetchone()
        assert row is not None, "only a challenge that was found is used"
        return None if row[0] == record else str(row[0])

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which waits for those of other processes."""
        make_machine_directory()
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_TABLE)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise MissingError(
                f"{self.path}: the challenges can't be read or written: {error}",
                hint="if the file is damaged, remove it; what was measured but not certified yet has to be"
                " measured again",
            ) from error


#: The challenges that a certifier made.
Challenges = IssuedChallenges | Ledger
_TABLE = (
    "CREATE TABLE IF NOT EXISTS challenges"
    " (value TEXT PRIMARY KEY, asked TEXT NOT NULL, issued TEXT NOT NULL, record TEXT)"
)


def _text(when: datetime) -> str:
    return format_timestamp(when, "milliseconds")
