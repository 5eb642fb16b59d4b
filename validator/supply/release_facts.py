"""Bring the facts up to date with the package index: inspect new releases, and write what follows."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile

import msgspec
import yaml

from ..compat import facts, inspect
from ..compat.inspect import build
from ..compat.inspect.build import ZIP_ERRORS, inspect_tensorflow
from ..errors import InputError, MissingError, ValidatorError
from ..locks.index import IndexFile, PackageIndex, sha256_of
from ..system import processes
from ..system.files import cache_directory, full_disk_named, says_full_disk, write_atomically
from ..system.package_sources import PackageSources
from ..system.runs import temporary_directory
from ..versions import Version
from .freshness import remember
from .news import Asked, NewRelease, News, cuda_release, needs_a_person, news, write_facts

# Work in a copy of the checkout, and move over what changed when everything is done. Until then, no file of
# the checkout changes, so a run that is killed leaves nothing half-written.

#: The project's directories that the steps read. Files at the top are copied as well.
_COPIED = ("validator", "images", "docs", "tests")
#: The generated files and the facts, as patterns relative to the root.
WRITTEN = (
    "validator/compat/data/*", "validator/probe/data/*.json", "validator/diagnosis/data/compiled.json",
    "images/locks/*.txt", "docs/**/*.md", "README.md",
)  # fmt: skip
_STEP_TIMEOUT_S = 1800.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Copy:
    """A copy of the checkout at `root`. Its steps are modules of the copy, run in it."""

    root: Path
    path: Path

    def run(self, *arguments: str) -> bytes:
        """Run a module in the copy, as `run_module` does."""
        return run_module(self.path, *arguments)

    def changed(self) -> list[str]:
        """Return the paths, relative to the root, of the files that differ from the checkout, in order."""
        found = []
        for pattern in WRITTEN:
            for path in sorted(self.path.glob(pattern)):
                name = str(path.relative_to(self.path))
                original = self.root / name
                if path.is_file() and (not original.is_file() or original.read_bytes() != path.read_bytes()):
                    found.append(name)
        return found


def refuse_installed(root: Path) -> None:
    """Raise InputError if `root` is not a checkout of the project."""
    if not all((root / name).is_dir() for name in _COPIED) or not (root / "matrix.yaml").is_file():
        raise InputError(
            f"`refresh` writes files of a checkout of the project, and {root} is not a checkout",
            hint="clone the repository and run scripts/refresh there; `refresh --check` works everywhere",
        )


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """Copy the checkout for steps to run in. Raises MissingError if the disk is full."""
    with temporary_directory("refresh") as directory, full_disk_named(directory):
        path = directory / "checkout"
        path.mkdir()
        try:
            for name in _COPIED:
                shutil.copytree(
                    root / name, path / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
                )
        except shutil.Error as error:
            raise MissingError(f"{root}: can't be copied: {error.args[0][0][2]}") from error
        # The transcripts of the pages name the Python that ran them.
        (path / ".venv").symlink_to(sys.prefix)
        for file in root.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, path / file.name)
        yield Copy(root, path)


def run_module(root: Path, *arguments: str) -> bytes:
    """Run `python -m` with these arguments and the code at `root`, and return its standard output.

    Raises MissingError if the step can't reach something that it needs, InputError for another failure.
    """
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    result = processes.run(
        [sys.executable, "-m", *arguments], cwd=root, env=environment, timeout_s=_STEP_TIMEOUT_S
    )
    if result.ok:
        return result.stdout
    text = result.stderr_tail.strip()
    missing = result.timed_out or result.returncode == MissingError.exit_code or says_full_disk(text)
    kind: type[ValidatorError] = MissingError if missing else InputError
    raise kind(
        f"`python -m {' '.join(arguments)}` failed:\n{text or 'it printed nothing'}",
        hint="fix this and run `refresh` again: nothing was written, and downloads and inspections are kept",
    )


# Download the wheel of a release, inspect it, and keep the row; one wheel at a time.
# A wheel stays in the cache only until it is inspected, and its row until the facts have it. So a run that
# was killed goes on where it stopped.

#: The disk space for a wheel and its largest library unpacked, as a multiple of the wheel's size. For
#: TensorFlow 2.21.0 it is 2.6, of which the library takes 1.6.
_ROOM = 3.0
#: The size of a wheel if neither the index nor the server says it: none of TensorFlow's is larger so far.
_USUAL_SIZE = 700_000_000


def refuse_small_disk(index: PackageIndex, wheels: Iterable[IndexFile], directory: Path) -> int:
    """Return the bytes that the largest needs, 0 without wheels. Raises MissingError if they are not free."""
    sizes = [index.size(wheel) or _USUAL_SIZE for wheel in wheels]
    wanted = int(max(sizes, default=0) * _ROOM)
    with full_disk_named(directory):
        directory.mkdir(parents=True, exist_ok=True)
    _refuse_small_disk(directory, wanted, f"{wanted / 1e9:.1f} GB are needed to download and inspect a wheel")
    return wanted


def inspected_row(
    index: PackageIndex, release: NewRelease, directory: Path, today: datetime.date, say: Say
) -> dict[str, Any]:
    """Return a release's row of builds.yaml. directory: where the wheel and the row are kept.

    Raises MissingError if the wheel can't be downloaded, and InspectionError if it is not a TensorFlow wheel.
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


