"""The tables that ship with the probe, as JSON beside this module or in its archive."""

import functools
import json
import pkgutil
from typing import Any, Dict


@functools.lru_cache(maxsize=None)
def table(name: str) -> Dict[str, Any]:
    """The table `data/NAME.json`. Not to be changed by who reads it."""
    content = pkgutil.get_data(__name__.rpartition(".")[0], f"data/{name}.json")
    if content is None:
        raise FileNotFoundError(f"data/{name}.json")
    found: Dict[str, Any] = json.loads(content)
    return found
