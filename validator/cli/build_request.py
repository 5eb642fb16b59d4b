"""The request to `build-matrix`, and which of its options contradict each other."""

from __future__ import annotations

import os
from collections.abc import Callable
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


@dataclass(frozen=True)
class _Conflict:
    """Options that contradict others.

    when: the others. options: those that can't be given then, by their parameters; none if `when` says it
    all. message: the sentence, without the option that it starts with if there are `options`; it may name
    `{on}`.
    """

    when: Callable[[Request], object]
    options: tuple[str, ...]
    message: str


#: A rehearsal has its own store, keys and trust file, and does every step.
_NOT_REHEARSED = (
    "store_url", "engine_name", "layout", "keep_going", "no_validate", "retag", "mount_from", "builder_key",
    "identity", "issuer", "trust_path", "pull_from", "challenge", "challenges_path", "force", "on",
    "fleet_path", "dry_run",
)  # fmt: skip
_CONFLICTS = (
    _Conflict(lambda asked: asked.rehearse, _NOT_REHEARSED, "can't be combined with --rehearse"),
    _Conflict(lambda asked: not asked.rehearse, ("keep",), "has no effect without --rehearse"),
    _Conflict(
        lambda asked: asked.with_fleet,
        ("no_validate", "layout", "keep_going"),
        "can't be combined with --on {on}",
    ),
    _Conflict(
        lambda asked: asked.with_fleet and not asked.push and not asked.pull_from,
        (),
        "--on {on} needs --push or --pull-from: nodes pull the images by digest",
    ),
    _Conflict(lambda asked: not asked.with_fleet, ("fleet_path", "dry_run"), "has no effect with --on local"),
    _Conflict(
        lambda asked: asked.no_validate,
        ("depth", "challenge", "challenges_path"),
        "has no effect with --no-validate",
    ),
    _Conflict(
        lambda asked: asked.challenge is not None and asked.challenges_path is not None,
        (),
        "--challenge and --challenges can't be combined",
    ),
    _Conflict(
        lambda asked: asked.layout is not None,
        ("push", "pull_from", "retag", "depth", "challenge"),
        "can't be combined with --oci",
    ),
    _Conflict(
        lambda asked: asked.engine_name == "venv",
        ("base", "layout"),
        "has no effect with --engine venv",
    ),
    _Conflict(
        lambda asked: not asked.push,
        ("mount_from", "builder_key", "identity", "issuer"),
        "has no effect without --push",
    ),
    _Conflict(
        lambda asked: (asked.identity is None) != (asked.issuer is None),
        (),
        "--identity and --issuer belong together",
    ),
    _Conflict(lambda asked: not asked.push, ("retag",), "has no effect without --push"),
    _Conflict(lambda asked: asked.push and asked.pull_from, (), "--push and --pull-from can't be combined"),
    _Conflict(
        lambda asked: asked.pull_from and asked.no_validate,
        (),
        "--pull-from and --no-validate can't be combined: nothing would be left to do",
    ),
    _Conflict(
        lambda asked: asked.engine_name == "venv" and (asked.push or asked.pull_from),
        (),
        "--engine venv builds no images for a registry: use --engine docker",
    ),
)


def check(asked: Request) -> None:
    """Raise UsageError if options contradict each other."""
    for conflict in _CONFLICTS:
        if conflict.when(asked):
            message = conflict.message.format(on=asked.on)
            if not conflict.options:
                raise click.UsageError(message)
            reject_options(conflict.options, message)
