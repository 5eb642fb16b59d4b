"""Resolve an image spec to the exact wheels of one Python on one platform, with uv.

uv writes a `pylock.toml` (PEP 751), which unlike requirements lists the files. For each package this
module keeps the one wheel that the target would install, without its address, so that a lock is the same on
every network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import requests
from uv import find_uv_bin

from .._vendor.packaging.tags import Tag, compatible_tags, cpython_tags
from .._vendor.packaging.utils import canonicalize_name, parse_wheel_filename
from ..errors import InputError, MissingError
from ..model.lock import Lock, Wheel
from ..model.spec import ImageSpec
from ..system import processes, toml
from ..system.pools import map_in_threads
from ..system.sources import PackageSources
from .uv_errors import explain

#: glibc 2.28 is the oldest that all wheels of TensorFlow 2.21 and its dependencies run on. Debian 10, Ubuntu
#: 20.04 and RHEL 8 have it or a newer one.
GLIBC = (2, 28)
PLATFORM = f"x86_64-manylinux_{GLIBC[0]}_{GLIBC[1]}"

_TIMEOUT_S = 600.0
#: Sizes are optional, so this does not wait for an index that answers slowly.
_SIZE_TIMEOUT_S = 20.0


def resolve(
    spec: ImageSpec,
    requirements: Iterable[str],
    sources: PackageSources,
    on_line: Callable[[str], None] | None = None,
) -> Lock:
    """Resolve a spec. Needs the package index.

    Raises InputError if the requirements can't be met together, MissingError if the index can't be reached.
    """
    asked = tuple(requirements)
    # Only wheels, because the result of building a source distribution depends on the machine.
    command = [
        find_uv_bin(), "pip", "compile", "-", "--format", "pylock.toml", "--only-binary", ":all:",
        "--python-version", spec.python, "--python-platform", PLATFORM, "--no-header", "--no-annotate",
        "--no-progress", "--no-python-downloads",
    ]  # fmt: skip
    result = processes.run(
        command,
        env={**os.environ, **sources.uv_environment()},
        input="\n".join(asked).encode(),
        on_line=on_line,
        timeout_s=_TIMEOUT_S,
    )
    if not result.ok:
        raise explain(
            sources.redact(result.stderr_tail), f"{spec}: can't be resolved", timed_out=result.timed_out
        )
    document = toml.loads(result.stdout.decode())
    tags = target_tags(spec.python)
    chosen = [pick(package, tags, spec) for package in document.get("packages", [])]
    sizes = _sizes([url for _, url in chosen], sources)
    wheels = [
        Wheel(wheel.name, wheel.version, wheel.sha256, wheel.filename, size or wheel.size)
        for (wheel, _), size in zip(chosen, sizes, strict=True)
    ]
    return Lock(
        spec.identifier, spec.python, PLATFORM, asked, tuple(sorted(wheels, key=lambda wheel: wheel.name))
    )


def target_tags(python: str, glibc: tuple[int, int] = GLIBC) -> dict[Tag, int]:
    """Return the wheel tags that the target accepts, each with its rank (0 is the best)."""
    major, minor = (int(part) for part in python.split("."))
    platforms = [f"manylinux_2_{release}_x86_64" for release in range(glibc[1], 4, -1)]
    for release, alias in ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1")):
        platforms.insert(platforms.index(f"manylinux_2_{release}_x86_64") + 1, f"{alias}_x86_64")
    platforms.append("linux_x86_64")
    tags = [
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def pick(package: dict[str, Any], tags: dict[Tag, int], spec: ImageSpec) -> tuple[Wheel, str]:
    """Return the wheel of a `pylock.toml` package that the target installs, and its address.

    Raises InputError if no wheel fits, MissingError if the index gives no hash.
    """
    ranked = []
    for entry in package.get("wheels", []):
        filename = entry.get("name") or entry["url"].rsplit("/", 1)[-1].split("#", 1)[0].split("?", 1)[0]
        fitting = [tags[tag] for tag in parse_wheel_filename(filename)[3] if tag in tags]
        if fitting:
            ranked.append((min(fitting), filename, entry))
    if not ranked:
        raise InputError(
            f"{spec}: {package['name']} {package['version']} has no wheel for Python {spec.python}"
            f" on {PLATFORM}",
            hint="choose another Python, or another release",
        )
    _, filename, entry = min(ranked, key=lambda candidate: candidate[:2])
    sha256 = entry.get("hashes", {}).get("sha256")
    if not sha256:
        raise MissingError(
            f"{spec}: the index has no sha256 for {filename}",
            hint="use an index that serves hashes (PEP 503 or PEP 691)",
        )
    wheel = Wheel(canonicalize_name(package["name"]), package["version"], sha256, filename, entry.get("size"))
    return wheel, entry["url"]


_known_sizes: dict[str, int | None] = {}


def _sizes(urls: list[str], sources: PackageSources) -> list[int | None]:
    """Return the size of each file in bytes according to the index's server, None if it does not say."""
    wanted = [url for url in urls if url not in _known_sizes]
    with requests.Session() as session:
        if sources.ca_bundle:
            session.verify = str(sources.ca_bundle)

        def ask(url: str) -> int | None:
            try:
                answer = session.head(url, allow_redirects=True, timeout=_SIZE_TIMEOUT_S)
            except requests.RequestException:
                return None
            length = answer.headers.get("Content-Length", "")
            return int(length) if answer.ok and length.isdigit() else None

        _known_sizes.update(zip(wanted, map_in_threads(ask, wanted, at_once=8), strict=True))
    return [_known_sizes[url] for url in urls]
