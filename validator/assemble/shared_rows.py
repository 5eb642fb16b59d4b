"""The layer table that is shared: `layers.json`, next to the locks.

Each row says what the layer was made from, so that anyone can make it again from these wheels and compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ..errors import InputError
from ..system.files import write_atomically
from . import encoding
from .layers import Encoded, LayerSource, layer_key

FILE = "layers.json"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]


class SharedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A layer that was made.

    name: for people. recipe: of its encoding. made_from, read_from: as in `LayerSource`; they contain the
    SHA-256 of the wheels.
    """

    name: str
    recipe: str
    made_from: tuple[str, ...]
    digest: _Digest
    size: Annotated[int, Meta(ge=0)]
    diff_id: _Digest
    media_type: str
    read_from: tuple[str, ...] = ()
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, source: LayerSource, made: Encoded) -> SharedRow:
        return cls(
            source.name, encoding.RECIPE, source.made_from, made.digest, made.size, made.diff_id,
            made.media_type, source.read_from, dict(made.annotations),
        )  # fmt: skip

    @property
    def key(self) -> str:
        """The key in a layer table."""
        return layer_key(self.recipe, self.made_from)

    @property
    def wheels(self) -> tuple[str, ...]:
        """The SHA-256 of the wheels from which the layer can be made again."""
        return self.read_from or tuple(part for part in self.made_from if _SHA256.fullmatch(part))

    @property
    def encoded(self) -> Encoded:
        return Encoded(self.digest, self.size, self.diff_id, self.media_type, self.annotations)


def read_rows(path: Path) -> tuple[SharedRow, ...]:
    """Return the rows of a shared table; none without the file. Raises InputError if it is not valid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[SharedRow, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a table of layers: {error}") from error


def write_rows(path: Path, rows: Iterable[SharedRow]) -> None:
    """Write a shared table: sorted by name, one row a line, so that changes can be reviewed."""
    lines = [msgspec.json.encode(row).decode() for row in sorted(rows, key=lambda row: (row.name, row.key))]
    write_atomically(path, ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode())
