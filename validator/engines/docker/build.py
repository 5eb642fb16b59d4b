"""Runs `docker buildx bake` for one image."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...assemble.host_requirements import tables
from ...assemble.progress import Progress
from ...model.lock import Lock
from ...model.spec import ImageSpec
from ...system import processes
from ...system.files import full_disk_named
from ...system.runs import temporary_directory
from ...system.sources import PackageSources
from .bake import TARGET, Base, Compression, Order, bake_document
from .buildlog import BuildLog
from .endpoint import Buildx
from .failures import explain_build
from .groups import group_wheels, requirements
from .secrets import write_secrets
from .uv_binary import pinned_uv

#: A build that takes longer hangs: the slowest one so far took five minutes.
_TIMEOUT_S = 3 * 3600


@contextmanager
def order_files(
    spec: ImageSpec,
    lock: Lock,
    base: Base,
    tools: Base,
    sources: PackageSources,
    compression: Compression,
    cache: str | None = None,
) -> Iterator[Order]:
    """Yield the order with its build contexts and secrets, in a directory that is deleted afterwards."""
    # The directory contains secrets. Only this user can read it.
    with full_disk_named(tempfile.gettempdir()), temporary_directory("build") as directory:
        contexts = {part: directory / part for part in ("requirements", "uv", "facts", "secrets")}
        for path in contexts.values():
            path.mkdir()
        for group, wheels in group_wheels(lock, spec.variant).items():
            (contexts["requirements"] / f"{group}.txt").write_text(requirements(wheels), encoding="utf-8")
        (contexts["facts"] / "tables").write_text(tables(), encoding="utf-8")
        _link_or_copy(pinned_uv(sources), contexts["uv"] / "uv")
        yield Order(
            spec, lock, base, tools, contexts["requirements"], contexts["uv"], contexts["facts"],
            write_secrets(sources, contexts["secrets"]), compression, cache,
        )  # fmt: skip


def bake(
    order: Order,
    buildx: Buildx,
    sources: PackageSources,
    progress: Progress,
    engine_answers: Callable[[], bool],
) -> None:
    """Build an image. It gets its name only when it is complete.

    Raises the error that `explain_build` returns for a failure.
    """
    log = _bake(order, buildx, sources, progress)
    if log is not None and log.name_was_taken:
        # Another process tagged the same image at the same time. The second build finds all layers.
        log = _bake(order, buildx, sources, progress)
    if log is not None:
        raise explain_build(str(order.spec), log, sources, answers=engine_answers())


def _bake(order: Order, buildx: Buildx, sources: PackageSources, progress: Progress) -> BuildLog | None:
    """Build once. Return the log if the build fails."""
    log = BuildLog(lambda line: progress(sources.redact(line)))
    command = [*buildx.argv, "--builder", buildx.builder, "bake", "--file", "-", "--progress", "plain"]
    if buildx.takes_allow:
        paths = {order.images, order.requirements, order.uv, order.facts, *order.secrets.values()}
        command += ["--allow=network.host", *(f"--allow=fs.read={path}" for path in sorted(paths))]
    result = processes.run(
        [*command, TARGET],
        input=json.dumps(bake_document(order)).encode(),
        on_line=log.feed,
        timeout_s=_TIMEOUT_S,
    )
    return None if result.ok else log


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
