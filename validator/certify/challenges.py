"""Challenges: random numbers that a measurement has to repeat, so that an old measurement can't be reused.

Whoever certifies makes one for each cell and run, and accepts a measurement only with a challenge of its
own that no other record has used. The time when it was made is known to the certifier, so a measurement can't
claim to be older than its challenge.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from ..errors import InputError, MissingError
from ..model import codec
from ..model.codec import DocumentError, format_timestamp, now_utc, parse_timestamp
from ..system.files import machine_directory, make_machine_directory, read_file

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
