"""Evaluate markers for the machines that this project is about: Linux on x86_64 with CPython."""

from __future__ import annotations

import functools

from .._vendor.packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from .._vendor.packaging.specifiers import SpecifierSet
from ..compat import loose_values
from ..compat.older_releases import every_python
from .environment import Stated

_MACHINE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


def holds(marker: str, pythons: tuple[str, ...], extra: str = "") -> bool | None:
    """Return whether a marker is true for every Python; None if that depends on the Python or on the host."""
    answers = {_holds(marker, python, extra) for python in pythons or every_python()}
    return answers.pop() if len(answers) == 1 else None


@functools.lru_cache(maxsize=8192)
def _holds(marker: str, python: str, extra: str) -> bool | None:
    values = {
        **_MACHINE,
        "python_version": python,
        "python_full_version": f"{python}.99",
        "implementation_version": f"{python}.99",
        "extra": extra,
    }
    unknown = ("platform_release", "platform_version", "extras", "dependency_groups")
    if any(name in marker for name in unknown):
        return None
    try:
        return Marker(marker).evaluate({**values})
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, KeyError, RecursionError):
        return None


def pythons_of(python: Stated | None) -> tuple[str, ...]:
    """Return the Pythons, oldest first, that a file allows; all that are known where it states none."""
    return pythons(python.value if python else ">=2")


@functools.lru_cache(maxsize=1024)
def pythons(specifier: str) -> tuple[str, ...]:
    """Return the Pythons, oldest first, that a version or a specifier allows."""
    if specifier[:1].isdigit():
        wanted = loose_values.minor(specifier)
        return (wanted,) if wanted else ()
    # The newest patch release stands for the minor version, so that `>3.9.1` allows 3.9.
    allowed = SpecifierSet(specifier)
    return tuple(
        minor for minor in every_python() if any(allowed.contains(f"{minor}.{patch}") for patch in range(30))
    )
