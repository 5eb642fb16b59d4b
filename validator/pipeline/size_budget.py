"""The size budget of an image: refuse one that is larger, and say what makes it large."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BuildError
from ..model.lock import Lock, Wheel
from ..model.spec import ImageSpec

#: A message names this many wheels, and this many changes.
_SHOWN = 5


def refuse_too_large(
    spec: ImageSpec, size: int, lock: Lock, previous: Callable[[], Lock | None], *, is_whole: bool
) -> None:
    """Raise BuildError if the image exceeds its budget, with the largest wheels and the changes of the lock.

    size: the sum of the compressed layers, with those of the base: what a pull downloads, in bytes.
    previous: returns the lock before its last change, if it is known.
    is_whole: False if the sizes of some layers are not known yet.
    """
    if spec.max_size is None or size <= spec.max_size:
        return
    largest = sorted(lock.wheels, key=lambda wheel: wheel.size or 0, reverse=True)[:_SHOWN]
    wheels = ", ".join(f"{wheel.name} {_megabytes(wheel.size)}" for wheel in largest)
    before = previous()
    changes = _changes(before, lock) if before else ""
    least = "" if is_whole else "at least "
    raise BuildError(
        f"{spec}: the image has {least}{_readable(size)}, but max_size is {_readable(spec.max_size)}."
        f" The largest wheels are {wheels}.{changes}",
        hint="leave out what is not needed, or raise max_size in the matrix",
    )


def _changes(previous: Lock, lock: Lock) -> str:
    """Return the sentence about what changed, the largest changes first."""
    before = {wheel.name: wheel for wheel in previous.wheels}
    after = {wheel.name: wheel for wheel in lock.wheels}
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    differences = {name: _size(after.get(name)) - _size(before.get(name)) for name in changed}
    ordered = sorted(changed, key=lambda name: (-abs(differences[name]), name))
    if not ordered:
        return ""
    shown = [
        f"{_change(before.get(name), after.get(name))} ({differences[name] / 1e6:+,.1f} MB)"
        for name in ordered[:_SHOWN]
    ]
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f" Since the last lock: {', '.join(shown)}{more}."


def _change(before: Wheel | None, after: Wheel | None) -> str:
    if before is None:
        return f"{after} was added"
    if after is None:
        return f"{before} was removed"
    return f"{before} is another file" if str(before) == str(after) else f"{before} became {after.version}"


def _size(wheel: Wheel | None) -> int:
    return (wheel.size or 0) if wheel else 0


def _megabytes(size: int | None) -> str:
    return "of unknown size" if size is None else f"{size / 1e6:,.0f} MB"


def _readable(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
