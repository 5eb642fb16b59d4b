"""RECORD: the list of a wheel's files with their hashes.

Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping
from typing import NamedTuple

#: The algorithms that RECORD may use, with the bytes of a digest. A file with an older one counts as a file
#: without a hash.
_ALGORITHMS = {"sha256": 32, "sha384": 48, "sha512": 64}
#: Digits of a size in bytes.
_LONGEST_NUMBER = 20


class RecordError(Exception):
    """RECORD is broken. The text says how."""


class RecordRow(NamedTuple):
    """The entry of one file in RECORD. digest: in hexadecimal. size: in bytes."""

    algorithm: str | None = None
    digest: str | None = None
    size: int | None = None


def parse_record(content: bytes) -> dict[str, RecordRow]:
    """Return the rows by path. Raises RecordError."""
    rows: dict[str, RecordRow] = {}
    try:
        table = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"RECORD can't be read: {error}") from None
    for fields in table:
        if not fields:
            continue
        if len(fields) != 3:
            raise RecordError(
                f"a row of RECORD has {len(fields)} columns instead of 3: {','.join(fields)[:200]}"
            )
        path, described, size = fields
        if path in rows:
            raise RecordError(f"RECORD lists {path} twice")
        if size and not (size.isascii() and size.isdigit() and len(size) <= _LONGEST_NUMBER):
            raise RecordError(f"RECORD has no number as the size of {path}: {size[:40]!r}")
        algorithm, _, encoded = described.partition("=")
        if algorithm not in _ALGORITHMS:
            rows[path] = RecordRow(size=int(size) if size else None)
            continue
        try:
            digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except ValueError:
            digest = b""
        if len(digest) != _ALGORITHMS[algorithm]:
            raise RecordError(f"RECORD has a broken hash of {path}: {described[:100]!r}")
        rows[path] = RecordRow(algorithm, digest.hex(), int(size) if size else None)
    return rows


def render_record(rows: Mapping[str, RecordRow]) -> bytes:
    """Return RECORD with these rows, sorted by path."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for path in sorted(rows):
        row = rows[path]
        encoded = ""
        if row.digest is not None:
            digest = base64.urlsafe_b64encode(bytes.fromhex(row.digest)).rstrip(b"=")
            encoded = f"{row.algorithm}={digest.decode()}"
        writer.writerow((path, encoded, "" if row.size is None else row.size))
    return out.getvalue().encode()
