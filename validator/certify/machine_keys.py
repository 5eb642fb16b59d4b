"""The keys of this machine: one signs what it measures, another one signs what it builds.

They have no password, since nobody is there to type it at night. So only their owner can read them, and what
is measured runs in a container that can't reach them.
"""

from __future__ import annotations

import stat
from pathlib import Path

from ..errors import InputError
from ..system.files import machine_directory, make_machine_directory
from .signatures import Signer, make_key_pair
from .trust import read_key

_RUNNER, _BUILDER = "runner", "builder"


def runner_signer() -> Signer | None:
    """Return the signer of this machine's measurements, or None if it has no key yet.

    Raises InputError if others can read the key.
    """
    return _signer(_RUNNER)


def builder_signer() -> Signer | None:
    """Return the signer of the provenance of what this machine builds, or None if it has no key yet.

    Raises InputError if others can read the key.
    """
    return _signer(_BUILDER)


def make_runner_key(*, throw_away: bool = False) -> Signer:
    """Make the key for measurements. throw_away: mark it as made for a test, see `Trust.fixtures`.

    Raises InputError if there is one already, and MissingError if cosign or the directory is missing.
    """
    return _make(_RUNNER, throw_away)


def make_builder_key(*, throw_away: bool = False) -> Signer:
    """Make the key for provenance; otherwise like `make_runner_key`."""
    return _make(_BUILDER, throw_away)


def public_key_of(signer: Signer) -> str:
    """Return the public key, in PEM, that belongs to a key of this machine. Raises InputError."""
    return read_key(Path(str(signer.key)).with_suffix(".pub"))


def _signer(role: str) -> Signer | None:
    path = machine_directory() / f"{role}.key"
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


def _make(role: str, throw_away: bool) -> Signer:
    private, _ = make_key_pair(make_machine_directory() / role, "", throw_away=throw_away)
    return Signer(key=str(private), password="")
