"""Run programs among the files of a base, without an engine."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ..system import processes
from ..system.files import full_disk_named
from ..system.runs import temporary_directory
from .base import Base
from .base_files import ForwardFile, hidden_by, parts_of
from .bytecode import ENVIRONMENT

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
            _hide(root, hidden)
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


def _hide(root: Path, hidden: str) -> None:
    """Remove what a whiteout hides: a path, or the content of a directory if it ends with a slash."""
    target = _inside(root, hidden)
    if not hidden.endswith("/"):
        _remove(target)
    elif target.is_dir() and not target.is_symlink():
        for entry in target.iterdir():
            _remove(entry)


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
