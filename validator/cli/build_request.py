"""The request to `build-matrix`, and which of its options contradict each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from ..registry.names import Repository
from .fleet_settings import LOCAL
from .options import reject_options


@dataclass(frozen=True)
class Request:
    """The options of `build-matrix`, by the names of their parameters."""

    matrix_path: Path
    profile: str | None
    selectors: tuple[str, ...]
    store_url: str | None
    engine_name: str
    base: str
    layout: Path | None
    jobs: int | None
    keep_going: bool
    no_validate: bool
    push: str | None
    retag: bool
    mount_from: tuple[str, ...]
    builder_key: str | None
    identity: str | None
    issuer: str | None
    trust_path: Path | None
    pull_from: str | None
    on: str
    fleet_path: Path | None
    dry_run: bool
    depth: str
    challenge: str | None
    challenges_path: Path | None
    rehearse: bool
    keep: bool
    force: bool
    format_: str

    @property
    def as_json(self) -> bool:
        return self.format_ == "json"

    @property
    def images_at_once(self) -> int:
        return self.jobs or max(1, (os.cpu_count() or 1) // 4)

    @property
    def with_fleet(self) -> bool:
        """True if a scheduler measures the images."""
        return self.on != LOCAL

    @property
    def measures_here(self) -> bool:
        """True if this machine measures the images."""
        return not (self.no_validate or self.layout or self.with_fleet)

    @property
    def fits_machine(self) -> bool:
        """True if the image is chosen for this machine, because nothing says which one to build."""
        says = self.profile or self.selectors or self.challenge or self.challenges_path or self.with_fleet
        return self.builds and not says

    @property
    def builds(self) -> bool:
        """True if images are built; otherwise they are only looked up in a registry."""
        return not (self.pull_from or self.dry_run)

    @property
    def repository(self) -> Repository | None:
        """The repository to push to or pull from. Raises InputError for a wrong name."""
        name = self.push or self.pull_from
        return Repository.parse(name) if name else None

    @property
    def other_repositories(self) -> list[Repository]:
        """The repositories to mount from. Raises InputError for a wrong name, and UsageError for one of
        another registry.
        """
        others = [Repository.parse(name) for name in self.mount_from]
        for other in others:
            if self.repository is not None and other.host != self.repository.host:
                raise click.UsageError(
                    f"--mount-from {other} is not in the registry of --push ({self.repository.host}): a"
                    " registry only takes over layers from its own repositories"
                )
        return others


#: A rehearsal has its own store, keys and trust file, and does every step.
_NOT_REHEARSED = (
    "store_url", "engine_name", "layout", "keep_going", "no_validate", "retag", "mount_from", "builder_key",
    "identity", "issuer", "trust_path", "pull_from", "challenge", "challenges_path", "force", "on",
    "fleet_path", "dry_run",
)  # fmt: skip


def check(asked: Request) -> None:
    """Raise UsageError if options contradict each other."""
    if asked.rehearse:
        reject_options(_NOT_REHEARSED, "can't be combined with --rehearse")
    else:
        reject_options(("keep",), "has no effect without --rehearse")
    if asked.with_fleet:
        reject_options(("no_validate", "layout", "keep_going"), f"can't be combined with --on {asked.on}")
        if not asked.push and not asked.pull_from:
            raise click.UsageError(
                f"--on {asked.on} needs --push or --pull-from: nodes pull the images by digest"
            )
    else:
        reject_options(("fleet_path", "dry_run"), "has no effect with --on local")
    if asked.no_validate:
        reject_options(("depth", "challenge", "challenges_path"), "has no effect with --no-validate")
    if asked.challenge is not None and asked.challenges_path is not None:
        raise click.UsageError("--challenge and --challenges can't be combined")
    if asked.layout is not None:
        reject_options(("push", "pull_from", "retag", "depth", "challenge"), "can't be combined with --oci")
    if asked.engine_name == "venv":
        reject_options(("base", "layout"), "has no effect with --engine venv")
    if not asked.push:
        reject_options(("mount_from", "builder_key", "identity", "issuer"), "has no effect without --push")
    if (asked.identity is None) != (asked.issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    if not asked.push:
        reject_options(("retag",), "has no effect without --push")
    if asked.push and asked.pull_from:
        raise click.UsageError("--push and --pull-from can't be combined")
    if asked.pull_from and asked.no_validate:
        raise click.UsageError("--pull-from and --no-validate can't be combined: nothing would be left to do")
    if asked.engine_name == "venv" and (asked.push or asked.pull_from):
        raise click.UsageError("--engine venv builds no images for a registry: use --engine docker")
