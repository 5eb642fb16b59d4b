"""The hooks that check this project's own commits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from .support import ROOT


def files() -> Iterator[str]:
    """Yield every file of the working tree, as git names it."""
    for directory, names, found in os.walk(ROOT):
        names[:] = [name for name in names if name not in (".git", ".venv")]
        yield from ((Path(directory) / name).relative_to(ROOT).as_posix() for name in found)


def test_every_hook_that_names_files_finds_some() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    patterns = {hook["id"]: hook["files"] for hook in local["hooks"] if "files" in hook}
    assert {"hadolint", "shellcheck", "zizmor"} <= set(patterns)
    here = list(files())
    idle = [name for name, pattern in patterns.items() if not any(re.search(pattern, file) for file in here)]
    assert idle == []
