"""`lock`: resolve image specs and write their locks, or check those that are there."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_INPUT, EXIT_OK, InputError
from ..model.spec import ImageSpec
from .options import matrix_option, profile_option, say, select_option, verbose_option


@click.command("lock")
@matrix_option
@profile_option
@select_option
@click.option("--check", is_flag=True, help="Write nothing; fail if a lock no longer satisfies its spec.")
@click.option("--upgrade", is_flag=True, help="Resolve anew even what is locked already.")
@verbose_option
def command(
    matrix_path: Path, profile: str | None, selectors: tuple[str, ...], check: bool, upgrade: bool
) -> int:
    """Write images/locks/<image spec>.txt: the exact wheels of each image, with their hashes."""
    if check and upgrade:
        raise click.UsageError("--check writes nothing and --upgrade writes; give one of them")
    from .planning import locks_directory, planned

    specs = planned(matrix_path, profile, selectors).images
    directory = locks_directory(matrix_path)
    return _check(directory, specs) if check else _write(directory, specs, upgrade)


def _check(directory: Path, specs: tuple[ImageSpec, ...]) -> int:
    from ..pipeline.locking import stale

    wrong = 0
    for spec in specs:
        try:
            reasons = stale(directory, spec)
        except InputError as error:
            reasons = [str(error)]
        wrong += bool(reasons)
        for reason in reasons:
            say(f"{spec}: {reason}")
    say(f"{len(specs) - wrong} locks satisfy their specs, {wrong} do not")
    if wrong:
        say("  hint: run `python -m validator lock` with the same options")
    return EXIT_INPUT if wrong else EXIT_OK


def _write(directory: Path, specs: tuple[ImageSpec, ...], upgrade: bool) -> int:
    from ..pipeline.locking import ensure_lock
    from ..system.sources import host_sources

    sources = host_sources()
    written = 0
    for number, spec in enumerate(specs, start=1):
        locked = ensure_lock(directory, spec, sources, lambda _: None, upgrade=upgrade)
        written += locked.written
        megabytes = f"{len(locked.lock.wheels)} wheels, {locked.lock.size / 1e6:,.0f} MB"
        say(f"[{number}/{len(specs)}] {spec}: {locked.why} ({megabytes})")
    say(f"{written} locks written, {len(specs) - written} unchanged")
    return EXIT_OK
