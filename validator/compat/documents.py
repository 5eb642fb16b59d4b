"""Reading the project's own data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

#: With libyaml it takes a fifth of the time.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    """What is in a YAML file. Raises OSError and yaml.YAMLError."""
    return yaml.load(path.read_bytes(), Loader=_LOADER)