#: The profiles whose locks are in the repository, and the one of release candidates.
LOCKED_PROFILES = ("quick", "cpu", "nightly")
CANDIDATE_PROFILE = "candidate"
#: If nothing is new, the date of the facts is moved only when they are this old, so that a quiet index does
#: not cause a change every week.
_CONFIRMED_AFTER = datetime.timedelta(days=30)

#: The modules that write the generated parts of the documentation: those of scripts/update-docs, except
#: docs.examples, which needs what only the tests install.
DOCUMENTATION = (
    "docs.causes", "docs.checks", "docs.keys", "docs.facts",
    "docs.commands", "docs.releases", "docs.starts", "docs.transcripts",
)  # fmt: skip

_DATA = Path("validator/compat/data")


def new_on_index(sources: PackageSources, asked: Asked, today: datetime.date) -> tuple[str, ...]:
    """Return lines that say what is new on the index, and remember it. Raises MissingError."""
    return tuple(_described(_asked(PackageIndex(sources), asked, today)))


def refreshed(
    root: Path, sources: PackageSources, asked: Asked, today: datetime.date, say: Say
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the new content of the files to change, by path, and the lines that a reviewer reads.

    Writes nothing below `root`. Raises MissingError if the index, the disk or a tool is missing, and
    InputError if what the index has can't become a fact.
    """
    index = PackageIndex(sources)
    found = _asked(index, asked, today)
    if not found and today - facts.read_on() < _CONFIRMED_AFTER:
        return {}, ()
    refuse_installed(root)
    with _only_one() as cache:
        wheels = [release.wheel for release in found.releases]
        wanted = tuple(wheel.filename for wheel in wheels)
        for left_over in cache.glob("*.whl*"):
            if not left_over.name.startswith(wanted):
                left_over.unlink()
        if wheels:
            room = refuse_small_disk(index, wheels, cache)
            count = "1 wheel" if len(wheels) == 1 else f"{len(wheels)} wheels"
            say(f"{count} to inspect, one at a time: needs up to {room / 1e9:.1f} GB in {cache}")
        builds = [inspected_row(index, release, cache, today, say) for release in found.releases]
    with copied(root) as copy:
        before = answers(copy.path)
        write_facts(copy.path / _DATA, index, found, builds, today)
        copy.run("validator.compat.compile")
        copy.run("validator.diagnosis.compile")
        unresolved = _lock(copy, found, say)
        say("comparing predictions")
        after = answers(copy.path)
        say("writing the documentation")
        for module in DOCUMENTATION:
            copy.run(module)
        lines = [*_described(found), *difference(before, after)]
        cudnn = [version for versions in found.cudnn.values() for version in versions]
        by_hand = [*needs_a_person(map(cuda_release, found.cuda), cudnn), *unresolved]
        if by_hand:
            lines += ["To do by hand:", *(f"  {line}" for line in by_hand)]
        names = copy.changed()
        lines += ["Files:", *(f"  {name}" for name in names)]
        files = {name: (copy.path / name).read_bytes() for name in names}
        return files, tuple(lines)


def _asked(index: PackageIndex, asked: Asked, today: datetime.date) -> News:
    """Ask the index what is new, and remember the answer."""
    found = news(index, asked)
    remember(found.as_seen(), datetime.datetime.combine(today, datetime.datetime.now().time()))
    return found


def _described(found: News) -> list[str]:
    return [
        f"{kind} {', '.join(versions)}: new on the package index"
        for kind, versions in found.as_seen().items()
    ]


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


@contextlib.contextmanager
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
    found = {}
    for cell in msgspec.json.decode(printed, type=list[_Cell]):
        outcome, reasons = cell.prediction.outcome, cell.prediction.reasons
        texts = (f"{one.text} [{one.fact}]" for one in reasons if one.outcome == outcome)
        found[cell.id] = Answer(outcome, next(texts, "no reason is given"))
    return found


def difference(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[str]:
    """Return lines on cells that change, appear or disappear, and why; equal changes are one entry."""
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
