"""The tables that ship with the probe, as JSON beside this module or in its archive."""

import functools
import json
import pkgutil
from typing import Any, Dict

from . import __version__


@functools.lru_cache(maxsize=None)
def table(name: str) -> Dict[str, Any]:
    """The table `data/NAME.json`. Not to be changed by who reads it."""
    content = pkgutil.get_data(__name__.rpartition(".")[0], f"data/{name}.json")
    if content is None:
        raise FileNotFoundError(f"data/{name}.json")
    found: Dict[str, Any] = json.loads(content)
    return found


# The probe's version: what it declares, plus a digest of its sources when it runs from its archive.

#: Written into the archive by whoever packs it; the host side computes the same text from the same sources.
FILE = "VERSION"


def version() -> str:
    """`1.0.0+0123456789ab` from an archive, `1.0.0+source` from a source tree."""
    try:
        packed = pkgutil.get_data(__name__.rpartition(".")[0], FILE)
    except OSError:
        packed = None
    return packed.decode().strip() if packed else __version__ + "+source"
