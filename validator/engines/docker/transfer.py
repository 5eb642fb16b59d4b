"""Pull images from a registry into the engine.

The engine does the work: it uses Docker's credentials, and fetches only layers that it lacks. The command
line is used instead of the SDK, because a process can be ended at any time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ...assemble.progress import Progress
from ...errors import MissingError, ValidatorError
from ...registry.errors import explain, fault_of
from ...system import processes
from ...system.files import says_full_disk
from .endpoint import disk_full, engine_gone

#: Waits between attempts, in seconds. Each attempt continues where the last one stopped.
_PAUSES_S = (1.0, 3.0, 9.0)
#: The time limit of one attempt. An image has 4 GB, which takes an hour at 10 Mbit/s.
_TIMEOUT_S = 6 * 3600

_LAYER = re.compile(r"^([0-9a-f]{12}): \S")
_LAYER_DONE = re.compile(r": (Pull complete|Already exists)$")
_NOT_THERE = re.compile(r": not found$|manifest unknown|repository .* not found", re.IGNORECASE)
_ALTERED = re.compile(
    r"unexpected commit digest|failed verification|failed size validation|digest mismatch|hash mismatch",
    re.IGNORECASE,
)
_ENGINE_GONE = re.compile(r"Cannot connect to the Docker daemon|error during connect|docker\.sock: connect")


def pull(docker: str, reference: str, progress: Progress, answers: Callable[[], bool]) -> None:
    """Pull an image. The engine verifies all digests.

    Raises ValidatorError if a layer or manifest does not match its digest, and MissingError if the registry
    does not have the image, can't be reached, denies access or keeps failing.
    """
    for pause in (*_PAUSES_S, None):
        # stderr is read as it arrives, but stdout only at the end.
        result = processes.run(
            ["sh", "-c", 'exec "$@" >&2', "sh", docker, "pull", reference],
            on_line=_Layers(progress),
            timeout_s=_TIMEOUT_S,
        )
        if result.ok:
            return
        said = f"timed out after {_TIMEOUT_S // 3600} hours" if result.timed_out else result.stderr_tail
        error, is_temporary = _explain(reference, said, answers)
        if pause is None or not is_temporary:
            raise error
        progress(f"retrying in {pause:.0f} s: {error}")
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline:
            processes.check_stopping()
            time.sleep(0.1)


def _explain(reference: str, said: str, answers: Callable[[], bool]) -> tuple[ValidatorError, bool]:
    """Return the error, and True if it may be temporary."""
    what, host, last = f"{reference} was not pulled", reference.partition("/")[0], _last(said)
    if _ENGINE_GONE.search(said) or not answers():
        return engine_gone(reference), False
    if _ALTERED.search(last):
        text = f"{what}: the content from {host} does not match its digest: {last}"
        return ValidatorError(text, hint="do not use the image, and tell the registry's operator"), False
    if says_full_disk(last):
        return disk_full(reference), False
    if _NOT_THERE.search(last):
        hint = "push it there with `build-matrix --push`"
        return MissingError(f"{what}: the image is not in {host}", hint=hint), False
    # The engine hides the registry's status code, so an unknown error may be temporary, too.
    fault = fault_of(last)
    return explain(host, last, what=what), fault is None or fault.temporary


def _last(said: str) -> str:
    """Return the last line, which is the error."""
    line = next((line for line in reversed(said.splitlines()) if line.strip()), "no message from docker")
    return line.strip().removeprefix("Error response from daemon: ")


class _Layers:
    """Reports how many layers are done, from docker's messages about each layer."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seen: set[str] = set()
        self._done: set[str] = set()

    def __call__(self, line: str) -> None:
        if match := _LAYER.match(line):
            self._seen.add(match[1])
            if _LAYER_DONE.search(line):
                self._done.add(match[1])
            self._progress(f"{len(self._done)} of {len(self._seen)} layers")
