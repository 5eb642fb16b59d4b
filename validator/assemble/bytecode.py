"""The layers of byte code.

Without them, every start would compile the packages again, because the user of the container can't write next
to them.

The image's own Python compiles, among the files of the base: see `Runner`. Marshalled code depends on what
its process compiled before: a string counts as shared if some other code has it, too. So the files are
compiled in batches, which depend only on the files and their order, each in a process forked from the same
state.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ..errors import BuildError
from ..system import processes
from ..system.files import full_disk_named
from .base_files import Interpreter
from .entries import Deflated, Entry
from .layers import LayerSource
from .merge import merged

RECIPE = "byte code 2"
#: The magic number of each Python's byte code, which stays the same after the first release of a version.
MAGIC: Mapping[str, int] = {"3.9": 3425, "3.10": 3439, "3.11": 3495, "3.12": 3531, "3.13": 3571, "3.14": 3627}
#: What programs get as their environment. Without a fixed seed, sets of constants have a random order.
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}

_PACKAGES = "opt/venv/lib/python3/site-packages/"
_SCRIPT = Path(__file__).with_name("compile_script.py")
_HEAD = struct.Struct(">II")
_LONGEST_PATH, _LARGEST = 4096, 1 << 30
_TIMEOUT_S = 3600.0
_PART = 1 << 20
#: Of compression, for encodings that keep it. Another library gives other bytes, so it is part of the key.
_LEVEL = 1


class Runner(Protocol):
    """Runs programs among the files of a base, without network and without access to this machine's files."""

    #: For people: `docker`, `bubblewrap`.
    name: str

    def command(self, argv: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Return the command that runs a program there, with `ENVIRONMENT` and its stdin, stdout and stderr.

        Raises MissingError if nothing can be run. A BuildError that is raised while the command is in use may
        become a MissingError with the reason why the command failed.
        """


def byte_code(
    name: str,
    python: Interpreter,
    hashes: Iterable[str],
    sources: Callable[[ExitStack], Iterable[Entry]],
    runner: Runner,
) -> LayerSource:
    """Return the layer with the byte code of wheels, as `pip install --compile` would make it.

    hashes: of the wheels. sources: returns their installed files; they stay open as long as the stack.
    """
    magic = MAGIC.get(python.feature, 0)

    def entries() -> Iterator[Entry]:
        with full_disk_named(tempfile.gettempdir()), tempfile.TemporaryFile() as spool:
            with ExitStack() as stack:
                compiled = _compile(name, python, sources(stack), runner, spool)
            yield from merged([(name, compiled)])

    return LayerSource(
        name, (RECIPE, f"zlib {zlib.ZLIB_RUNTIME_VERSION}", python.version, str(magic), *hashes), entries
    )


def _compile(
    name: str, python: Interpreter, sources: Iterable[Entry], runner: Runner, spool: BinaryIO
) -> list[Entry]:
    wanted = {entry.path: entry for entry in sources if _is_module(entry)}
    prefix = f"/opt/venv/lib/python{python.feature}/site-packages/"
    results = _Results(name, python, {prefix + path.removeprefix(_PACKAGES) for path in wanted}, spool)
    reading, writing = os.pipe()
    failed: list[BaseException] = []

    def feed() -> None:
        try:
            with open(writing, "wb") as stream:
                for path, entry in wanted.items():
                    assert entry.content is not None
                    target = (prefix + path.removeprefix(_PACKAGES)).encode()
                    stream.write(_HEAD.pack(len(target), entry.content.size) + target)
                    for chunk in entry.content.chunks():
                        stream.write(chunk)
        except BrokenPipeError:
            pass
        except BaseException as error:
            failed.append(error)

    argv = [python.path, "-s", "-S", "-W", "ignore", "-c", _SCRIPT.read_text(encoding="utf-8")]
    with runner.command(argv) as command, open(reading, "rb") as stdin:
        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        done = processes.run(command, stdin=stdin, on_output=results.add, timeout_s=_TIMEOUT_S)
        feeder.join()
        if failed:
            raise failed[0]
        if not done.ok:
            raise BuildError(
                f"{name} can't be compiled with {runner.name}: {_reason(done.stderr_tail)}",
                log=done.stderr_tail,
            )
    return results.entries()


def _reason(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith("Run 'docker ")]
    return lines[-1] if lines else "no message"


def _is_module(entry: Entry) -> bool:
    return entry.content is not None and entry.path.startswith(_PACKAGES) and entry.path.endswith(".py")


class _Results:
    """Receives byte code, and keeps it in a file.

    allowed: the paths that were sent.
    """

    def __init__(self, name: str, python: Interpreter, allowed: set[str], spool: BinaryIO) -> None:
        self._name, self._python, self._allowed, self._spool = name, python, allowed, spool
        self._buffer = bytearray()
        self._found: dict[str, _Spooled] = {}
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes of the output. Raises BuildError if they are not what was asked for."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            path_size, size = _HEAD.unpack_from(self._buffer, at)
            if path_size > _LONGEST_PATH or size > _LARGEST:
                raise self._wrong("its output has another format")
            begin = at + _HEAD.size + path_size
            if len(self._buffer) < begin + size:
                break
            path = self._buffer[at + _HEAD.size : begin].decode("utf-8", "replace")
            self._keep(path, bytes(self._buffer[begin : begin + size]))
            at = begin + size
        del self._buffer[:at]

    def _keep(self, path: str, content: bytes) -> None:
        if path not in self._allowed:
            raise self._wrong(f"it returned {path[:200]}, which was not asked for")
        self._allowed.remove(path)
        magic = MAGIC.get(self._python.feature)
        if magic is not None and content[:4] != struct.pack("<H", magic) + b"\r\n":
            raise self._wrong(f"its byte code is not that of Python {self._python.feature}")
        tag = self._python.feature.replace(".", "")
        directory, _, name = path.rpartition("/")
        site = f"/opt/venv/lib/python{self._python.feature}/site-packages"
        inside = directory.removeprefix(site).lstrip("/")
        target = f"{_PACKAGES}{inside}/__pycache__" if inside else f"{_PACKAGES}__pycache__"
        compressor = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
        stream = compressor.compress(content) + compressor.flush()
        self._spool.write(stream)
        deflated = Deflated(len(stream), zlib.crc32(content))
        digest = hashlib.sha256(content).hexdigest()
        self._found[f"{target}/{name[:-3]}.cpython-{tag}.pyc"] = _Spooled(
            self._spool, self._size, len(content), digest, deflated
        )
        self._size += len(stream)

    def entries(self) -> list[Entry]:
        if self._buffer:
            raise self._wrong("its output ends in the middle of a file")
        self._spool.flush()
        return [Entry(path, 0o644, self._found[path]) for path in sorted(self._found)]

    def _wrong(self, why: str) -> BuildError:
        return BuildError(f"{self._name} can't be compiled with {self._python.path} of the base: {why}")


@dataclass(frozen=True)
class _Spooled:
    """A compressed part of a temporary file, as the content of an entry."""

    spool: BinaryIO
    start: int
    size: int
    sha256: str
    deflated: Deflated

    def chunks(self) -> Iterator[bytes]:
        content = zlib.decompress(b"".join(self.stream()), wbits=-zlib.MAX_WBITS)
        for at in range(0, len(content), _PART):
            yield content[at : at + _PART]

    def stream(self) -> Iterator[bytes]:
        yield os.pread(self.spool.fileno(), self.deflated.size, self.start)
