"""`lock`: resolve image specs and write their locks, or check the existing locks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..assemble.shared_rows import FILE, read_rows
from ..errors import EXIT_INPUT, EXIT_OK, InputError
from ..model.lock import Lock
from ..model.prediction import Outcome
from ..model.spec import ImageSpec
from ..reports.printable import counted
from ..system.package_sources import host_sources
from .options import matrix_option, print_status, profile_option, select_option, verbose_option

if TYPE_CHECKING:
    from ..locks.lock_files import LockDirectory


@click.command("lock")
@matrix_option
@profile_option
@select_option
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a lock is missing or does not satisfy its spec."
)
@click.option("--upgrade", is_flag=True, help="Resolve again, even what is already locked.")
@click.option(
    "--layers",
    is_flag=True,
    help="Also write images/layers.json: the digests of the images' layers. A machine that"
    " has these rows does not make a layer that the registry has. Downloads the wheels of layers that have no"
    " row and that this machine has not made yet.",
)
@verbose_option
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    check: bool,
    upgrade: bool,
    layers: bool,
) -> int:
    """Write images/locks/<image spec>.txt: the exact wheels of each image, with their hashes."""
    for option, given in (("--upgrade", upgrade), ("--layers", layers)):
        if check and given:
            raise click.UsageError(f"--check and {option} can't be combined: --check writes nothing")
    from .planning import load_plan, locks_of

    specs = load_plan(matrix_path, profile, selectors).images
    locks = locks_of(matrix_path)
    if check:
        return _check(locks, specs)
    written = _write(locks, specs, upgrade)
    if layers:
        _share(matrix_path, written)
    return EXIT_OK


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


def _write(locks: LockDirectory, specs: tuple[ImageSpec, ...], upgrade: bool) -> list[tuple[ImageSpec, Lock]]:
    from ..pipeline.locking import ensure_lock

    sources = host_sources()
    written = 0
    found = []
    for number, spec in enumerate(specs, start=1):
        locked = ensure_lock(locks, spec, sources, lambda _: None, upgrade=upgrade)
        written += locked.written
        found.append((spec, locked.lock))
        size = f"{counted(len(locked.lock.wheels), 'wheel')}, {locked.lock.size / 1e6:,.0f} MB"
        print_status(f"[{number}/{len(specs)}] {spec}: {locked.why} ({size})")
        for warning in _warnings(spec, locked.lock):
            print_status(f"  Warning: {warning}")
    print_status(f"{counted(written, 'lock')} written, {len(specs) - written} unchanged")
    return found


def _share(matrix_path: Path, locked: Iterable[tuple[ImageSpec, Lock]]) -> None:
    """Write the rows of the images' layers into the shared layer table."""
    from ..assemble.layer_table import LayerTable
    from ..assemble.wheels import Wheelhouse
    from ..pipeline.sharing_layers import Image, LayerMaker, locked_images, share, without_row
    from .planning import locks_of

    locks = locks_of(matrix_path)
    path, images = locks.own.parent / FILE, locked_images(matrix_path, locks)
    house = Wheelhouse(host_sources(), local=matrix_path.parent)
    maker = LayerMaker(house, LayerTable(), print_status if sys.stderr.isatty() else lambda _: None)
    # First the rows that no image can use any more.
    added, removed = share(path, (), images)
    for spec, lock in locked:
        image, shared = Image(spec, lock), read_rows(path)
        if not without_row(image, shared):
            print_status(f"{spec}: all layers have a row")
            continue
        rows = maker.rows(image, shared)
        # After each image, so that a command that is interrupted keeps what it has done.
        new, _ = share(path, rows, images)
        added += new
        house.close()
        print_status(f"{spec}: {counted(len(rows), 'layer')}, {new} new")
    print_status(f"{path}: {counted(added, 'row')} added, {removed} removed")


def _warnings(spec: ImageSpec, lock: Lock) -> list[str]:
    """Return why the packages of the lock are known to break the GPU on every machine."""
    from ..compat.predict import of_image

    if spec.additions is None or not spec.variant.has_cuda:
        return []
    reasons = of_image(spec, {wheel.name: wheel.version for wheel in lock.wheels})
    return [reason.text for reason in reasons if reason.outcome is Outcome.FAILS]
