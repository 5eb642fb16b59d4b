"""Compare an image that was derived from one of this project with the lock of that image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from ..model.lock import Lock

#: Files that the text names for a package.
_SHOWN = 3


@dataclass(frozen=True)
class Changes:
    """The changes of a derived image against its base."""

    image: Annotated[str, "The image spec that it was derived from."]
    lock_digest: Annotated[str, "The digest of the lock of that image."]
    base: Annotated[str | None, "The digest of that image, or null if the engine does not have it."]
    commands: Annotated[tuple[str, ...], "What was done to it, oldest first, as the builder wrote it down."]
    compared: Annotated[bool, "Whether the lock was found here, so that the packages could be compared."]
    added: Annotated[dict[str, str], "The version by package."]
    removed: Annotated[dict[str, str], "The version by package."]
    upgraded: Annotated[dict[str, tuple[str, str]], "The versions before and after, by package."]
    files: Annotated[
        dict[str, list[str]],
        "Changed or missing files of TensorFlow's and NVIDIA's packages, by package.",
    ]

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        return asdict(self)


def packages_changed(
    lock: Lock, installed: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, tuple[str, str]]]:
    """Return the packages that were added, removed and changed; see `Changes`. installed: as in a report."""
    locked = {wheel.name: wheel.version for wheel in lock.wheels}
    added = {name: version for name, version in sorted(installed.items()) if name not in locked}
    removed = {name: version for name, version in sorted(locked.items()) if name not in installed}
    upgraded = {
        name: (version, installed[name])
        for name, version in sorted(locked.items())
        if name in installed and installed[name] != version
    }
    return added, removed, upgraded


def derived_text(changes: Changes) -> str:
    """Return the comparison for people, in a few lines."""
    base = f" ({changes.base})" if changes.base else ""
    lines = [f"This image was derived from {changes.image}{base}:"]
    if not changes.compared:
        lines.append(f"  packages: not compared, because the lock {changes.lock_digest} is not here")
    else:
        told = {
            "added": [f"{name} {version}" for name, version in changes.added.items()],
            "removed": [f"{name} {version}" for name, version in changes.removed.items()],
            "changed": [f"{name} {old} to {new}" for name, (old, new) in changes.upgraded.items()],
        }
        lines += [f"  packages {how}: {', '.join(entries)}" for how, entries in told.items() if entries]
        if not any(told.values()):
            lines.append("  the packages are those of its lock")
    for name, files in changes.files.items():
        more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
        lines.append(f"  files of {name} changed: {', '.join(files[:_SHOWN])}{more}")
    if not changes.files:
        lines.append("  no file of TensorFlow's or NVIDIA's packages changed")
    lines.append(
        f"A certificate of {changes.image} is about that image's digest. It says nothing about this image."
    )
    return "\n".join(lines)
