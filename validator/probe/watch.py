"""Watches the GPUs while the checks run, in a process of its own.

It creates no context on a GPU. With a broken driver, NVML may hang or crash, which then affects only this
process.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from . import child
from .child import die_with_parent, interpreter

_BEGUN, _ENDED = "watch_begun", "watch_ended"
#: Seconds between two readings, for NVML to answer, and for the watch to end.
INTERVAL_S, BEGIN_LIMIT_S, END_LIMIT_S = 0.2, 30.0, 10.0
#: Seconds until the driver has dropped the processes of this probe, which have all ended.
_FORGET_S = 2.0


class Watch:
    """The process that watches, as a context manager."""

    def __init__(self) -> None:
        """Start it."""
        self._reader, writer = os.pipe()
        self._lines = child.Lines()
        self._messages: List[Dict[str, Any]] = []
        self._process = subprocess.Popen(
            interpreter("watch", writer, os.getpid()),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._reader)

    def begun(self) -> None:
        """Wait until the state before the run is known, or can't be."""
        self._await(_BEGUN, BEGIN_LIMIT_S)

    def end(self) -> Dict[str, Any]:
        """End the watch and return what was seen, as the check `gpu_health` takes it.

        The fields: `begun` and `ended`, whether the watch lasted; `error`, NVML's; `xid_sources`; and `gpus`.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._await(_ENDED, END_LIMIT_S)
        found: Dict[str, Any] = {"begun": False, "ended": False, "error": None, "xid_sources": [], "gpus": []}
        for message in self._messages:
            found.update({name: value for name, value in message.items() if name != "event"})
        return found

    def _await(self, event: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not any(message["event"] == event for message in self._messages):
            ready = select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]
            data = os.read(self._reader, 65536) if ready else b""
            if not data:
                return
            self._messages += self._lines.feed(data)


def main(descriptor: int, root: int) -> None:
    """Run in the watching process. root: the probe's process; its children don't count as other processes."""
    os.set_inheritable(descriptor, False)
    die_with_parent()
    # Imported here, so that the process that starts the watch doesn't load it.
    from .collectors.health import Health

    health = Health(root)
    before = health.snapshot()
    child.send(descriptor, _BEGUN, begun=True, error=health.error, xid_sources=health.xid_sources)
    health.read()
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        health.read()
    health.read()
    after = health.snapshot()
    deadline = time.monotonic() + _FORGET_S
    while any(state["processes"] for state in after) and time.monotonic() < deadline:
        time.sleep(INTERVAL_S)
        after = health.snapshot()
    gpus = [
        {
            "uuid": gpu.uuid,
            "mig": gpu.mig,
            "before": first,
            "after": last,
            "readings": gpu.readings,
            "reasons": gpu.reasons,
            "xids": gpu.xids,
            "others_during": len(gpu.others),
        }
        for gpu, first, last in zip(health.gpus, before, after)
    ]
    child.send(descriptor, _ENDED, ended=True, gpus=gpus)
    os._exit(0)
