"""Watch the GPUs while the checks run, in a process of its own, and read their health from NVML.

It creates no context on a GPU. With a broken driver, NVML may hang or crash, which then affects only this
process. Functions, fields and codes are those of NVML (nvml.h). A value that the driver doesn't tell (under
WSL, on a vGPU, on a GPU without ECC) is None.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import child
from .child import interpreter
from .host import is_split, open_nvml, text

_BEGUN, _ENDED = "watch_begun", "watch_ended"
#: Seconds between two readings, for NVML to answer, and for the watch to end.
INTERVAL_S, BEGIN_LIMIT_S, END_LIMIT_S = 0.2, 30.0, 10.0
#: Seconds until the driver has dropped the processes of this probe, which have all ended.
_FORGET_S = 2.0


class Watch:
    """The process that watches, as a context manager."""

    def __init__(self) -> None:
        command = interpreter("watch", os.getpid())
        self._lines = child.Lines()
        self._messages: list[dict[str, Any]] = []
        self._process, self._reader = child.started(command, subprocess.DEVNULL, None, subprocess.PIPE)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._reader)

    def begun(self) -> None:
        """Wait until the state before the run is known, or can't be."""
        self._await(_BEGUN, BEGIN_LIMIT_S)

    def end(self) -> dict[str, Any]:
        """End the watch and return what was seen.

        The fields: `begun` and `ended`, whether the watch lasted; `error`, NVML's; `xid_sources`; and `gpus`.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._await(_ENDED, END_LIMIT_S)
        found: dict[str, Any] = {"begun": False, "ended": False, "error": None, "xid_sources": [], "gpus": []}
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


# In the watching process.


def main(descriptor: int, root: int) -> None:
    """Watch until standard input ends. root: the probe's process, whose children don't count as others."""
    child.prepare(descriptor)
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
    gpus = []
    for gpu, first, last in zip(health.gpus, before, after):
        seen = {name: getattr(gpu, name) for name in ("uuid", "mig", "readings", "reasons", "xids")}
        gpus.append({**seen, "before": first, "after": last, "others_during": len(gpu.others)})
    child.send(descriptor, _ENDED, ended=True, gpus=gpus)
    os._exit(0)


#: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: since the driver was loaded.
_UNCORRECTED, _VOLATILE = 1, 0
_XID_EVENT = 0x8
#: Clock event reasons ("throttle reasons" before release 535) by bit. SW_POWER_CAP is usual at full load.
REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_PROCESSES = 128
#: The inode of the first PID namespace (PROC_PID_INIT_INO, linux/proc_ns.h). In another one NVML's process
#: ids, which are the host's, mean nothing.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_XID_LINE = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)[^)]*\): (\d+)")


_INSTANCE = [("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class _EventData(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong)]
    _fields_ += _INSTANCE


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _ProcessInInstance(ctypes.Structure):
    _fields_ = [*_Process._fields_, *_INSTANCE]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
        ("address", ctypes.c_char * 32),
    ]


@dataclass
class Gpu:
    """A GPU with what was observed on it.

    reasons: for each clock event reason, the readings that showed it, and the most of them in a row.
    others: the processes of others that were seen computing on it during the run.
    """

    handle: ctypes.c_void_p
    uuid: str | None
    mig: bool | None
    address: tuple[int, ...] | None
    readings: int = 0
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    in_a_row: dict[str, int] = field(default_factory=dict)
    xids: list[int] = field(default_factory=list)
    others: set[int] = field(default_factory=set)


class Health:
    """The GPUs that NVML shows. error: why there are none; None if NVML answers."""

    def __init__(self, root: int) -> None:
        """Connect to NVML. root: the process whose descendants don't count as other processes."""
        found: dict[str, Any] = {"error": None}
        self.gpus: list[Gpu] = []
        self._root = root
        self._library: Any = open_nvml(found)
        self._events: ctypes.c_void_p | None = None
        self._log: int | None = None
        self._knows_processes = False
        with contextlib.suppress(OSError):
            self._knows_processes = os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
        if self._library is not None and self._library.nvmlInit_v2() != 0:
            self._library, found["error"] = None, "nvmlInit failed"
        self.error: str | None = found["error"]
        if self._library is None:
            return
        with contextlib.suppress(OSError):
            # From its end on. Most containers and users may not read the kernel's log.
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(log, 0, os.SEEK_END)
            self._log = log
        count, events = ctypes.c_uint(), ctypes.c_void_p()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle, pci = ctypes.c_void_p(), _Pci()
            if self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)):
                known = self._call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
                address = (pci.domain, pci.bus, pci.device) if known else None
                uuid = text(self._library.nvmlDeviceGetUUID, handle)
                self.gpus.append(Gpu(handle, uuid, is_split(self._library, handle), address))
        if self._call("nvmlEventSetCreate", ctypes.byref(events)):
            kind = ctypes.c_ulonglong(_XID_EVENT)
            heard = [self._call("nvmlDeviceRegisterEvents", gpu.handle, kind, events) for gpu in self.gpus]
            self._events = events if heard and all(heard) else None

    @property
    def xid_sources(self) -> list[str]:
        """Return the sources of Xid messages: `nvml`, `kernel log`; empty if there is none."""
        sources = {"nvml": self._events is not None, "kernel log": self._log is not None}
        return [name for name, heard in sources.items() if heard]

    def snapshot(self) -> list[dict[str, Any]]:
        return [self._state(gpu) for gpu in self.gpus]

    def read(self) -> None:
        """Take one reading: clocks, processes, and the Xid messages since the last one."""
        for gpu in self.gpus:
            bits = self._reasons(gpu)
            if bits is not None:
                gpu.readings += 1
                for bit, name in REASONS.items():
                    gpu.in_a_row[name] = gpu.in_a_row.get(name, 0) + 1 if bits & bit else 0
                    if bits & bit:
                        seen = gpu.reasons.setdefault(name, {"readings": 0, "in_a_row": 0})
                        seen["readings"] += 1
                        seen["in_a_row"] = max(seen["in_a_row"], gpu.in_a_row[name])
            if self._knows_processes and not gpu.mig:
                gpu.others |= {pid for pid in self._processes(gpu) or () if self.is_other(pid)}
        data = _EventData()
        while self._events is not None and self._call(
            "nvmlEventSetWait_v2", self._events, ctypes.byref(data), ctypes.c_uint(0)
        ):
            for gpu in self.gpus:
                if gpu.handle.value == data.device:
                    gpu.xids.append(int(data.data))
        for address, code in logged(self._log):
            for gpu in self.gpus:
                # The same message may come from both sources: only the codes matter, not how often they came.
                if gpu.address == address and code not in gpu.xids:
                    gpu.xids.append(code)

    def _call(self, name: str, *arguments: Any) -> bool:
        """Call a function; False where this driver has none of that name, or it does not answer."""
        return hasattr(self._library, name) and getattr(self._library, name)(*arguments) == 0

    def _state(self, gpu: Gpu) -> dict[str, Any]:
        errors, numbers = ctypes.c_ulonglong(), [ctypes.c_uint() for _ in range(4)]
        counted = (_UNCORRECTED, _VOLATILE, ctypes.byref(errors))
        ecc = self._call("nvmlDeviceGetTotalEccErrors", gpu.handle, *counted)
        rows = self._call("nvmlDeviceGetRemappedRows", gpu.handle, *map(ctypes.byref, numbers))
        _, _, pending, failed = (number.value for number in numbers)
        retired = ctypes.c_uint()
        # GPUs before Ampere retire pages instead.
        pages = self._call("nvmlDeviceGetRetiredPagesPendingStatus", gpu.handle, ctypes.byref(retired))
        processes = None if gpu.mig else self._processes(gpu)
        return {
            "uncorrected_errors": errors.value if ecc else None,
            "remapping_pending": bool(pending) if rows else bool(retired.value) if pages else None,
            "remapping_failed": bool(failed) if rows else None,
            "clocks": True if self._reasons(gpu) is not None else None,
            "processes": None if processes is None else len(processes),
        }

    def _reasons(self, gpu: Gpu) -> int | None:
        bits = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._call(name, gpu.handle, ctypes.byref(bits)):
                return bits.value
        return None

    def _processes(self, gpu: Gpu) -> list[int] | None:
        for suffix, kind in (("_v3", _ProcessInInstance), ("_v2", _ProcessInInstance), ("", _Process)):
            count, found = ctypes.c_uint(_PROCESSES), (kind * _PROCESSES)()
            name = f"nvmlDeviceGetComputeRunningProcesses{suffix}"
            if self._call(name, gpu.handle, ctypes.byref(count), found):
                return [entry.pid for entry in found[: count.value]]
        return None

    def is_other(self, pid: int) -> bool:
        """Return whether a process exists and does not descend from the probe."""
        while pid > 1 and pid != self._root:
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    pid = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return False
        return pid != self._root


def logged(log: int | None) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the PCI address and the code of each Xid message that is new in the kernel's log."""
    while log is not None:
        try:
            record = os.read(log, 8192)
        except BrokenPipeError:  # older records were overwritten before they were read
            continue
        except OSError:
            return
        if not record:
            return
        for match in _XID_LINE.finditer(record):
            yield tuple(int(part, 16) for part in match.groups()[:3]), int(match[4])
