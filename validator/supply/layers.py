"""Make the layers of new locks, for the shared layer table."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..assemble.layer_table import SharedRow
from .checkout import copied, refuse_installed

FILE = "images/layers.json"
_COMMAND = ("validator", "lock", "--profile", "nightly", "--layers")


def refreshed(root: Path) -> dict[str, str]:
    """Return the new content of images/layers.json, with rows for the layers that have none so far.

    Downloads the wheels of these layers. Raises MissingError if that fails or the disk is full.
    """
    refuse_installed(root)
    with copied(root) as copy:
        copy.run(*_COMMAND)
        return {FILE: (copy.path / FILE).read_text(encoding="utf-8")}


def versions(text: str) -> dict[str, str]:
    """Return the digests of the layers in the table, shortened to 12 digits, by their names and keys."""
    rows = msgspec.json.decode(text or "[]", type=tuple[SharedRow, ...])
    return {f"{row.name} (row {row.key[:12]})": row.digest[:19] for row in rows}
