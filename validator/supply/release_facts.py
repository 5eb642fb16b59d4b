"""Bring the facts up to date with the package index: inspect new releases, and write what follows."""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile

import msgspec
import yaml

from ..compat import freshness, inspect, releases
from ..compat.inspect import build
from ..compat.inspect.build import ZIP_ERRORS, WheelFile, inspect_tensorflow, write
from ..compat.inspect.elf import InspectionError
from ..errors import InputError, MissingError
from ..locks.index import IndexFile, PackageIndex, sha256_of
from ..system.files import cache_directory, full_disk_named, write_atomically
from ..system.package_sources import PackageSources
from ..system.runs import temporary_directory
from ..versions import Version
from . import new_rows
from .checkout import Copy, copied, refuse_installed, run_module
from .new_rows import Table
from .news import Asked, NewRelease, News, cuda_release, news
from .remembered import remember

# Download the wheel of a release, inspect it, and keep the row; one wheel at a time.
#
# A wheel stays in the cache only until it is inspected, and its row until the facts have it. So a run that
# was killed goes on where it stopped.


#: The disk space for a wheel and its largest library unpacked, as a multiple of the wheel's size. For
#: TensorFlow 2.21.0 it is 2.6, of which the library takes 1.6.
_ROOM = 3.0
#: The size of a wheel if neither the index nor the server says it: none of TensorFlow's is larger so far.
_USUAL_SIZE = 700_000_000


def bytes_needed(index: PackageIndex, wheel: IndexFile) -> int:
    """Return the bytes of disk space to inspect a wheel."""
    return int((index.size(wheel) or _USUAL_SIZE) * _ROOM)


def refuse_small_disk(index: PackageIndex, wheels: Iterable[IndexFile], directory: Path) -> int:
    """Return the bytes that the largest of these wheels needs in a directory, 0 without wheels.

    Raises MissingError if they are not free.
    """
    wanted = max((bytes_needed(index, wheel) for wheel in wheels), default=0)
    with full_disk_named(directory):
        directory.mkdir(parents=True, exist_ok=True)
    _refuse_small_disk(directory, wanted, f"{wanted / 1e9:.1f} GB are needed to download and inspect a wheel")
    return wanted


