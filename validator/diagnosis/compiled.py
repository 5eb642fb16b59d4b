"""Read the data that the diagnosis is made with. It is compiled from the YAML files in `data/`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

#: The data that people edit, and the file that `python -m validator.diagnosis.compile` makes from it.
DATA = Path(__file__).parent / "data"
PATH = DATA / "compiled.json"


@functools.cache
def section(name: str) -> Any:
    """Return one part of the data: `messages`, `causes`, `conditions`, `report`, `cuda_errors` or
    `older`."""
    return _document()[name]


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PATH.read_bytes())
    return document
