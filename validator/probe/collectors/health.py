"""Read the health of each GPU from NVML repeatedly, while the checks use it.

Functions, fields and codes are those of NVML (nvml.h). A value that the driver doesn't tell (under WSL, on
a vGPU, on a GPU without ECC) is None. It runs in a process of its own (`watch`), which a hanging driver
may block.
"""

import ctypes
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from .driver import is_split, open_nvml, text

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
_KERNEL_LOG = "/dev/kmsg"
_XID_LINE = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)[^)]*\): (\d+)")


class _EventData(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _ProcessInInstance(ctypes.Structure):
    _fields_ = [*_Process._fields_, ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


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
    uuid: Optional[str]
    mig: Optional[bool]
    address: Optional[Tuple[int, ...]]
    readings: int = 0
    reasons: Dict[str, Dict[str, int]] = field(default_factory=dict)
    in_a_row: Dict[str, int] = field(default_factory=dict)
    xids: List[int] = field(default_factory=list)
    others: Set[int] = field(default_factory=set)


class Health:
    """The GPUs that NVML shows. error: why there are none; None if NVML answers."""

    def __init__(self, root: int) -> None:
        """Connect to NVML. root: the process whose descendants don't count as other processes."""
        found: Dict[str, Any] = {"error": None}
        self.gpus: List[Gpu] = []
        self._root = root
        self._library: Any = open_nvml(found)
        self._events: Optional[ctypes.c_void_p] = None
        self._log: Optional[int] = None
        self._knows_processes = _in_first_pid_namespace()
        if self._library is not None and self._library.nvmlInit_v2() != 0:
            self._library, found["error"] = None, "nvmlInit failed"
        self.error: Optional[str] = found["error"]
        if self._library is not None:
            self._find()
            self._register()
            self._log = _kernel_log()

    @property
    def xid_sources(self) -> List[str]:
        """Return the sources of Xid messages: `nvml`, `kernel log`; empty if there is none."""
        sources = {"nvml": self._events is not None, "kernel log": self._log is not None}
        return [name for name, heard in sources.items() if heard]

    def snapshot(self) -> List[Dict[str, Any]]:
        """Return, for each GPU, the state that is compared before and after the run. clocks: whether they
        can be read."""
        return [self._state(gpu) for gpu in self.gpus]

    def read(self) -> None:
        """Take one reading: clocks, processes, and the Xid messages since the last one."""
        for gpu in self.gpus:
            self._read_clocks(gpu)
            if self._knows_processes and not gpu.mig:
                gpu.others |= {pid for pid in self._processes(gpu) or () if self._is_other(pid)}
        for handle, code in self._reported():
            for gpu in self.gpus:
                if gpu.handle.value == handle:
                    gpu.xids.append(code)
        for address, code in _logged(self._log):
            for gpu in self.gpus:
                # The same message may come from both sources, so only the codes matter, not how often they
                # were seen.
                if gpu.address == address and code not in gpu.xids:
                    gpu.xids.append(code)

    def _call(self, name: str, *arguments: Any) -> bool:
        """Call a function; False where this driver has none of that name, or it does not answer."""
        return hasattr(self._library, name) and getattr(self._library, name)(*arguments) == 0

    def _find(self) -> None:
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle, pci = ctypes.c_void_p(), _Pci()
            if not self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)):
                continue
            known = self._call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
            address = (pci.domain, pci.bus, pci.device) if known else None
            uuid = text(self._library.nvmlDeviceGetUUID, handle)
            self.gpus.append(Gpu(handle, uuid, is_split(self._library, handle), address))

    def _register(self) -> None:
        events = ctypes.c_void_p()
        if not self._call("nvmlEventSetCreate", ctypes.byref(events)):
            return
        kind = ctypes.c_ulonglong(_XID_EVENT)
        heard = [self._call("nvmlDeviceRegisterEvents", gpu.handle, kind, events) for gpu in self.gpus]
        self._events = events if heard and all(heard) else None

    def _reported(self) -> Iterator[Tuple[Optional[int], int]]:
        """Yield the GPU's handle and the code of each Xid that NVML has reported since the last call."""
        data = _EventData()
        while self._events is not None and self._call(
            "nvmlEventSetWait_v2", self._events, ctypes.byref(data), ctypes.c_uint(0)
        ):
            yield data.device, int(data.data)

    def _state(self, gpu: Gpu) -> Dict[str, Any]:
        errors, numbers = ctypes.c_ulonglong(), [ctypes.c_uint() for _ in range(4)]
        ecc = self._call(
            "nvmlDeviceGetTotalEccErrors", gpu.handle, _UNCORRECTED, _VOLATILE, ctypes.byref(errors)
        )
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

    def _reasons(self, gpu: Gpu) -> Optional[int]:
        bits = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._call(name, gpu.handle, ctypes.byref(bits)):
                return bits.value
        return None

    def _read_clocks(self, gpu: Gpu) -> None:
        bits = self._reasons(gpu)
        if bits is None:
            return
        gpu.readings += 1
        for bit, name in REASONS.items():
            gpu.in_a_row[name] = gpu.in_a_row.get(name, 0) + 1 if bits & bit else 0
            if bits & bit:
                seen = gpu.reasons.setdefault(name, {"readings": 0, "in_a_row": 0})
                seen["readings"] += 1
                seen["in_a_row"] = max(seen["in_a_row"], gpu.in_a_row[name])

    def _processes(self, gpu: Gpu) -> Optional[List[int]]:
        """Return the ids of the processes that compute on the GPU, or None."""
        for suffix, kind in (("_v3", _ProcessInInstance), ("_v2", _ProcessInInstance), ("", _Process)):
            count, found = ctypes.c_uint(_PROCESSES), (kind * _PROCESSES)()
            name = f"nvmlDeviceGetComputeRunningProcesses{suffix}"
            if self._call(name, gpu.handle, ctypes.byref(count), found):
                return [entry.pid for entry in found[: count.value]]
        return None

    def _is_other(self, pid: int) -> bool:
        """Return whether a process exists and does not descend from the probe."""
        while pid > 1 and pid != self._root:
            parent = _parent(pid)
            if parent is None:
                return False
            pid = parent
        return pid != self._root


def _in_first_pid_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _parent(pid: int) -> Optional[int]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _kernel_log() -> Optional[int]:
    """Open the kernel's log at its end, or return None: most containers and users may not read it."""
    try:
        log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return None
    return log


def _logged(log: Optional[int]) -> Iterator[Tuple[Tuple[int, ...], int]]:
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
