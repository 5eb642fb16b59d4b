"""Digests of values, for identifiers of rows that have no other."""

from __future__ import annotations

import hashlib

from ..model import codec

#: The hex digits of a digest in an identifier.
_LENGTH = 12


def digest_of(*values: object) -> str:
    """Return 12 hex digits of a digest of values that JSON can express: the same for the same values."""
    return hashlib.sha256(codec.canonical(list(values))).hexdigest()[:_LENGTH]
