"""Keep notes of what a process of this tool has to clean up, so that the next one can after a `kill -9`.

A *run* is one process of this tool. It has a directory in the machine's state directory, with a lock and a
note for each thing to clean up: a temporary directory, a container. The kernel releases the lock when the
process ends, however it ends. The next process that finds the lock free takes over the notes, and removes
exactly what they name. Nothing is ever removed because of its name, a label or its age. Runs are told apart
by their locks, even if they have the same host name and process ids, in different PID namespaces.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MissingError
from . import orphans
from .files import full_disk_named, machine_directory, make_machine_directory, replace_file, text_or_nothing

logger = logging.getLogger(__name__)

_NOTES = "*.json"
_OWNER = "owner"
_LOCK = "lock"
_DIRECTORY = "directory"
_RUN = "run"
#: The beginning of the name of every temporary directory.
_PREFIX = "validator-"


@dataclass
class Note:
    """One thing to clean up, in a file. content: texts by name."""

    path: Path
    content: dict[str, str]

    @property
    def age_s(self) -> float:
        """Seconds since the note was last written."""
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0

    def write(self, **fields: str) -> None:
        """Add to the note, and return once it is on the disk. Raises MissingError if it can't be written."""
        content = {**self.content, **fields}
        try:
            with full_disk_named(self.path):
                _write(self.path, content)
        except OSError as error:
            raise MissingError(
                f"{self.path}: can't be written: {error.strerror}",
                hint="notes of what a run has to clean up are stored there; set XDG_STATE_HOME to a directory"
                " that you may write to",
            ) from error
        self.content = content

    def erase(self) -> None:
        """Remove the note, because there is nothing left to clean up."""
        self.path.unlink(missing_ok=True)


@dataclass
class Run:
    """The run of this process in one state directory."""

    directory: Path
    _lock: int
    _inherited: list[Note] = field(default_factory=list)

    def note(self, kind: str, **content: str) -> Note:
        """Note something to clean up, before it is created."""
        note = Note(self.directory / f"{kind}-{secrets.token_hex(8)}.json", {})
        note.write(**content)
        return note

    def inherited(self, kind: str) -> list[Note]:
        """Return the notes of dead runs that are still there."""
        return [note for note in self._inherited if note.path.name.startswith(kind) and note.path.exists()]

    def close(self) -> None:
        """End the run. If something is left to clean up, its directory stays for the next one."""
        with contextlib.suppress(OSError):
            if not any(self.directory.glob(_NOTES)):
                # Remove the owner's file first: without its lock, a run looks like a dead one.
                (self.directory / _OWNER).unlink()
                shutil.rmtree(self.directory)
        os.close(self._lock)


class _Process:
    """The runs of this process (one, except in tests), its identifier, and its watcher."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.identifier = secrets.token_hex(16)
        self.runs: dict[Path, Run] = {}
        self.watcher: subprocess.Popen[bytes] | None = None


_guard = threading.RLock()
_process = _Process()


def current() -> Run:
    """Return this process's run. The first call cleans up after runs that were killed.

    Raises MissingError if there is no directory to write the notes to.
    """
    with _guard:
        process = _this_process()
        place = machine_directory()
        run = process.runs.get(place)
        if run is not None:
            return run
        with full_disk_named(place):
            run = _open(process.identifier)
        process.runs[place] = run
        # End the processes of dead runs, then remove their temporary directories.
        dead = run.inherited(_RUN)
        identifiers = {note.content.get("identifier", "") for note in dead} - {""}
        if dead and (ended := orphans.end_processes(identifiers)):
            logger.info("ended %d processes of a run that was killed", ended)
        for note in dead:
            note.erase()
        for note in run.inherited(_DIRECTORY):
            logger.info("removing %s of a run that was killed", note.content.get("path"))
            _remove_directory(note)
        return run


def environment_of_children() -> dict[str, str]:
    """Return the variable that every child needs, so that it can be found if this process is killed.

    The first call starts the watcher, see `orphans`.
    """
    with _guard:
        process = _this_process()
        with contextlib.suppress(MissingError):
            # Without notes, the watcher still ends the children.
            current()
        if process.watcher is None and sys.platform == "linux":
            process.watcher = _start_watcher(process.identifier)
        return {orphans.VARIABLE: process.identifier}


@contextlib.contextmanager
def temporary_directory(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a directory for this user only, and remove it afterwards, or in the next run after a `kill -9`.

    purpose: a word for its name. parent: None for the directory for temporary files.
    Raises MissingError if the disk is full.
    """
    parent = (parent or Path(tempfile.gettempdir())).absolute()
    path = parent / f"{_PREFIX}{purpose}-{secrets.token_hex(8)}"
    note = current().note(_DIRECTORY, path=str(path))
    try:
        with full_disk_named(parent):
            path.mkdir(mode=0o700)
        yield path
    finally:
        _remove_directory(note)


def _this_process() -> _Process:
    """Return the state of this process. A fork is another process, and must not clean up for its parent."""
    global _process
    if _process.pid != os.getpid():
        _process = _Process()
    return _process


