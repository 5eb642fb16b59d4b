"""Inspect wheels of TensorFlow that no table lists: a build of one's own, a nightly, a community's build.

A wheel is read like that of a release, and nothing in it is run. What was read is kept in the cache directory
by the hash of the file, because reading it takes some seconds.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..assemble.wheels import Wheelhouse
from ..compat.inspect import InvalidWheelName, build, wheel_name
from ..compat.inspect.build import inspect_tensorflow
from ..compat.inspect.elf import InspectionError
from ..compat.releases import Release, add_wheel
from ..errors import InputError, MissingError
from ..locks.index import PackageIndex, sha256_of
from ..locks.resolve import PLATFORM, target_tags
from ..model.spec import OnIndex, Wheel, build_name
from ..system import http
from ..system.files import cache_directory, full_disk_named, write_atomically
from ..system.package_sources import PackageSources
from ..versions import Version
from .release_facts import refuse_large_library, version_of_inspection

_KEPT = "inspected"
#: Prints a progress message.
Say = Callable[[str], None]


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
        refuse_large_library(path, directory)
        say(f"{wheel.filename}: inspecting")
        try:
            with full_disk_named(directory):
                row = build.row(inspect_tensorflow(path, scratch=directory), datetime.date.today())
        except InspectionError as error:
            # The name of a file in the cache means nothing to the user.
            raise InputError(str(error).replace(str(path), wheel.filename) if file else str(error)) from None
        write_atomically(kept, json.dumps(row).encode())
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
