"""Inspect wheels of TensorFlow: new releases, whose facts are written with what follows, and wheels of users.

A user's wheel is read like that of a release, and nothing in it is run. What was read is kept in the cache
directory by the hash of the file, because reading it takes some seconds.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from zipfile import ZipFile

from ..assemble.wheels import Wheelhouse
from ..compat import elf, facts, inspect
from ..compat.elf import InspectionError
from ..compat.inspect import ZIP_ERRORS, inspect_tensorflow
from ..compat.releases import Release, add_wheel
from ..errors import InputError, MissingError, ValidatorError
from ..locks.index import IndexFile, PackageIndex, sha256_of
from ..locks.resolve import PLATFORM, target_tags
from ..model.spec import OnIndex, Wheel, build_name
from ..system import http, processes
from ..system.files import cache_directory, full_disk_named, says_full_disk, write_atomically
from ..system.package_sources import PackageSources
from ..system.runs import temporary_directory
from ..versions import InvalidWheelName, Version, wheel_name
from . import remember
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
    kept = directory / f"{wheel.filename}-{version_of_inspection()}.json"
    if kept.is_file():
        say(f"{wheel.filename}: inspected by an earlier run")
    else:
        path = directory / wheel.filename
        if not (path.is_file() and sha256_of(path) == wheel.sha256):
            size = index.size(wheel)
            say(f"{wheel.filename}: downloading" + (f" {size / 1e6:,.0f} MB" if size else ""))
            index.download(wheel, path)
        try:
            _inspect(path, wheel.filename, kept, today, say)
        finally:
            path.unlink()
    found: dict[str, Any] = json.loads(kept.read_bytes())
    for group in found["kernels"]:
        # JSON has only texts as keys; in builds.yaml, a plain target is a number.
        group["ptx"] = {int(one) if one.isdigit() else one: isa for one, isa in group["ptx"].items()}
    return found


def _inspect(path: Path, name: str, kept: Path, today: datetime.date, say: Say) -> None:
    """Write the row of a wheel. name: of the file, for messages. Raises MissingError if the disk is full."""
    largest = 0
    # If the file is damaged, the inspection says what is wrong with it.
    with contextlib.suppress(*ZIP_ERRORS), ZipFile(path) as archive:
        largest = max((member.file_size for member in archive.infolist()), default=0)
    use = f"the largest library of {path.name} takes {largest / 1e9:.1f} GB unpacked"
    _refuse_small_disk(kept.parent, largest, use)
    say(f"{name}: inspecting")
    with full_disk_named(kept.parent):
        row = inspect.row(inspect_tensorflow(path, scratch=kept.parent), today)
    write_atomically(kept, json.dumps(row).encode())


def _refuse_small_disk(directory: Path, wanted: int, use: str) -> None:
    """Raise MissingError if so many bytes are not free. use: what they are for, as a clause."""
    free = shutil.disk_usage(directory).free
    if wanted > free:
        raise MissingError(
            f"{directory}: {use}, but only {free / 1e9:.1f} GB are free",
            hint="free some space, or set VALIDATOR_CACHE to a directory on another disk",
        )


def version_of_inspection() -> str:
    """Return a text that changes with the inspection's code, because new code may make another row."""
    digest = hashlib.sha256()
    for source in (elf.__file__, inspect.__file__):
        digest.update(Path(source).read_bytes())
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
    return _asked(PackageIndex(sources), asked, today)[1]


