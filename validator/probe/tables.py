"""The tables and the version of the probe, read from its directory or its archive."""

import functools
import json
import pkgutil
from typing import Any, Dict

from . import __version__


@functools.lru_cache(maxsize=None)
def table(name: str) -> Dict[str, Any]:
    """Return the table `data/NAME.json`, which the caller must not change."""
    content = pkgutil.get_data(__name__.rpartition(".")[0], f"data/{name}.json")
    if content is None:
        raise FileNotFoundError(f"data/{name}.json")
    found: Dict[str, Any] = json.loads(content)
    return found


#: Written into the archive by the host side, which computes the same text from the same sources.
FILE = "VERSION"


def version() -> str:
    """Return `2.0.0+0123456789ab` (with a digest of the sources), or `2.0.0+source` in a source tree."""
    try:
        packed = pkgutil.get_data(__name__.rpartition(".")[0], FILE)
    except OSError:
        packed = None
    return packed.decode().strip() if packed else __version__ + "+source"
