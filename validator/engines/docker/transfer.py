"""Sends images of the engine to a registry, and takes them from one.

The engine does it, so credentials are docker's own, layers that the registry has are not sent again, and the
registry hears of the tag last, when it holds all that the tag stands for. The command line is used and not
the SDK, since a process can be ended in the middle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from ...errors import MissingError, ValidatorError
from ...registry.errors import explain, fault_of
from ...system import processes
from ...system.files import says_full_disk
from ..base import Progress
from .failures import disk_full, engine_gone

#: Waits between attempts, in seconds. Each attempt goes on where the one before it stopped.
_PAUSES_S = (1.0, 3.0, 9.0)
#: Nothing is sent or taken for longer than that. An image has 4 GB, which is an hour at 10 Mbit/s.
_TIMEOUT_S = 6 * 3600

_DIGEST = re.compile(r"digest: (sha256:[0-9a-f]{64})\b")
_LAYER = re.compile(r"^([0-9a-f]{12}): \S")
_LAYER_DONE = re.compile(r": (Pushed|Layer already exists|Mounted from .*|Pull complete|Already exists)$")
#: What registries say of a manifest whose layers they do not know. The engine hides the status.
_NO_ZSTD = re.compile(r"media ?type|zstd|manifest[ _]invalid|invalid manifest", re.IGNORECASE)
_NOT_THERE = re.compile(r": not found$|manifest unknown|repository .* not found", re.IGNORECASE)
_ALTERED = re.compile(
    r"unexpected commit digest|failed verification|failed size validation|digest mismatch|hash mismatch",
    re.IGNORECASE,
)
_ENGINE_GONE = re.compile(r"Cannot connect to the Docker daemon|error during connect|docker\.sock: connect")


class ZstdRefused(ValidatorError):
    """The registry does not take a manifest of zstd layers."""


def push(docker: str, reference: str, progress: Progress, answers: Callable[[], bool]) -> str:
    """Send the engine's image of that name (`host/path:tag`); the digest of the manifest that was sent.

    docker: the command. answers: whether the engine still does. What may pass is tried again. Raises
    MissingError when the registry can't be reached, does not let us, or keeps failing, and ZstdRefused; the
    tag is then what it was before.
    """
    said = _run((docker, "push"), reference, "pushed", progress, answers)
    found = _DIGEST.findall(said)
    if not found:
        raise ValidatorError(f"{reference}: docker push did not say what it sent: {_last(said)}")
    return str(found[-1])


def pull(docker: str, reference: str, progress: Progress, answers: Callable[[], bool]) -> None:
    """Take an image from its registry. The engine holds all of it against its digests.

    Raises ValidatorError when a layer or manifest is not what its digest says, MissingError when the registry
    has no such image, can't be reached, does not let us, or keeps failing.
    """
    _run((docker, "pull"), reference, "pulled", progress, answers)


def _run(
    command: Sequence[str], reference: str, done: str, progress: Progress, answers: Callable[[], bool]
) -> str:
    """What the command said at last, after as many attempts as it took."""
    for pause in (*_PAUSES_S, None):
        # What is said on stderr is heard at once, standard output at the end only.
        result = processes.run(
            ["sh", "-c", 'exec "$@" >&2', "sh", *command, reference],
            on_line=_Layers(progress),
            timeout_s=_TIMEOUT_S,
        )
        if result.ok:
            break
        said = f"timed out after {_TIMEOUT_S // 3600} hours" if result.timed_out else result.stderr_tail
        error, passes = _explain(reference, done, said, answers)
        if pause is None or not passes:
            raise error
        progress(f"trying again in {pause:.0f} s: {error}")
        _wait(pause)
    return result.stderr_tail


def _explain(
    reference: str, done: str, said: str, answers: Callable[[], bool]
) -> tuple[ValidatorError, bool]:
    """The error for a person, and whether it may pass."""
    what, host, last = f"{reference} was not {done}", reference.partition("/")[0], _last(said)
    if _ENGINE_GONE.search(said) or not answers():
        return engine_gone(reference), False
    if _ALTERED.search(last):
        text = f"{what}: what {host} holds is not what its digest says: {last}"
        return ValidatorError(text, hint="do not use it; tell whoever runs the registry"), False
    if done == "pulled" and says_full_disk(last):
        return disk_full(reference), False
    if done == "pulled" and _NOT_THERE.search(last):
        hint = "build-matrix --push puts images there"
        return MissingError(f"{what}: {host} has no such image", hint=hint), False
    if done == "pushed" and _NO_ZSTD.search(last):
        return ZstdRefused(f"{what}: {host} refuses its manifest: {last}"), False
    # A registry's own words hide the status that it answered with, so what is not understood may pass too.
    fault = fault_of(last)
    return explain(host, last, what=what), fault is None or fault.again


def _last(said: str) -> str:
    """The last line, which is the error."""
    line = next((line for line in reversed(said.splitlines()) if line.strip()), "docker said nothing")
    return line.strip().removeprefix("Error response from daemon: ")


class _Layers:
    """Tells how many layers are done, from what docker says of each."""

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


def _wait(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        processes.check_stopping()
        time.sleep(0.1)
