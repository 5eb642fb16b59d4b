"""Find out what an image that was derived from one of this project changed, for `check --image`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines import changed_files
from ..engines.protocol import ProbeRequest
from ..errors import ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.lock import Lock
from ..model.report import Report
from ..registry.names import tag_of
from ..reports.derived import Changes, packages_changed
from .options import default_matrix

if TYPE_CHECKING:
    from ..engines.docker import DockerEngine
    from ..engines.docker.derived import Derivation

#: Seconds for reading every file of the packages, which is needed only if all of them have new times.
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Derived:
    """The origin of a derived image, and the changed files of its packages, by package."""

    origin: Derivation
    files: dict[str, list[str]]


def find_derived(engine: DockerEngine, image: str, progress: Callable[[str], None]) -> Derived | None:
    """Return what an image was derived from, or None.

    Raises ValidatorError if its files can't be compared.
    """
    origin = engine.derivation(image)
    if origin is None or not _is_identifier(origin.image):
        return None
    script = Path(changed_files.__file__).read_bytes()
    answer = engine.probe_image(image, ProbeRequest(script, timeout_s=_LIMIT_S), progress)
    try:
        return Derived(origin, codec.convert(codec.parse(answer), dict[str, list[str]]))
    except DocumentError as error:
        raise ValidatorError(f"{image}: the comparison of its files can't be read: {error}") from error


def changes_in(derived: Derived, report: Report) -> Changes:
    """Return the comparison with the lock of the other image, if that is here."""
    origin = derived.origin
    lock = _lock_of(origin)
    added, removed, upgraded = packages_changed(lock, report.environment.packages) if lock else ({}, {}, {})
    return Changes(
        origin.image, origin.lock_digest, origin.base, origin.commands, lock is not None,
        added, removed, upgraded, derived.files,
    )  # fmt: skip


def _lock_of(origin: Derivation) -> Lock | None:
    from .planning import locks_of

    lock = locks_of(default_matrix()).read(origin.image)
    return lock if lock is not None and lock.digest == origin.lock_digest else None


def _is_identifier(text: str) -> bool:
    """Return True for the identifier of an image spec: a label may hold anything."""
    try:
        tag_of(text)
    except ValueError:
        return False
    return True
