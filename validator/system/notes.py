"""Notes of what has to be cleaned up: small files, written to disk before the thing itself is created."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingError
from .files import full_disk_named


@dataclass
class Note:
    """One thing to clean up, in a file. content: texts by name."""

    path: Path
    content: dict[str, str]

    @property
    def age_s(self) -> float:
        """Seconds since the note was last written."""
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0

    def write(self, **fields: str) -> None:
        """Add to the note, and return once it is on the disk. Raises MissingError if it can't be written."""
        content = {**self.content, **fields}
        try:
            with full_disk_named(self.path):
                write_note(self.path, content)
        except OSError as error:
            raise MissingError(
                f"{self.path}: can't be written: {error.strerror}",
                hint="notes of what a run has to clean up are stored there; set XDG_STATE_HOME to a directory"
                " that you may write to",
            ) from error
        self.content = content

    def erase(self) -> None:
        """Remove the note, because there is nothing left to clean up."""
        self.path.unlink(missing_ok=True)


def write_note(path: Path, content: dict[str, str]) -> None:
    """Write a file that is completely on the disk when this returns."""
    partial = path.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_note(path: Path) -> dict[str, str]:
    """Return the content of a file. Raises OSError, and ValueError if it is not a note."""
    content: Any = json.loads(path.read_bytes())
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise ValueError(f"{path} is not a note")
    return content