def refreshed(
    root: Path, sources: PackageSources, asked: Asked, today: datetime.date, say: Say
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the new content of the files to change, by path, and the lines that a reviewer reads.

    Writes nothing below `root`. Raises MissingError if the index, the disk or a tool is missing, and
    InputError if what the index has can't become a fact.
    """
    index = PackageIndex(sources)
    found, new = _asked(index, asked, today)
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
        lines = [*new, *difference(before, after)]
        cudnn = [version for versions in found.cudnn.values() for version in versions]
        by_hand = [*needs_a_person(map(cuda_release, found.cuda), cudnn), *unresolved]
        if by_hand:
            lines += ["To do by hand:", *(f"  {line}" for line in by_hand)]
        names = copy.changed()
        lines += ["Files:", *(f"  {name}" for name in names)]
        files = {name: (copy.path / name).read_bytes() for name in names}
        return files, tuple(lines)


def _asked(index: PackageIndex, asked: Asked, today: datetime.date) -> tuple[News, tuple[str, ...]]:
    """Ask the index what is new, and remember the answer. Return it, and the same as lines."""
    found = news(index, asked)
    seen = found.as_seen()
    remember(seen, datetime.datetime.combine(today, datetime.datetime.now().time()))
    lines = (f"{kind} {', '.join(versions)}: new on the package index" for kind, versions in seen.items())
    return found, tuple(lines)


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
    for cell in json.loads(printed):
        outcome, reasons = cell["prediction"]["outcome"], cell["prediction"]["reasons"]
        texts = (f"{one['text']} [{one['fact']}]" for one in reasons if one["outcome"] == outcome)
        found[cell["id"]] = Answer(outcome, next(texts, "no reason is given"))
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


_KEPT = "inspected"


def wheel_at(path: Path) -> Wheel:
    """Return a wheel on this machine, as pip takes it. Raises InputError and MissingError."""
    pythons_of(path)
    if not path.is_file():
        raise MissingError(f"{path}: no such file")
    name, version, _ = wheel_name(path.name)
    digest, size = sha256_of(path), path.stat().st_size
    return Wheel(name, str(version), digest, path.name, size, path.resolve().as_uri(), str(path))


def inspected(wheel: Wheel, say: Say, file: Callable[[], Path] | None = None) -> dict[str, Any]:
    """Return the row of a wheel, as in builds.yaml. say: shows what is done.

    file: gets the wheel if it is not on this machine.

    Raises InputError for a file that is no wheel of TensorFlow for Linux x86_64, or is damaged, and
    MissingError if it can't be read, or its largest library does not fit on the disk.
    """
    pythons_of(Path(wheel.filename))
    directory = cache_directory() / _KEPT
    kept = directory / f"{wheel.sha256}-{version_of_inspection()}.json"
    if not kept.is_file():
        path = file() if file else Path(wheel.address or "")
        directory.mkdir(parents=True, exist_ok=True)
        try:
            _inspect(path, wheel.filename, kept, datetime.date.today(), say)
        except InspectionError as error:
            # The name of a file in the cache means nothing to the user.
            raise InputError(str(error).replace(str(path), wheel.filename) if file else str(error)) from None
    found: dict[str, Any] = json.loads(kept.read_bytes())
    # The same file may have had another name.
    return found | {"wheel": found["wheel"] | {"file": wheel.filename}}


def known_as_release(wheel: Wheel, say: Say, file: Callable[[], Path] | None = None) -> Release:
    """Inspect a wheel, and make it known as a release. Raises InputError and MissingError as `inspected`."""
    row = inspected(wheel, say, file)
    if not row["build"]["cuda_build"]:
        raise InputError(
            f"{wheel.filename} was built without CUDA, so it never uses a GPU", hint="use a wheel with CUDA"
        )
    return add_wheel(row, name_of(row), pythons_of(Path(wheel.filename)), wheel)


def releases_of(
    asked: Wheel | OnIndex, pythons: Sequence[str], sources: PackageSources, say: Say
) -> list[Release]:
    """Return what a matrix asks for, downloaded and inspected where that was not done before.

    pythons: those of the images; `all` for every Python that the index has a wheel for. Raises InputError
    for what is not there or no wheel of TensorFlow with CUDA, MissingError if it can't be downloaded.
    """
    wheels = [asked] if isinstance(asked, Wheel) else _on_index(asked, pythons, sources)
    with contextlib.closing(Wheelhouse(sources)) as house:

        def file(wheel: Wheel) -> Path:
            if not wheel.is_local and house.missing([wheel]):
                say(f"{wheel.filename}: downloading")
            return house.path(wheel)

        for wheel in wheels:
            tags, python = wheel_name(wheel.filename)[2], pythons_of(Path(wheel.filename))[-1]
            if tags.isdisjoint(target_tags(python)):
                raise InputError(
                    f"{wheel.filename} is not for Python {python} on {PLATFORM}",
                    hint="build it with a glibc that is not newer",
                )
        return [known_as_release(wheel, say, functools.partial(file, wheel)) for wheel in wheels]


@functools.cache
def _index(address: str | None, sources: PackageSources) -> PackageIndex:
    """Return an index whose pages are read once, so that its newest version stays the same in a command."""
    return PackageIndex(replace(sources, index_url=address, extra_index_urls=()) if address else sources)


def _on_index(asked: OnIndex, pythons: Sequence[str], sources: PackageSources) -> list[Wheel]:
    """Return the wheels of a version, one for each Python; if the index is silent, those that it had."""
    where = http.without_secrets(asked.index) if asked.index else None
    text = repr((where, asked.project, asked.version, sorted(pythons)))
    kept = cache_directory() / _KEPT / f"index-{hashlib.sha256(text.encode()).hexdigest()}.json"
    try:
        listed = _index(asked.index, sources).wheels(asked.project)
    except MissingError:
        if not kept.is_file():
            raise
        return [Wheel(**fields) for fields in json.loads(kept.read_bytes())]
    listed = tuple(one for one in listed if one.on_linux and one.sha256)
    version = Version(asked.version) if asked.version else max((one.version for one in listed), default=None)
    found = {
        python: one for one in listed if one.version == version for python in pythons_of(Path(one.filename))
    }
    wanted = list(found) if "all" in pythons else pythons
    name = f"{asked.project} {version or ''}".rstrip()
    if not found:
        raise InputError(f"the package index has no wheel of {name} for Linux x86_64 with its SHA-256")
    if without := [python for python in wanted if python not in found]:
        raise InputError(
            f"the package index has no wheel of {name} for Python {', '.join(without)};"
            f" it has {', '.join(found)}"
        )
    login = urlsplit(asked.index or "").netloc.rpartition("@")[0]
    wheels = []
    for one in dict.fromkeys(found[python] for python in wanted):
        wheel = Wheel(asked.project, str(one.version), one.sha256 or "", one.filename, one.size)
        if where is not None:
            same = http.origin(one.url) == http.origin(where)
            address = one.url.replace("://", f"://{login}@", 1) if login and same else one.url
            wheel = replace(wheel, path=http.without_secrets(one.url), address=address)
        wheels.append(wheel)
    kept.parent.mkdir(parents=True, exist_ok=True)
    fields = [{**asdict(wheel), "address": None} for wheel in wheels]
    write_atomically(kept, json.dumps(fields).encode())
    return wheels


def name_of(row: dict[str, Any]) -> str:
    """Return a wheel's version with the first eight digits of its hash: `2.21.0+b3f1c2d4`."""
    return build_name(str(Version(str(row["tensorflow"]))), row["wheel"]["sha256"])


def pythons_of(path: Path) -> tuple[str, ...]:
    """Return the Pythons in a wheel's name, such as `3.12`.

    Raises InputError if the name is not that of a wheel for Linux x86_64.
    """
    try:
        _, _, tags = wheel_name(path.name)
    except InvalidWheelName as error:
        raise InputError(f"{path}: not the name of a wheel: {error}") from None
    here = [tag for tag in tags if "linux" in tag.platform and tag.platform.endswith("x86_64")]
    found = {tag.interpreter.removeprefix("cp3") for tag in here if tag.interpreter.startswith("cp3")}
    if not found:
        raise InputError(
            f"{path.name} is not for CPython on Linux x86_64, and only such wheels can be inspected",
            hint="name a file such as tensorflow-2.21.0-cp312-cp312-manylinux_2_27_x86_64.whl",
        )
    return tuple(f"3.{minor}" for minor in sorted(found, key=int))
