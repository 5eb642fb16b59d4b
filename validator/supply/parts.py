"""The parts that `refresh` brings up to date: facts, Python packages, bases, Debian packages and layers."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, MissingError
from ..resources import root_directory
from ..system.files import write_atomically
from ..system.package_sources import host_sources
from . import bases, debian_packages, layers, python_packages, release_facts
from .news import STABLE, Asked

ROOT = root_directory()


@dataclass(frozen=True)
class Options:
    """Options of all parts.

    check: only say what is new, without finding out what changes because of it.
    today: the date for rows that are written. asked (only for facts): the kinds of TensorFlow releases to
    ask for. keep (only for python): keep versions that are still allowed. if_gone (only for debian): change
    only what can no longer be downloaded. say: called with each line of progress.
    """

    check: bool
    today: datetime.date
    say: Callable[[str], None]
    asked: Asked = STABLE
    keep: bool = False
    if_gone: bool = False


@dataclass(frozen=True)
class Changes:
    """The changes that a part would make.

    files: new content by path relative to the root. lines: what a reviewer reads; empty if nothing is new.
    """

    files: Mapping[str, bytes]
    lines: tuple[str, ...]


Part = Callable[[Options], Changes]


def pinned(refreshed: Mapping[str, str], versions: Callable[[str], dict[str, str]], root: Path) -> Changes:
    """Return the changes of files with pinned versions.

    refreshed: their new content by path. versions: reads names and versions from such content.
    """
    files: dict[str, bytes] = {}
    lines: list[str] = []
    for path, text in refreshed.items():
        file = root / path
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        if old != text:
            files[path] = text.encode()
            what = difference(versions(old), versions(text)) or [
                "the same versions, but other hashes or markers"
            ]
            lines += [f"{path}:", *(f"  {line}" for line in what)]
    return Changes(files, tuple(lines))


def _facts(options: Options) -> Changes:
    sources = host_sources()
    if options.check:
        return Changes({}, release_facts.new_on_index(sources, options.asked, options.today))
    return Changes(*release_facts.refreshed(ROOT, sources, options.asked, options.today, options.say))


def _python(options: Options) -> Changes:
    found = python_packages.refreshed(ROOT, host_sources(), upgrade=not options.keep)
    return pinned(found, python_packages.versions, ROOT)


def _bases(_: Options) -> Changes:
    return pinned(bases.refreshed(ROOT), bases.versions, ROOT)


def _debian(options: Options) -> Changes:
    found = debian_packages.refreshed(ROOT, only_if_gone=options.if_gone)
    return pinned(found, debian_packages.versions, ROOT)


def _layers(_: Options) -> Changes:
    return pinned(layers.refreshed(ROOT), layers.versions, ROOT)


FACTS = "facts"
#: All parts. The facts come first: they say for which Pythons there must be bases, and bring new locks.
PARTS: Mapping[str, Part] = {
    FACTS: _facts, "python": _python, "bases": _bases, "debian": _debian, "layers": _layers,
}  # fmt: skip


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


def refresh(
    parts: Mapping[str, Part],
    options: Options,
    *,
    root: Path,
    write: bool,
    show: Callable[[str], None],
    complain: Callable[[str], None],
) -> int:
    """Refresh the parts, show what a reviewer reads, and return the exit code.

    A part that needs something that is missing does not stop the others; `complain` is called with the error.
    """
    changed = missing = False
    for name, part in parts.items():
        try:
            changes = part(options)
            if write:
                _write(root, changes.files.items())
        except MissingError as error:
            complain(f"{name}: {error}" + (f"\n  {error.hint}" if error.hint else ""))
            missing = True
            continue
        changed = changed or bool(changes.lines)
        for line in changes.lines:
            show(line)
    if not changed and not missing:
        show(f"up to date: {', '.join(parts)}")
        if FACTS in parts:
            show("not asked: what NVIDIA publishes about drivers, GPUs and cuDNN, which people read")
    if missing:
        return EXIT_MISSING
    return EXIT_FAILED if changed and options.check else EXIT_OK


def _write(root: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for path, content in files:
        write_atomically(root / path, content)
