"""The command of `scripts/refresh`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, MissingError, ValidatorError
from ..system.files import write_atomically
from ..system.sources import host_sources
from . import bases, debian_packages, python_packages

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Options:
    """keep: keep versions that are still allowed. if_gone: change only what can no longer be downloaded."""

    keep: bool
    if_gone: bool


@dataclass(frozen=True)
class Part:
    """One thing to refresh.

    refreshed: returns the new content of its files by path. versions: reads names and versions from that
    content.
    """

    refreshed: Callable[[Options], dict[str, str]]
    versions: Callable[[str], dict[str, str]]


PARTS: Mapping[str, Part] = {
    "python": Part(
        lambda options: python_packages.refreshed(ROOT, host_sources(), upgrade=not options.keep),
        python_packages.versions,
    ),
    "bases": Part(lambda _: bases.refreshed(ROOT), bases.versions),
    "debian": Part(
        lambda options: debian_packages.refreshed(ROOT, only_if_gone=options.if_gone),
        debian_packages.versions,
    ),
}


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each name whose version differs: `uv 0.13.8 -> 0.13.9`, `added`, `removed`."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None:
            lines.append(f"{name} {new} added")
        elif new is None:
            lines.append(f"{name} {old} removed")
        elif old != new:
            lines.append(f"{name} {old} -> {new}")
    return lines


def refresh(names: tuple[str, ...], options: Options, *, write: bool) -> int:
    """Refresh the parts, print the difference, and return the exit code.

    A part that can't be refreshed does not stop the others.
    """
    changed = missing = False
    for name in names or tuple(PARTS):
        part = PARTS[name]
        try:
            files = part.refreshed(options)
        except MissingError as error:
            print(f"{name}: {error}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
            missing = True
            continue
        for path, text in files.items():
            file = ROOT / path
            old = file.read_text(encoding="utf-8") if file.exists() else ""
            if old == text:
                continue
            changed = True
            lines = difference(part.versions(old), part.versions(text)) or [
                "the same versions, but other hashes or markers"
            ]
            print("\n".join([f"{path}:", *(f"  {line}" for line in lines)]))
            if write:
                write_atomically(file, text.encode())
    if not changed and not missing:
        print("everything is up to date")
    if missing:
        return EXIT_MISSING
    return EXIT_FAILED if changed and not write else EXIT_OK


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(tuple(PARTS)))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option(
    "--keep", is_flag=True, help="python: keep the locked versions that pyproject.toml still allows."
)
@click.option(
    "--if-gone", is_flag=True, help="debian: change a lock only if its packages can no longer be downloaded."
)
def main(parts: tuple[str, ...], check: bool, keep: bool, if_gone: bool) -> None:
    """Refresh what is pinned by hash, and show the difference.

    PARTS are `python` (requirements/ and images/uv.txt), `bases` (images/bases.yaml) and `debian`
    (images/debian/); by default, all of them.
    """
    try:
        code = refresh(parts, Options(keep, if_gone), write=not check)
    except ValidatorError as error:
        print(f"{error}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        code = error.exit_code
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="scripts/refresh")
