"""Repositories that are filled once and copied for each test that needs one: copying needs no signature."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from validator.registry.names import Repository

from .server import RunningRegistry

Result = TypeVar("Result")


@dataclass
class Stock:
    """The artifacts that tests have put into a registry so far."""

    server: RunningRegistry
    _filled: dict[Hashable, tuple[Repository, Any]] = field(default_factory=dict)

    def put(self, repository: Repository, what: Hashable, fill: Callable[[Repository], Result]) -> Result:
        """Put what `fill` makes into a repository, and return its result. what: a name for the content."""
        if what not in self._filled:
            place = Repository(self.server.address, f"stock/{len(self._filled)}")
            self._filled[what] = place, fill(place)
        place, result = self._filled[what]
        self._check_attached(place, repository)
        repositories = self.server.storage / "docker/registry/v2/repositories"
        shutil.copytree(repositories / place.path, repositories / repository.path, dirs_exist_ok=True)
        copied: Result = result
        return copied

    def _check_attached(self, place: Repository, repository: Repository) -> None:
        """Fail if the copy would replace a list of what is attached to an image by a list that lacks some."""
        new, old = self.server.tags(place.path), self.server.tags(repository.path)
        for tag in new.keys() & old.keys():
            if tag.startswith("sha256-"):
                assert self._listed(old[tag]) <= self._listed(new[tag]), f"{repository} has more in {tag}"

    def _listed(self, digest: str) -> set[str]:
        """Return the digests in an index."""
        name = digest.removeprefix("sha256:")
        file = self.server.storage / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"
        return {entry["digest"] for entry in json.loads(file.read_bytes())["manifests"]}