@atexit.register
def _finish() -> None:
    if _process.pid != os.getpid():
        return
    for run in _process.runs.values():
        run.close()
    if _process.watcher is not None and _process.watcher.stdin is not None:
        with contextlib.suppress(OSError):
            _process.watcher.stdin.write(orphans.FINISHED)
            _process.watcher.stdin.close()
        # Nobody waits for it. Without a status, Popen warns about that.
        _process.watcher.returncode = 0


def _start_watcher(identifier: str) -> subprocess.Popen[bytes] | None:
    try:
        watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", orphans.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            # Ctrl-C in a terminal, and signals to this process's group, must not end it.
            start_new_session=True,
        )
        assert watcher.stdin is not None
        watcher.stdin.write(f"{identifier}\n".encode())
        watcher.stdin.flush()
    except OSError as error:
        logger.info("if this process is killed, its children may keep running: %s", error)
        return None
    return watcher


def _open(identifier: str) -> Run:
    """Make the directory of a new run, and take over the notes of dead ones."""
    runs = _runs_directory()
    with open(runs / f".{_LOCK}", "wb") as everybody:
        # Until a new run holds its lock, it looks like a dead one.
        fcntl.flock(everybody, fcntl.LOCK_EX)
        dead = [path for path in runs.iterdir() if path.is_dir() and is_dead(path)]
        directory = runs / secrets.token_hex(8)
        directory.mkdir(mode=0o700)
        handle = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(directory / _OWNER, {"identifier": identifier, **_owner(os.getpid())})
        return Run(directory, handle, [note for path in dead for note in _take_over(path, directory)])


def _runs_directory() -> Path:
    """Return the directory with a directory for each run, in the state directory if that can be written."""
    try:
        place = make_machine_directory() / "runs"
        place.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        return place
    except (MissingError, OSError, RuntimeError) as error:
        logger.info("notes are kept in the directory for temporary files: %s", error)
    place = Path(tempfile.gettempdir()) / f"{_PREFIX}runs-{os.geteuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        if not _is_own_directory(place) or stat.S_IMODE(place.lstat().st_mode) != 0o700:
            raise MissingError(
                f"{place}: belongs to another user, or other users may write to it",
                hint="set XDG_STATE_HOME to a directory that you may write to",
            )
    except OSError as error:
        raise MissingError(
            f"{place}: can't be created: {error.strerror}",
            hint="set XDG_STATE_HOME to a directory that you may write to",
        ) from error
    return place


def is_dead(directory: Path) -> bool:
    """Return True if the process of a run has ended; False if it has not, or if that can't be told."""
    try:
        with open(directory / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = _read(directory / _OWNER)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        # It was killed before it had a lock or an owner, so it did not create anything.
        return True
    except (OSError, ValueError):
        return False
    here = _owner(os.getpid())
    if any(owner.get(name) != here[name] for name in ("boot", "pid_namespace")):
        return True
    # On a file system whose locks don't work, the lock looks free.
    pid = owner.get("pid", "")
    return not pid.isdecimal() or _owner(int(pid))["started"] != owner.get("started")


def boot() -> str:
    """Return a text that identifies this machine until it starts again; empty if it has none."""
    return text_or_nothing(Path("/proc/sys/kernel/random/boot_id"))


def _owner(pid: int) -> dict[str, str]:
    """Return a text that identifies a process of this PID namespace and is never used again."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return {
        "boot": boot(),
        "pid_namespace": namespace,
        "pid": str(pid),
        # In clock ticks since boot: field 22 of proc_pid_stat(5).
        "started": next(
            iter(text_or_nothing(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[19:20]), ""
        ),
    }


def _take_over(dead: Path, own: Path) -> list[Note]:
    """Move the notes of a dead run to this one, and add a note of its processes."""
    notes = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        identifier = _read(dead / _OWNER)["identifier"]
        path = own / f"{_RUN}-{secrets.token_hex(8)}.json"
        _write(path, {"identifier": identifier})
        notes.append(Note(path, {"identifier": identifier}))
    for path in dead.glob(_NOTES):
        try:
            notes.append(Note(own / path.name, _read(path)))
            os.rename(path, own / path.name)
        except (OSError, ValueError):
            # Without its file, it is not known what the note was about.
            continue
    shutil.rmtree(dead, ignore_errors=True)
    return notes


def _remove_directory(note: Note) -> None:
    """Remove a temporary directory of ours. The note stays if something is left of it."""
    path = Path(note.content["path"])
    if _is_own_directory(path) and path.name.startswith(_PREFIX):
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            return
    note.erase()


def _is_own_directory(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _write(path: Path, content: dict[str, str]) -> None:
    """Write a file that is completely on the disk when this returns."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        replace_file(directory, path.name, json.dumps(content).encode())
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> dict[str, str]:
    """Return the content of a file. Raises OSError, and ValueError if it is not a note."""
    content: Any = json.loads(path.read_bytes())
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise ValueError(f"{path} is not a note")
    return content
