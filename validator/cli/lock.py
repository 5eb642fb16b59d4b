"""`lock`: resolve image specs and write their locks, or check the existing locks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_INPUT, EXIT_OK, InputError
from ..model.lock import Lock
from ..model.prediction import Outcome
from ..model.spec import ImageSpec
from ..reports.printable import counted
from ..system.sources import host_sources
from .options import matrix_option, print_status, profile_option, select_option, verbose_option

if TYPE_CHECKING:
    from ..locks.files import LockDirectory


@click.command("lock")
@matrix_option
@profile_option
@select_option
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a lock is missing or does not satisfy its spec."
)
@click.option("--upgrade", is_flag=True, help="Resolve again, even what is already locked.")
@verbose_option
def command(
    matrix_path: Path, profile: str | None, selectors: tuple[str, ...], check: bool, upgrade: bool
) -> int:
    """Write images/locks/<image spec>.txt: the exact wheels of each image, with their hashes."""
    if check and upgrade:
        raise click.UsageError("--check and --upgrade can't be combined: --check writes nothing")
    from .planning import load_plan, locks_of

    specs = load_plan(matrix_path, profile, selectors).images
    locks = locks_of(matrix_path)
    return _check(locks, specs) if check else _write(locks, specs, upgrade)


def _check(locks: LockDirectory, specs: tuple[ImageSpec, ...]) -> int:
    from ..pipeline.locking import stale

    wrong = 0
    for spec in specs:
        try:
            reasons = stale(locks, spec)
        except InputError as error:
            reasons = [str(error)]
        wrong += bool(reasons)
        for reason in reasons:
            print_status(f"{spec}: {reason}")
    print_status(f"{len(specs) - wrong} of {counted(len(specs), 'lock')} up to date")
    if wrong:
        print_status("  hint: run `python -m validator lock` with the same options to update them")
    return EXIT_INPUT if wrong else EXIT_OK


def _write(locks: LockDirectory, specs: tuple[ImageSpec, ...], upgrade: bool) -> int:
    from ..pipeline.locking import ensure_lock

    sources = host_sources()
    written = 0
    for number, spec in enumerate(specs, start=1):
        locked = ensure_lock(locks, spec, sources, lambda _: None, upgrade=upgrade)
        written += locked.written
        size = f"{counted(len(locked.lock.wheels), 'wheel')}, {locked.lock.size / 1e6:,.0f} MB"
        print_status(f"[{number}/{len(specs)}] {spec}: {locked.why} ({size})")
        for warning in _warnings(spec, locked.lock):
            print_status(f"  Warning: {warning}")
    print_status(f"{counted(written, 'lock')} written, {len(specs) - written} unchanged")
    return EXIT_OK


def _warnings(spec: ImageSpec, lock: Lock) -> list[str]:
    """Return why the packages of the lock are known to break the GPU on every machine."""
    from ..compat.predict import of_image

    if spec.additions is None or not spec.variant.has_cuda:
        return []
    reasons = of_image(spec, {wheel.name: wheel.version for wheel in lock.wheels})
    return [reason.text for reason in reasons if reason.outcome is Outcome.FAILS]
