"""Decide what a database's error means: whether to try again, and what to tell people."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from ..errors import InputError, MissingError, ValidatorError
from ..system.files import full_disk, says_full_disk
from .connect import Database

#: SQLSTATEs (https://www.postgresql.org/docs/current/errcodes-appendix.html) of temporary errors: the server
#: is stopping or starting, has no connection left, or let another transaction go first.
_PASSING = {"57P01", "57P02", "57P03", "53300", "40001", "40P01"}
_CONNECTION_CLASS = "08"
#: The same while connecting, when libpq passes on the server's message without its SQLSTATE.
_PASSING_WORDS = (
    "the database system is starting up",
    "the database system is shutting down",
    "the database system is in recovery mode",
    "too many clients",
    "remaining connection slots",
)
_GRANT = (
    "let the database's owner create the tables with `records import --store URL /dev/null`, then: GRANT"
    " SELECT, INSERT ON records TO <user>; GRANT SELECT ON records_schema TO <user>"
)
_PARAMETERS = "correct the parameters after the ? in --store; they are libpq's"
#: What the server or libpq says -> what to do.
_HINTS = (
    (
        "password authentication failed",
        "check the user and the password, which PGPASSWORD or ~/.pgpass can contain",
    ),
    ("no password supplied", "set PGPASSWORD, or write the password into ~/.pgpass"),
    ("does not exist", "create it with createdb and createuser, or correct --store"),
    ("invalid connection option", _PARAMETERS),
    ("invalid sslmode value", _PARAMETERS),
    ("does not support SSL", _PARAMETERS),
    ("permission denied", _GRANT),
    ("must be owner", _GRANT),
    ("read-only transaction", "this server is a replica; name the one that accepts writes"),
)
_UNREACHED = "check that the server runs and can be reached from here; no incomplete record was written"


def passes(error: DBAPIError, *, opened: bool) -> bool:
    """Tell whether the same attempt may succeed in a moment.

    opened: the store was reached before. A server that never answered has a wrong name or is down, which is
    reported at once; one that answered before is worth waiting for.
    """
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _PASSING or state.startswith(_CONNECTION_CLASS)
    if opened and _is_connection_loss(error):
        return True
    return any(words in str(error.orig) for words in _PASSING_WORDS)


def explain(error: DBAPIError, database: Database) -> ValidatorError:
    """Return the error for people. It has no password: neither libpq nor the server quotes one."""
    # `str(error)` would show the statement and its values.
    text = " ".join(str(error.orig).split())
    location = database.location
    if says_full_disk(text) or "disk I/O error" in text:
        return full_disk(location)
    if database.is_server:
        return MissingError(f"{location}: {text}", hint=_server_hint(error, text))
    if "not a database" in text or "malformed" in text:
        return InputError(
            f"{location}: not a store of records ({text})",
            hint="name another one with --store; `records salvage` gets the records out of a damaged one",
        )
    return MissingError(f"{location}: {text}", hint="check the store, or name another one with --store")


def _server_hint(error: DBAPIError, text: str) -> str:
    for words, hint in _HINTS:
        if words in text:
            return hint
    if _is_connection_loss(error) or passes(error, opened=True):
        return _UNREACHED
    return "check the store, or name another one with --store"


def _is_connection_loss(error: DBAPIError) -> bool:
    # psycopg gives no SQLSTATE when the error isn't an answer of the server.
    without_answer = getattr(error.orig, "sqlstate", "") is None
    return without_answer and type(error.orig).__name__ in ("OperationalError", "ConnectionTimeout")