def inspected_row(
    index: PackageIndex,
    release: NewRelease,
    directory: Path,
    today: datetime.date,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return the row of builds.yaml for a release.

    directory: where the wheel and the row are kept. Raises MissingError if the wheel can't be downloaded, and
    InspectionError if it is not a TensorFlow wheel.
    """
    wheel = release.wheel
    kept = directory / f"{wheel.filename}-{version_of_inspection()}.yaml"
    if kept.is_file():
        say(f"{wheel.filename}: inspected by an earlier run")
        return _read(kept)
    path = directory / wheel.filename
    if not (path.is_file() and sha256_of(path) == wheel.sha256):
        size = index.size(wheel)
        say(f"{wheel.filename}: downloading" + (f" {size / 1e6:,.0f} MB" if size else ""))
        index.download(wheel, path)
    try:
        refuse_large_library(path, directory)
        say(f"{wheel.filename}: inspecting")
        with full_disk_named(directory):
            row = build.row(inspect_tensorflow(path, scratch=directory), today)
        write_atomically(kept, build.render(row).encode())
    finally:
        path.unlink()
    return _read(kept)


def remove_unwanted(directory: Path, wanted: Iterable[IndexFile]) -> None:
    """Remove what earlier runs left of wheels that are not wanted any more."""
    names = tuple(wheel.filename for wheel in wanted)
    for path in directory.glob("*.whl*"):
        if not path.name.startswith(names):
            path.unlink()


def refuse_large_library(path: Path, directory: Path) -> None:
    """Raise MissingError if the largest library of a wheel does not fit on the disk."""
    try:
        with ZipFile(path) as archive:
            largest = max((member.file_size for member in archive.infolist()), default=0)
    except ZIP_ERRORS:
        # The inspection says what is wrong with the file.
        return
    use = f"the largest library of {path.name} takes {largest / 1e9:.1f} GB unpacked"
    _refuse_small_disk(directory, largest, use)


def _refuse_small_disk(directory: Path, wanted: int, use: str) -> None:
    """Raise MissingError if so many bytes are not free. use: what they are for, as a clause."""
    free = shutil.disk_usage(directory).free
    if wanted > free:
        raise MissingError(
            f"{directory}: {use}, but only {free / 1e9:.1f} GB are free",
            hint="free some space, or set VALIDATOR_CACHE to a directory on another disk",
        )


def _read(kept: Path) -> dict[str, Any]:
    found: list[dict[str, Any]] = yaml.safe_load(kept.read_text(encoding="utf-8"))
    return found[0]


def version_of_inspection() -> str:
    """Return a text that changes with the inspection's code, because new code may make another row."""
    digest = hashlib.sha256()
    for source in sorted(Path(inspect.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


Say = Callable[[str], None]

#: The profiles whose locks are in the repository, and the one of release candidates.
LOCKED_PROFILES = ("quick", "cpu", "nightly")
CANDIDATE_PROFILE = "candidate"
#: If nothing is new, the date of the facts is moved only when they are this old, so that a quiet index does
#: not cause a change every week.
_CONFIRMED_AFTER = datetime.timedelta(days=30)

#: The modules that write the generated parts of the documentation: those of scripts/update-docs, except
#: docs.examples, which needs what only the tests install.
DOCUMENTATION = (
    "docs.causes",
    "docs.checks",
    "docs.keys",
    "docs.facts",
    "docs.commands",
    "docs.releases",
    "docs.starts",
    "docs.transcripts",
)

_DATA = Path("validator/compat/data")


def new_on_index(sources: PackageSources, asked: Asked, today: datetime.date) -> tuple[str, ...]:
    """Return lines that say what is new on the index, and remember it. Raises MissingError."""
    found = news(PackageIndex(sources), asked)
    _remember(found, today)
    return tuple(_described(found))


def refreshed(
    root: Path, sources: PackageSources, asked: Asked, today: datetime.date, say: Say
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the new content of the files to change, by path, and the lines that a reviewer reads.

    Writes nothing below `root`. Raises MissingError if the index, the disk or a tool is missing, and
    InputError if what the index has can't become a fact.
    """
    index = PackageIndex(sources)
    found = news(index, asked)
    _remember(found, today)
    if not found and today - freshness.read_on() < _CONFIRMED_AFTER:
        return {}, ()
    refuse_installed(root)
    with _only_one() as cache:
        wheels = [release.wheel for release in found.releases]
        remove_unwanted(cache, wheels)
        if wheels:
            room = refuse_small_disk(index, wheels, cache)
            count = "1 wheel" if len(wheels) == 1 else f"{len(wheels)} wheels"
            say(f"{count} to inspect, one at a time: needs up to {room / 1e9:.1f} GB in {cache}")
        builds = [inspected_row(index, release, cache, today, say) for release in found.releases]
    with copied(root) as copy:
        before = answers(copy.path)
        _write_facts(copy.path / _DATA, index, found, builds, today)
        copy.run("validator.compat.compile")
        copy.run("validator.diagnosis.compile")
        unresolved = _lock(copy, found, say)
        say("comparing predictions")
        after = answers(copy.path)
        say("writing the documentation")
        for module in DOCUMENTATION:
            copy.run(module)
        lines = [*_described(found), *difference(before, after)]
        by_hand = [
            *new_rows.needs_a_person(
                [cuda_release(file) for file in found.cuda],
                [version for versions in found.cudnn.values() for version in versions],
            ),
            *unresolved,
        ]
        if by_hand:
            lines += ["To do by hand:", *(f"  {line}" for line in by_hand)]
        names = copy.changed()
        lines += ["Files:", *(f"  {name}" for name in names)]
        files = {name: (copy.path / name).read_bytes() for name in names}
        return files, tuple(lines)


def _described(found: News) -> list[str]:
    return [
        f"{kind} {', '.join(versions)}: new on the package index"
        for kind, versions in found.as_seen().items()
    ]


def _remember(found: News, today: datetime.date) -> None:
    now = datetime.datetime.combine(today, datetime.datetime.now().time())
    remember(found.as_seen(), now)


def _write_facts(
    data: Path, index: PackageIndex, found: News, builds: list[dict[str, Any]], today: datetime.date
) -> None:
    tensorflow, wheels = (
        Table((data / f"{name}.yaml").read_text(encoding="utf-8")) for name in ("tensorflow", "wheels")
    )
    nightly = any(Version(release.version).is_devrelease for release in found.releases)
    # A nightly build takes the place of the one before it.
    superseded = [
        old.version for old in releases.releases() if nightly and Version(old.version).is_devrelease
    ]
    for version in superseded:
        new_rows.remove_release(tensorflow, version)
    for release, inspected in zip(found.releases, builds, strict=True):
        new_rows.add_release(tensorflow, inspected, release.pythons)
    for version, pythons in found.pythons.items():
        new_rows.add_pythons(tensorflow, version, pythons)
    for file in found.cuda:
        new_rows.add_cuda(wheels, cuda_release(file), _requirements(index, file))
    for suffix, versions in found.cudnn.items():
        new_rows.add_cudnn(wheels, suffix, versions)
    new_rows.set_date(wheels, today)
    for name, table in (("tensorflow", tensorflow), ("wheels", wheels)):
        (data / f"{name}.yaml").write_text(table.text, encoding="utf-8")
    if builds:
        write(data / "builds.yaml", builds, without=superseded)
        sources = data / "sources.yaml"
        sources.write_text(new_rows.add_source(sources.read_text(encoding="utf-8")), encoding="utf-8")


def _requirements(index: PackageIndex, file: IndexFile) -> list[str]:
    """Return the requirements of a small wheel. Raises MissingError."""
    with temporary_directory("metadata") as directory:
        path = directory / file.filename
        index.download(file, path)
        try:
            with WheelFile(path) as wheel:
                return wheel.metadata().get_all("Requires-Dist", [])
        except InspectionError as error:
            raise MissingError(f"{file.filename}: its metadata can't be read: {error}") from error


def _lock(copy: Copy, found: News, say: Say) -> list[str]:
    """Write the locks of the images that the repository keeps, and return why some can't be resolved."""
    commands = [["--profile", profile] for profile in LOCKED_PROFILES]
    if any(
        Version(release.version).is_prerelease and "dev" not in release.version for release in found.releases
    ):
        commands.append(["--profile", CANDIDATE_PROFILE])
    if found.cuda or found.cudnn:
        # A lock of floating versions stays as it is unless it is resolved again.
        commands.append(["--profile", "nightly", "--select", "image=*latest*", "--upgrade"])
    failed = []
    for options in commands:
        say(f"locking: {' '.join(options)}")
        try:
            copy.run("validator", "lock", *options)
        except InputError as error:
            failed.append(" ".join(str(error).split()))
    return failed


@contextmanager
def _only_one() -> Iterator[Path]:
    """Return the directory of wheels that are inspected. Raises MissingError if another run is using it."""
    directory = cache_directory() / "refresh"
    with full_disk_named(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "wb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MissingError(
                f"another refresh is running, which uses {directory}", hint="wait until it has finished"
            ) from None
        yield directory


# Compare the predictions of two states of the facts, for whoever reviews the change.


#: The profile of matrix.yaml whose cells are compared.
PROFILE = "full"
#: How many cells are named in each group of cells with the same change.
_NAMED = 3


class _Reason(msgspec.Struct):
    outcome: str
    text: str
    fact: str


class _Prediction(msgspec.Struct):
    outcome: str
    reasons: list[_Reason]


class _Cell(msgspec.Struct):
    id: str
    prediction: _Prediction


Group = TypeVar("Group", bound=tuple[str, ...])


@dataclass(frozen=True)
class Answer:
    """The outcome of a cell, and the first reason with this outcome."""

    outcome: str
    why: str


def answers(root: Path) -> dict[str, Answer]:
    """Return the predictions of the code, the facts and the matrix at `root`, by cell."""
    printed = run_module(root, "validator", "plan", "--profile", PROFILE, "--format", "json")
    return {cell.id: _answer(cell.prediction) for cell in msgspec.json.decode(printed, type=list[_Cell])}


def difference(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[str]:
    """Return lines that say which cells change their outcome, appear or disappear, and why.

    Cells with the same change for the same reason are one entry.
    """
    changed: dict[tuple[str, str, str], list[str]] = {}
    for cell in before.keys() & after.keys():
        old, new = before[cell], after[cell]
        if old.outcome != new.outcome:
            changed.setdefault((f"{old.outcome} -> {new.outcome}", old.why, new.why), []).append(cell)
    new_cells: dict[tuple[str, str], list[str]] = {}
    for cell in after.keys() - before.keys():
        # A reviewer does not need the reasons why new cells work.
        why = "" if after[cell].outcome == "works" else after[cell].why
        new_cells.setdefault((after[cell].outcome, why), []).append(cell)
    gone = sorted(before.keys() - after.keys())
    count = sum(map(len, changed.values()))
    lines = [f"Predictions of the profile {PROFILE}: {count:,} of {len(before):,} cells change."]
    for (arrow, was, now), cells in _largest_first(changed):
        lines += [f"  {arrow}, {_cells(cells)}", f"    was: {was}", f"    now: {now}"]
    if new_cells:
        lines.append(f"New cells: {sum(map(len, new_cells.values())):,}.")
        for (outcome, why), cells in _largest_first(new_cells):
            lines += [f"  {outcome}, {_cells(cells)}", *([f"    {why}"] if why else [])]
    if gone:
        lines.append(f"Cells that are gone: {_cells(gone)}.")
    return lines


def _largest_first(groups: Mapping[Group, list[str]]) -> list[tuple[Group, list[str]]]:
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))


def _cells(cells: Iterable[str]) -> str:
    ordered = sorted(cells)
    more = f" and {len(ordered) - _NAMED:,} more" if len(ordered) > _NAMED else ""
    return f"{len(ordered):,} {'cell' if len(ordered) == 1 else 'cells'}: {', '.join(ordered[:_NAMED])}{more}"


def _answer(prediction: _Prediction) -> Answer:
    for reason in prediction.reasons:
        if reason.outcome == prediction.outcome:
            return Answer(prediction.outcome, f"{reason.text} [{reason.fact}]")
    return Answer(prediction.outcome, "no reason is given")
