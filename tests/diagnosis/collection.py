"""The real cases to examine the diagnosis with: some told as facts, some with the text that was pasted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def load(folder: str) -> Mapping[str, Mapping[str, Any]]:
    """The cases in a folder by the stem of their file."""
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((HERE / folder).glob("*.yaml"))
    }


PUBLIC = load("cases")
HELD_OUT = load("held_out")
