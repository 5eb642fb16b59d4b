"""Compile Python files from stdin to byte code on stdout, in the Python of a base, from 3.9 on.

Each file begins with three numbers of four bytes: its own, and the lengths of its path and content, which
follow. A file without a path ends a batch. The byte code comes in any order; before each piece are the number
of its file and its length.
"""

from __future__ import annotations

import gc
import importlib._bootstrap_external
import importlib.util
import os
import struct
import sys
import traceback

_HEAD = struct.Struct(">III")
_RESULT_HEAD = struct.Struct(">II")
#: The limits of a batch, which one process compiles. It ends with the file that reaches either limit, so it
#: depends only on the files that come before it. Smaller batches take a tenth more time, because each process
#: allocates its memory anew.
_BATCH_FILES = 256
_BATCH_BYTES = 8 << 20


def _read(size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(0, size)
        if not part:
            if parts:
                raise EOFError("stdin ends in the middle of a file")
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class _Lock:
    """A lock that all processes share: a pipe with one byte in it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.write(self._write, b".")

    def __enter__(self) -> None:
        os.read(self._read, 1)

    def __exit__(self, *_: object) -> None:
        os.write(self._write, b".")


def _compiled(path: str, source: bytes) -> bytes | None:
    """Return the content of the .pyc file, or None if the file is not valid Python."""
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Packages contain templates, and tests of parsers. Python would not import such a file either.
        return None
    make = importlib._bootstrap_external._code_to_hash_pyc  # type: ignore[attr-defined]
    return bytes(make(code, importlib.util.source_hash(source), False))


def _batch() -> list[tuple[int, bytes, bytes]]:
    """Return the numbers, paths and sources of the next files, or an empty list at the end."""
    found: list[tuple[int, bytes, bytes]] = []
    total = 0
    while len(found) < _BATCH_FILES and total < _BATCH_BYTES:
        head = _read(_HEAD.size)
        if not head:
            break
        number, path_size, size = _HEAD.unpack(head)
        if path_size:
            found.append((number, _read(path_size), _read(size)))
            total += size
        elif found:
            break
    return found


def _compile_all(files: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return the output for these files."""
    parts: list[bytes] = []
    for number, path, source in files:
        result = _compiled(os.fsdecode(path), source)
        if result is not None:
            parts += [_RESULT_HEAD.pack(number, len(result)), result]
    return b"".join(parts)


def _work(reading: _Lock, writing: _Lock) -> int:
    while True:
        with reading:
            files = _batch()
        if not files:
            return 0
        child = os.fork()
        if child == 0:
            status = 1
            try:
                output = _compile_all(files)
                with writing:
                    _write(output)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1]:
            return 1


def main() -> int:
    # The processes end soon, and what they make has no cycles.
    gc.disable()
    # Everything that compiling needs is loaded before the forks.
    _compiled("warm-up", b"import sys\nx = 'a' if sys else {1, 2}\n")
    reading, writing = _Lock(), _Lock()
    workers = set()
    for _ in range(len(os.sched_getaffinity(0))):
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                status = _work(reading, writing)
            finally:
                os._exit(status)
        workers.add(worker)
    while workers:
        worker, status = os.wait()
        workers.discard(worker)
        if status:
            # The others may wait for a lock that nobody returns.
            for other in workers:
                os.kill(other, 9)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
