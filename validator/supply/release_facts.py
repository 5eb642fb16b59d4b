"""Bring the facts up to date with the package index: inspect new releases, and write what follows."""

from __future__ import annotations

import datetime
import fcntl
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from .._vendor.packaging.version import Version
from ..compat import freshness, releases
from ..compat.inspect import rows
from ..errors import InputError, MissingError
from ..locks.index import IndexFile, PackageIndex
from ..system.files import cache_directory, full_disk_named
from ..system.package_sources import PackageSources
from ..system.runs import temporary_directory
from . import new_rows, predictions
from .checkout import Copy, copied, refuse_installed
from .fact_files import Table
from .news import Asked, News, cuda_release, news
from .remembered import remember
from .wheel_rows import inspected_row, refuse_small_disk, remove_unwanted

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
    "docs.fields",
    "docs.keys",
    "docs.facts",
    "docs.commands",
    "docs.releases",
    "docs.cited",
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
        before = predictions.answers(copy.path)
        _write_facts(copy.path / _DATA, index, found, builds, today)
        copy.run("validator.compat.compile")
        copy.run("validator.diagnosis.compile")
        unresolved = _lock(copy, found, say)
        say("comparing predictions")
        after = predictions.answers(copy.path)
        say("writing the documentation")
        for module in DOCUMENTATION:
            copy.run(module)
        lines = [*_described(found), *predictions.difference(before, after)]
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
    for release, build in zip(found.releases, builds, strict=True):
        new_rows.add_release(tensorflow, build, release.pythons)
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
        rows.write(data / "builds.yaml", builds, without=superseded)
        sources = data / "sources.yaml"
        sources.write_text(new_rows.add_source(sources.read_text(encoding="utf-8")), encoding="utf-8")


def _requirements(index: PackageIndex, file: IndexFile) -> list[str]:
    """Return the requirements of a small wheel. Raises MissingError."""
    with temporary_directory("metadata") as directory:
        path = directory / file.filename
        index.download(file, path)
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
                text = archive.read(names[0]).decode("utf-8")
        except (zipfile.BadZipFile, IndexError, UnicodeDecodeError) as error:
            raise MissingError(f"{file.filename}: its metadata can't be read: {error}") from error
    return HeaderParser().parsestr(text).get_all("Requires-Dist", [])


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
