"""The workflows as they are read from their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support import read_yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


@dataclass(frozen=True)
class Workflow:
    """One file. triggers: the events under `on`."""

    name: str
    text: str
    content: dict[str, Any]

    @property
    def triggers(self) -> dict[str, Any]:
        # YAML 1.1 reads the key `on` as true.
        found = self.content[True]  # type: ignore[index]
        return found if isinstance(found, dict) else {found: None}

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.content["jobs"]
        return found

    @property
    def steps(self) -> list[tuple[str, dict[str, Any]]]:
        """Every step with the job that it belongs to."""
        return [(name, step) for name, job in self.jobs.items() for step in job.get("steps", [])]


def workflow(name: str) -> Workflow:
    text = (WORKFLOWS / name).read_text(encoding="utf-8")
    return Workflow(name, text, read_yaml(text))
