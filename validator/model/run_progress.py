"""The progress of a run of `build-matrix`, in the file that other processes read meanwhile."""

from __future__ import annotations

import msgspec

from .codec import convert, parse

#: States of a run. `vanished`: its process ended without saying so. `unknown`: it can't be told from here.
RUNNING, FINISHED, STOPPED, FAILED, VANISHED, UNKNOWN = (
    "running", "finished", "stopped", "failed", "vanished", "unknown",
)  # fmt: skip


class Working(msgspec.Struct, frozen=True):
    """An image that is being worked on. phase: `lock`, `build`, `push`, `pull` or `probe`. since: a time."""

    image: str
    phase: str
    detail: str
    since: str


class Done(msgspec.Struct, frozen=True):
    """The outcome of one image. result: a verdict, or a status such as `unchanged` or `skipped`."""

    image: str
    result: str
    detail: str


class RunProgress(msgspec.Struct, frozen=True):
    """A run of `build-matrix`.

    profile, started, updated: the profile, and times. total: the number of images.
    run: the directory of the process's own lock (`system.runs`); empty if it has none.
    boot: identifies the machine since it started.
    """

    profile: str
    started: str
    updated: str
    total: int
    finished: int
    state: str
    run: str
    boot: str
    working: tuple[Working, ...] = ()
    done: tuple[Done, ...] = ()


def read_run_progress(data: bytes) -> RunProgress:
    """Read the file of a run. Raises DocumentError."""
    return convert(parse(data), RunProgress)
