"""The parts that `refresh` brings up to date: facts, Python packages, bases, Debian packages and layers."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from docker.errors import DockerException
from requests import RequestException

from ..assemble.base_finder import TAG, PinnedBase, text_of
from ..assemble.layer_table import SharedRow
from ..compat.compile import read_yaml
from ..engines.docker.endpoint import reach
from ..errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, MissingError
from ..resources import root_directory
from ..system.files import write_atomically
from ..system.package_sources import host_sources
from ..versions import Version
from . import debian_packages, python_packages, release_facts
from .news import STABLE, Asked
from .release_facts import copied, refuse_installed

ROOT = root_directory()
BASES, LAYERS = "images/bases.yaml", "images/layers.json"
#: The probe needs Python 3.9 or newer.
_OLDEST = Version("3.9")


@dataclass(frozen=True)
class Options:
    """Options of all parts.

    check: only say what is new, without finding out what changes because of it. today: the date for rows that
    are written. asked (only for facts): the kinds of TensorFlow releases to ask for. keep (only for python):
    keep versions that are still allowed. if_gone (only for debian): change only what can no longer be
    downloaded. say: called with each line of progress.
    """

    check: bool
    today: datetime.date
    say: Callable[[str], None]
    asked: Asked = STABLE
    keep: bool = False
    if_gone: bool = False


@dataclass(frozen=True)
class Changes:
    """The changes of a part: new content by path relative to the root, and what a reviewer reads."""

    files: Mapping[str, bytes]
    lines: tuple[str, ...]


Part = Callable[[Options], Changes]


def pinned(refreshed: Mapping[str, str], versions: Callable[[str], dict[str, str]], root: Path) -> Changes:
    """Return the changes of files. refreshed: new content by path. versions: reads names and versions."""
    files: dict[str, bytes] = {}
    lines: list[str] = []
    for path, text in refreshed.items():
        file = root / path
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        if old != text:
            files[path] = text.encode()
            what = difference(versions(old), versions(text))
            what = what or ["the same versions, but other hashes or markers"]
            lines += [f"{path}:", *(f"  {line}" for line in what)]
    return Changes(files, tuple(lines))


def _facts(options: Options) -> Changes:
    sources = host_sources()
    if options.check:
        return Changes({}, release_facts.new_on_index(sources, options.asked, options.today))
    return Changes(*release_facts.refreshed(ROOT, sources, options.asked, options.today, options.say))


def pythons(root: Path) -> list[str]:
    """Return the Pythons that images may have: those with a wheel of some TensorFlow, oldest first.

    Read from the facts as they are edited, to which the same run may just have added a release.
    """
    rows = read_yaml(root / "validator/compat/data/tensorflow.yaml")["releases"]
    found = {python for row in rows for python in row["pythons"]}
    return sorted((python for python in found if Version(python) >= _OLDEST), key=Version)


def refreshed_bases(root: Path) -> dict[str, str]:
    """Return the new images/bases.yaml. Raises MissingError without the Docker Engine or the registry."""
    api = reach().quick.api
    bases: dict[str, PinnedBase] = {}
    for python in pythons(root):
        name = TAG.format(python)
        try:
            digest = str(api.inspect_distribution(name)["Descriptor"]["digest"])
        except (DockerException, RequestException) as error:
            raise MissingError(
                f"the digest of {name} can't be read from its registry: {' '.join(str(error).split())[:200]}",
                hint="check the engine's network and proxy settings",
            ) from error
        base = PinnedBase.parse(f"{name}@{digest}")
        if base is None:
            raise MissingError(f"the registry returned an invalid digest for {name}: {digest[:100]}")
        bases[python] = base
    return {BASES: text_of(bases)}


def base_versions(text: str) -> dict[str, str]:
    """Return the bases in the file with their digests, shortened to 12 digits."""
    lines = [line.partition(": ")[2] for line in text.splitlines() if not line.startswith("#")]
    return {base.name: base.digest[:19] for base in map(PinnedBase.parse, lines) if base}


def refreshed_layers(root: Path) -> dict[str, str]:
    """Return images/layers.json with new layers. Raises MissingError if a wheel can't be downloaded."""
    refuse_installed(root)
    with copied(root) as copy:
        copy.run("validator", "lock", "--profile", "nightly", "--layers")
        return {LAYERS: (copy.path / LAYERS).read_text(encoding="utf-8")}


def layer_versions(text: str) -> dict[str, str]:
    """Return the digests of the layers in the table, shortened to 12 digits, by their names and keys."""
    rows = msgspec.json.decode(text or "[]", type=tuple[SharedRow, ...])
    return {f"{row.name} (row {row.key[:12]})": row.digest[:19] for row in rows}


def _python(options: Options) -> Changes:
    found = python_packages.refreshed(ROOT, host_sources(), upgrade=not options.keep)
    return pinned(found, python_packages.versions, ROOT)


def _debian(options: Options) -> Changes:
    found = debian_packages.refreshed(ROOT, only_if_gone=options.if_gone)
    return pinned(found, debian_packages.versions, ROOT)


FACTS = "facts"
#: All parts. The facts come first: they say for which Pythons there must be bases, and bring new locks.
PARTS: Mapping[str, Part] = {
    FACTS: _facts,
    "python": _python,
    "bases": lambda _: pinned(refreshed_bases(ROOT), base_versions, ROOT),
    "debian": _debian,
    "layers": lambda _: pinned(refreshed_layers(ROOT), layer_versions, ROOT),
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
                for path, content in changes.files.items():
                    write_atomically(root / path, content)
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
