"""The watch of the GPUs reads the kernel's log and the owners of processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from validator.probe.watch import Health, logged

#: As the driver writes them to the kernel's log.
LOG = (
    b"4,1203,91234567,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off.\n"
    b"6,1204,91234568,-;usb 1-1: new device\n"
    b"4,1205,91234569,-;NVRM: Xid (PCI:0001:AF:1f): 31, pid=4242, name=python, Ch 00000008, MMU Fault\n"
)


def test_xid_messages_of_the_kernel_log_are_read_with_the_address_of_their_gpu() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, LOG)
    try:
        assert list(logged(reader)) == [((0, 0x3B, 0), 79), ((1, 0xAF, 0x1F), 31)]
        # Nothing new, and then the end of it.
        assert list(logged(reader)) == []
        os.close(writer)
        assert list(logged(reader)) == []
    finally:
        os.close(reader)


def test_without_a_kernel_log_nothing_is_read() -> None:
    assert list(logged(None)) == []


@pytest.mark.slow
def test_only_a_process_that_exists_and_does_not_descend_from_the_probe_is_another() -> None:
    watch = Health(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not watch.is_other(os.getpid())
        assert not watch.is_other(child.pid)
        assert watch.is_other(os.getppid())
        assert watch.is_other(1)
        assert Health(child.pid).is_other(os.getpid())
    finally:
        child.communicate()
    assert not watch.is_other(child.pid)
    assert not watch.is_other(4_000_001)


def test_without_nvml_there_is_an_error_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.probe.host.NVML_NAMES", ("libno-such-nvml.so.1",))
    watch = Health(os.getpid())
    assert watch.error is not None and "libno-such-nvml" in watch.error
    assert (watch.snapshot(), watch.xid_sources) == ([], [])
    watch.read()
