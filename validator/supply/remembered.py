"""Remember in the cache directory when the package index was asked, and what was new there."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence

from ..system.files import cache_directory, write_atomically

_FILE = "refresh.json"


def remember(seen: Mapping[str, Sequence[str]], now: datetime.datetime) -> None:
    """Write what was new on the index at this time. seen: versions by kind. Raises MissingError."""
    content = {
        "asked": now.isoformat(timespec="seconds"),
        "new": {kind: list(found) for kind, found in seen.items()},
    }
    write_atomically(cache_directory() / _FILE, json.dumps(content, indent=1).encode() + b"\n")


def recall() -> dict[str, list[str]]:
    """Return what was new when the index was last asked; nothing if that is not known."""
    try:
        content = json.loads((cache_directory() / _FILE).read_bytes())
        found = content["new"].items()
        return {str(kind): [str(version) for version in versions] for kind, versions in found}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The cache may be deleted or damaged at any time. The next `refresh --check` writes it again.
        return {}
