"""Values as JSON for a page: no text in it can end a script, or turn the direction of writing."""

from __future__ import annotations

import json
import math
from typing import Any

from ..printable import printable

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def clean(value: Any) -> Any:
    """The value with every text made printable, and with numbers that JSON has no word for as text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def script_json(value: Any) -> str:
    """JSON in ASCII without `<`, `>` and `&`, which means the same."""
    text = json.dumps(clean(value), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
