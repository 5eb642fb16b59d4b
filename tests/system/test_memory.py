"""The number of arenas that the C library makes for threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

#: Allocates in eight threads at once, and writes what glibc says about its arenas.
PROGRAM = """
import ctypes, sys, threading
from validator.system.pools import share_arenas

if sys.argv[1] == "shared":
    share_arenas()
started = threading.Barrier(8)

def allocate():
    kept = [bytearray(50_000) for _ in range(10)]
    started.wait(20)

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
stream = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, stream)
libc.fclose(stream)
"""


def arenas(mode: str, file: Path) -> int:
    subprocess.run([sys.executable, "-c", PROGRAM, mode, str(file)], check=True, timeout=60)
    return file.read_text(encoding="utf-8").count("<heap nr=")


@pytest.mark.slow
def test_threads_share_arenas(tmp_path: Path) -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("the C library is not glibc")
    assert arenas("shared", tmp_path / "shared") <= 2
    assert arenas("as usual", tmp_path / "usual") > 2
