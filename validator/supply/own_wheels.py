"""Inspect wheels of TensorFlow that no table lists: a build of one's own, a nightly, a community's build.

A wheel is read like that of a release, and nothing in it is run. What was read is kept in the cache directory
by the hash of the file, because reading it takes some seconds.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..compat.inspect import InvalidWheelName, build, wheel_name
from ..compat.inspect.build import inspect_tensorflow
from ..compat.releases import Release, add_wheel
from ..errors import InputError, MissingError
from ..locks.index import sha256_of
from ..system.files import cache_directory, full_disk_named, write_atomically
from .release_facts import refuse_large_library, version_of_inspection

_KEPT = "inspected"


def inspected(path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the row of a wheel, as in builds.yaml. say: shows what is done.

    Raises InputError for a file that is no wheel of TensorFlow for Linux x86_64, or is damaged, and
    MissingError if it can't be read, or its largest library does not fit on the disk.
    """
    pythons_of(path)
    if not path.is_file():
        raise MissingError(f"{path}: no such file")
    digest = sha256_of(path)
    directory = cache_directory() / _KEPT
    kept = directory / f"{digest}-{version_of_inspection()}.json"
    if not kept.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        refuse_large_library(path, directory)
        say(f"{path.name}: inspecting")
        with full_disk_named(directory):
            row = build.row(inspect_tensorflow(path, scratch=directory), datetime.date.today())
            write_atomically(kept, json.dumps(row).encode())
    found: dict[str, Any] = json.loads(kept.read_bytes())
    # The same file may have had another name.
    return found | {"wheel": found["wheel"] | {"file": path.name}}


def known_as_release(path: Path, say: Callable[[str], None]) -> Release:
    """Inspect a wheel, and make it known as a release. Raises InputError and MissingError as `inspected`."""
    row = inspected(path, say)
    if not row["build"]["cuda_build"]:
        raise InputError(
            f"{path.name} was built without CUDA, so it never uses a GPU", hint="use a wheel with CUDA"
        )
    return add_wheel(row, name_of(row), pythons_of(path))


def name_of(row: dict[str, Any]) -> str:
    """Return a wheel's version with the first eight digits of its hash: `2.21.0+b3f1c2d4`."""
    version = str(row["tensorflow"])
    return f"{version}{'.' if '+' in version else '+'}{row['wheel']['sha256'][:8]}"


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
