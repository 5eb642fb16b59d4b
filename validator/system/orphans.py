"""End the processes that a killed run left behind.

Every child of a run has the run's identifier, a random number, in its environment, and passes it on to its
own children. So all descendants of a run can be found in /proc, whatever process group or session they are
in.

This file is also a program: the *watcher*, which every run starts before its first child. It reads a pipe
whose other end only the run has. The kernel closes that end when the run is killed, and the watcher then ends
the run's processes. The kernel's own signal for this (PR_SET_PDEATHSIG) would have to be set between fork and
exec, which a process with threads can't do safely, and reaches no grandchildren. The program needs only the
standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Set
from pathlib import Path

#: The environment variable that holds the identifier of the run.
VARIABLE = "VALIDATOR_RUN"
#: What the run writes to the pipe when it ends by itself.
FINISHED = b"finished\n"
#: Seconds from SIGTERM to SIGKILL.
_GRACE_S = 3.0
#: After this many seconds, give up on processes that don't die (in an uninterruptible system call).
_LIMIT_S = 15.0
#: A child that is just starting doesn't have its environment yet. Look for such children for this many
#: seconds.
_STARTING_S = 1.0
_PROC = Path("/proc")


def end_processes(identifiers: Collection[str], watch_s: float = 0.0) -> int:
    """End the processes of these runs: with SIGTERM, then with SIGKILL. Return how many there were.

    watch_s: look for new processes for at least this many seconds. On systems without /proc, do nothing.
    """
    marks = {f"{VARIABLE}={identifier}".encode() for identifier in identifiers}
    sessions: set[int] = set()
    asked: set[int] = set()
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        found = 0
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = os.listdir(_PROC)
        for pid in map(int, filter(str.isdecimal, names)):
            if pid != os.getpid() and _belongs(pid, marks, sessions):
                found += 1
                if waited > _GRACE_S or pid not in asked:
                    _send(pid, signal.SIGKILL if waited > _GRACE_S else signal.SIGTERM, marks, sessions)
                    asked.add(pid)
        if waited > _LIMIT_S or (found == 0 and waited >= watch_s):
            return len(asked)
        time.sleep(0.02)


def _belongs(pid: int, marks: Set[bytes], sessions: set[int]) -> bool:
    """Return True if a process is marked, or in the same session as a marked process.

    Each child of a run leads a session of its own, so no other process can be in it.
    """
    try:
        # Fields 3 and 6 of proc_pid_stat(5).
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        state, session = fields[0], int(fields[3])
        if state in ("Z", "X"):
            return False
        if session in sessions:
            return True
        environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (OSError, IndexError, ValueError):
        # It has ended, or belongs to somebody else.
        return False
    if marks.isdisjoint(environment):
        return False
    sessions.add(session)
    return True


def _send(pid: int, number: signal.Signals, marks: Set[bytes], sessions: set[int]) -> None:
    """Send a signal to a process, if it is still the one that was found."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        # It has ended, or the kernel is older than 5.3 and has no such handles.
        if _belongs(pid, marks, sessions):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        return
    try:
        if _belongs(pid, marks, sessions):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _main() -> None:
    """Read the run's identifier from the pipe on standard input, wait for its end, and end what is left."""
    with open(0, "rb", closefd=False) as pipe:
        identifier = pipe.readline().strip().decode()
        if identifier and pipe.readline() != FINISHED:
            end_processes({identifier}, _STARTING_S)


if __name__ == "__main__":
    _main()
