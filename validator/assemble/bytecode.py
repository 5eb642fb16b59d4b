"""The layers of byte code. Without them, every start would compile the packages again, because the user
of the container can't write next to them.

The image's own Python compiles, among the files of the base: see `Runner`. Marshalled code depends on what
its process compiled before: a string counts as shared if some other code has it, too. So files are compiled
in batches, which depend only on the files of one wheel and their order, each forked from the same state.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import zstandard

from ..errors import BuildError
from ..system import processes
from ..system.files import full_disk_named
from ..system.runs import temporary_directory
from .base import Base, ForwardFile, Interpreter, hidden_by, parts_of
from .install import Contents, check_no_conflict, contents_of, merged
from .layers import Entry, LayerSource

RECIPE = "byte code 3"
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
_HEAD = struct.Struct(">III")
_RESULT_HEAD = struct.Struct(">II")
_END_OF_BATCH = _HEAD.pack(0, 0, 0)
_LARGEST = 1 << 30
_TIMEOUT_S = 3600.0
_PART = 1 << 20
#: The level of compression with zstd, in the temporary file.
_DISK_LEVEL = 1
#: The most bytes of compressed byte code that stay on the disk for other images.
_MOST_KEPT = 50_000_000


class Runner(Protocol):
    """Runs programs among the files of a base, without network and without access to this machine's files."""

    #: For people: `docker`, `bubblewrap`.
    name: str

    def command(self, argv: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Return the command that runs a program there, with `ENVIRONMENT` and its stdin, stdout and stderr.

        Raises MissingError if nothing can be run. A BuildError that is raised while the command is in use may
        become a MissingError with the reason why the command failed.
        """


@dataclass(frozen=True)
class SourceWheel:
    """A wheel to compile. entries: opens it, and returns its installed files."""

    name: str
    sha256: str
    entries: Callable[[], AbstractContextManager[Iterable[Entry]]]


@dataclass(frozen=True)
class CompiledWheel:
    """The byte code of a wheel, and what its installed files contain."""

    entries: tuple[Entry, ...]
    contents: Contents


@dataclass(frozen=True)
class Compilation:
    """The result of one run of a compiler, by the key of the wheel. size: on the disk, in bytes."""

    wheels: Mapping[str, CompiledWheel]
    size: int


class CompiledWheels:
    """The byte code of the wheels that were used last, up to 50 MB, for other images. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        #: The most recently used one is the last.
        self._kept: list[Compilation] = []

    def find(self, keys: Iterable[str]) -> dict[str, CompiledWheel]:
        """Return the wheels that are kept."""
        wanted = set(keys)
        found: dict[str, CompiledWheel] = {}
        with self._guard:
            for one in list(self._kept):
                if used := wanted & one.wheels.keys():
                    found.update((key, one.wheels[key]) for key in used)
                    self._kept.remove(one)
                    self._kept.append(one)
        return found

    def add(self, made: Compilation) -> None:
        with self._guard:
            self._kept.append(made)
            while sum(one.size for one in self._kept) > _MOST_KEPT:
                self._kept.pop(0)


def byte_code(
    name: str, python: Interpreter, wheels: Iterable[SourceWheel], runner: Runner, compiled: CompiledWheels
) -> LayerSource:
    """Return the layer with the byte code of wheels, as `pip install --compile` would make it.

    compiled: wheels that are in it are not compiled again; the others are compiled and added to it.
    """
    wheels = tuple(wheels)
    recipe = (RECIPE, python.version, str(MAGIC.get(python.feature, 0)))

    def entries() -> Iterator[Entry]:
        keys = {" ".join((*recipe, wheel.sha256)): wheel for wheel in wheels}
        found = compiled.find(keys)
        missing = {key: wheel for key, wheel in keys.items() if key not in found}
        if missing:
            with full_disk_named(tempfile.gettempdir()):
                made = _compile(name, python, missing, runner)
            compiled.add(made)
            found.update(made.wheels)
        check_no_conflict((wheel.name, found[key].contents) for key, wheel in keys.items())
        # Several wheels may contain the same file. The first one's byte code counts.
        unique = {entry.path: entry for key in reversed(keys) for entry in found[key].entries}
        yield from merged([(name, unique.values())])

    return LayerSource(name, (*recipe, *(wheel.sha256 for wheel in wheels)), entries)


def _compile(
    name: str, python: Interpreter, wheels: Mapping[str, SourceWheel], runner: Runner
) -> Compilation:
    with ExitStack() as stack:
        installed = {key: tuple(stack.enter_context(wheel.entries())) for key, wheel in wheels.items()}
        modules = [
            (key, entry)
            for key, some in installed.items()
            for entry in some
            if entry.content is not None and entry.path.startswith(_PACKAGES) and entry.path.endswith(".py")
        ]
        results = _Results(name, python, [entry.path for _, entry in modules])
        # Where Python finds the modules.
        directory = f"/opt/venv/lib/python{python.feature}/site-packages/"
        reading, writing = os.pipe()
        failed: list[BaseException] = []

        def feed() -> None:
            try:
                with open(writing, "wb") as stream:
                    for number, (key, entry) in enumerate(modules):
                        if number and key != modules[number - 1][0]:
                            stream.write(_END_OF_BATCH)
                        assert entry.content is not None
                        path = (directory + entry.path.removeprefix(_PACKAGES)).encode()
                        stream.write(_HEAD.pack(number, len(path), entry.content.size) + path)
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
                lines = [line for line in done.stderr_tail.splitlines() if line.strip()]
                said = [line for line in lines if not line.startswith("Run 'docker ")] or ["no message"]
                raise BuildError(
                    f"{name} can't be compiled with {runner.name}: {said[-1]}", log=done.stderr_tail
                )
        contents = {key: contents_of(some) for key, some in installed.items()}
    found: dict[str, list[Entry]] = {key: [] for key in wheels}
    for number, entry in results.entries().items():
        found[modules[number][0]].append(entry)
    made = {key: CompiledWheel(tuple(some), contents[key]) for key, some in found.items()}
    return Compilation(made, results.spool.size)


class _Results:
    """Receives byte code, and keeps it in a file. paths: of the modules in the image, by their numbers."""

    def __init__(self, name: str, python: Interpreter, paths: Sequence[str]) -> None:
        self._name, self._python, self._paths = name, python, paths
        self.spool = _Spool()
        self._buffer = bytearray()
        self._found: dict[int, _Spooled] = {}

    def add(self, data: bytes) -> None:
        """Take the next bytes of the output. Raises BuildError if they are not what was asked for."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _RESULT_HEAD.size:
            number, size = _RESULT_HEAD.unpack_from(self._buffer, at)
            if size > _LARGEST:
                raise self._wrong("its output has another format")
            begin = at + _RESULT_HEAD.size
            if len(self._buffer) < begin + size:
                break
            self._keep(number, bytes(self._buffer[begin : begin + size]))
            at = begin + size
        del self._buffer[:at]

    def _keep(self, number: int, content: bytes) -> None:
        if number >= len(self._paths) or number in self._found:
            raise self._wrong(f"it returned file {number}, which was not requested")
        magic = MAGIC.get(self._python.feature)
        if magic is not None and content[:4] != struct.pack("<H", magic) + b"\r\n":
            raise self._wrong(f"its byte code is not that of Python {self._python.feature}")
        self._found[number] = _Spooled(self.spool, self.spool.add(content), content)

    def entries(self) -> dict[int, Entry]:
        if self._buffer:
            raise self._wrong("its output ends in the middle of a file")
        end = f".cpython-{self._python.feature.replace('.', '')}.pyc"
        found = {}
        for number, one in self._found.items():
            directory, _, name = self._paths[number].rpartition("/")
            found[number] = Entry(f"{directory}/__pycache__/{name[:-3]}{end}", 0o644, one)
        return found

    def _wrong(self, why: str) -> BuildError:
        return BuildError(f"{self._name} can't be compiled with {self._python.path} of the base: {why}")


class _Spool:
    """A temporary file without a name, which exists as long as something refers to it. size: in bytes."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        # Making a compressor for each part would be slower. It can be shared because only one thread writes.
        self._compressor = zstandard.ZstdCompressor(level=_DISK_LEVEL)
        # Threads can't share a decompressor.
        self._of_thread = threading.local()
        self.size = 0

    def add(self, content: bytes) -> tuple[int, int]:
        """Write a part, compressed. Return its offset and size."""
        compressed = self._compressor.compress(content)
        place = self.size, len(compressed)
        self._file.write(compressed)
        self.size += len(compressed)
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        start, size = place
        if not hasattr(self._of_thread, "decompressor"):
            self._of_thread.decompressor = zstandard.ZstdDecompressor()
        found: bytes = self._of_thread.decompressor.decompress(os.pread(self._file.fileno(), size, start))
        return found


class _Spooled:
    def __init__(self, spool: _Spool, place: tuple[int, int], content: bytes) -> None:
        self.size, self.sha256 = len(content), hashlib.sha256(content).hexdigest()
        self._spool, self._place, self.stored_size = spool, place, place[1]

    def chunks(self) -> Iterator[bytes]:
        content = self._spool.read(self._place)
        for at in range(0, len(content), _PART):
            yield content[at : at + _PART]


# Run programs among the files of a base, without an engine.

_PROGRAM = "bwrap"
#: Names to follow in one path, with those of symbolic links.
_STEPS = 400
#: Directories that no compiler needs.
_LEFT_OUT = ("usr/share", "usr/include", "var", "boot", "dev", "proc", "sys", "tmp")


class Bubblewrap:
    """Runs programs with bubblewrap in user namespaces, which needs neither root nor an engine.

    The files of the base are unpacked to a temporary directory, about 100 MB.
    """

    name = "bubblewrap"

    def __init__(self, base: Base) -> None:
        self._base = base

    @contextmanager
    def command(self, argv: Sequence[str]) -> Iterator[Sequence[str]]:
        with temporary_directory("base") as directory, full_disk_named(directory):
            root = directory / "root"
            root.mkdir()
            for layer in self._base.layers:
                stream = cast(IO[bytes], ForwardFile(layer.archive()))
                with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as archive:
                    _unpack(archive, root)
            for name in ("dev", "proc", "tmp"):
                (root / name).mkdir(exist_ok=True)
            variables = [part for name, value in ENVIRONMENT.items() for part in ("--setenv", name, value)]
            yield [
                _PROGRAM, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *variables,
                "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
                "--chdir", "/", "--", *argv,
            ]  # fmt: skip


def bubblewrap(base: Base) -> Bubblewrap | None:
    """Return the runner if this machine can run it, otherwise None."""
    if shutil.which(_PROGRAM) is None:
        return None
    # Some distributions and containers forbid user namespaces.
    trial = [_PROGRAM, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return Bubblewrap(base) if processes.run(trial, timeout_s=30).ok else None


def _unpack(archive: tarfile.TarFile, root: Path) -> None:
    """Unpack a layer on top of those below it, and nothing outside of `root`, wherever its links lead."""
    for member in archive:
        path = "/".join(parts_of(member.name))
        if path.startswith(tuple(f"{name}/" for name in _LEFT_OUT)):
            continue
        if hidden := hidden_by(path):
            target = _inside(root, hidden)
            if not hidden.endswith("/"):
                _remove(target)
            elif target.is_dir() and not target.is_symlink():
                for below in target.iterdir():
                    _remove(below)
            continue
        target = _inside(root, path)
        if path and not member.isdir():
            _remove(target)
            target.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            if target.is_symlink() or not target.is_dir():
                _remove(target)
                target.mkdir(parents=True)
        elif member.issym():
            target.symlink_to(member.linkname)
        elif member.islnk():
            source = _inside(root, member.linkname)
            if source.is_file() and not source.is_symlink():
                os.link(source, target)
        elif member.isreg():
            stream = archive.extractfile(member)
            assert stream is not None
            with target.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            target.chmod(0o700 if member.mode & stat.S_IXUSR else 0o600)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _inside(root: Path, path: str) -> Path:
    """Return where a path of the base is, following links in it as if `root` were the root directory."""
    parts, done = parts_of(path), list[str]()
    for _ in range(_STEPS):
        if not parts:
            break
        done.append(parts.pop(0))
        here = root.joinpath(*done)
        if parts and here.is_symlink():
            target = os.readlink(here)
            start = [] if target.startswith("/") else done[:-1]
            parts, done = [*parts_of("/".join([*start, target])), *parts], []
    return root.joinpath(*done)
