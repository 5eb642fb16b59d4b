"""A script: unpack an image into a directory, and run a program in it, without a container engine.

    root.py make ROOT REQUEST        unpack the layers of an image, and put files and driver libraries into it
    root.py run ROOT REQUEST         run a command in it
    root.py try                      see if this machine gives namespaces
    root.py start COMMAND...         run a command here that ends with whoever starts it
    root.py end USER                 kill every process of the user that was set apart for an image's program
    root.py clean                    read commands, wait until whoever writes them ends, and run them

An image may be hostile. It is unpacked by a process that sees nothing but ROOT, so no link leads out of it;
device files are left out, and files lose their setuid bits. In a `namespace`, a program gets a file system,
process numbers and a network of its own. A `chroot`, for root where the kernel gives no namespaces, hides
only the files. In both, the program runs without any privileges, and as a user that nothing else on this
machine has. The script needs only the standard library of Python 3.9.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

#: What a user other than root is in a namespace.
NOBODY = 65534
#: Directories that are empty in every image, with their permissions. `/tmp` may have files.
OWN_DIRECTORIES = {"/dev": 0o755, "/proc": 0o755, "/sys": 0o755, "/tfm": 0o755, "/tmp": 0o1777}
#: Where the loader looks without a cache: in Debian and Ubuntu, and in other distributions.
LIBRARY_PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
BASIC_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_BLOCK = 1 << 20

# linux/sched.h, linux/mount.h and linux/prctl.h
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_NAMESPACES = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_DETACH = 2
_DIE_WITH_PARENT, _DROP_CAPABILITY, _NO_NEW_PRIVILEGES = 1, 24, 38
#: The system call has no function in the C library. This is its number on x86-64.
_PIVOT_ROOT = 155

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> None:
    """Raise OSError if a function of the C library failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends."""
    _libc.prctl(_DIE_WITH_PARENT, number, 0, 0, 0)


def _mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None)
    _call(f"mount on {target}", done)


def _leave_namespaces(flags: int) -> None:
    """Go to new namespaces; for a user other than root, in a user namespace in which this user is NOBODY."""
    user, group = os.geteuid(), os.getegid()
    _call("new namespaces", _libc.unshare(flags if user == 0 else flags | _NEWUSER))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


# Unpack an image.


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer of zstd.h, which have the same members."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


class _Zstd(io.RawIOBase):
    """Read zstd with libzstd.so.1, which more machines have than the program `zstd`: dpkg and rpm need it."""

    def __init__(self, source: IO[bytes], library: Any) -> None:
        library.ZSTD_createDStream.restype = ctypes.c_void_p
        library.ZSTD_decompressStream.restype = ctypes.c_size_t
        library.ZSTD_decompressStream.argtypes = (ctypes.c_void_p,) + (ctypes.POINTER(_Buffer),) * 2
        library.ZSTD_isError.argtypes = (ctypes.c_size_t,)
        self._library, self._stream = library, library.ZSTD_createDStream()
        self._source, self._data, self._in = source, b"", _Buffer()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        place = (ctypes.c_char * len(target)).from_buffer(target)
        out = _Buffer(ctypes.addressof(place), len(target), 0)
        ended = False
        while out.position == 0 and not ended:
            if self._in.position == self._in.size:
                self._data = self._source.read(_BLOCK)
                ended = not self._data
                address = ctypes.cast(ctypes.c_char_p(self._data), ctypes.c_void_p)
                self._in = _Buffer(address, len(self._data), 0)
            result = self._library.ZSTD_decompressStream(self._stream, out, self._in)
            if self._library.ZSTD_isError(result):
                raise OSError("a layer is damaged: it is not zstd")
        return int(out.position)


def make(root: str, request: dict[str, Any]) -> None:
    """Unpack an image.

    request: `layers`: path, digest and media type of each, lowest first. `files`: path in the image → path
    here. `libraries`: name of a library of the driver → path here. Raises OSError or TarError.
    """
    os.mkdir(root, 0o755)
    layers = [
        (io.BufferedReader(io.FileIO(path), _BLOCK), digest, kind) for path, digest, kind in request["layers"]
    ]
    for file, digest, _ in layers:
        found = hashlib.sha256()
        while block := file.read(_BLOCK):
            found.update(block)
        if f"sha256:{found.hexdigest()}" != digest:
            raise OSError(f"the layer {digest} is damaged: it has another digest")
        file.seek(0)
    files = {there: io.FileIO(here) for there, here in request["files"].items()}
    libraries = {name: io.FileIO(here) for name, here in request["libraries"].items()}
    zstd = ctypes.CDLL("libzstd.so.1") if any(kind.endswith("zstd") for _, _, kind in layers) else None
    for encoding in ("utf-8", "ascii", "latin-1"):
        "".encode(encoding)
    # From here on, the files of Python's own modules would be those of the image.
    sys.meta_path.clear()
    if os.geteuid():
        _leave_namespaces(_NEWNS)
    os.chroot(root)
    os.chdir("/")
    os.umask(0)
    for file, _, kind in layers:
        stream: Any = file
        if kind.endswith("zstd"):
            stream = io.BufferedReader(_Zstd(file, zstd), _BLOCK)
        elif kind.endswith("gzip"):
            stream = gzip.GzipFile(fileobj=file)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
            _unpack(archive)
    for path, mode in OWN_DIRECTORIES.items():
        if path != "/tmp" or os.path.islink(path) or not os.path.isdir(path):
            _remove(path)
            os.mkdir(path)
        os.chmod(path, mode)
    place = next((place for place in LIBRARY_PLACES if os.path.isdir(place)), LIBRARY_PLACES[-1])
    for path, source in {**{f"{place}/{name}": file for name, file in libraries.items()}, **files}.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _remove(path)
        with _new_file(path) as target:
            shutil.copyfileobj(source, target, _BLOCK)
            os.fchmod(target.fileno(), 0o755)


def _unpack(archive: tarfile.TarFile) -> None:
    """Unpack a layer over the layers below."""
    made: set[str] = set()
    for entry in archive:
        parent, name = os.path.split(os.path.normpath(f"/{entry.name}"))
        parent = os.path.realpath(parent)
        path = os.path.join(parent, name)
        if name.startswith(".wh."):
            hidden = [name[len(".wh.") :]]
            if name == ".wh..wh..opq":
                hidden = os.listdir(parent) if os.path.isdir(parent) else []
            for path in (os.path.join(parent, one) for one in hidden):
                # A file of the same layer stays, whatever the order in the archive is.
                if path not in made:
                    _remove(path)
            continue
        if path == "/" or not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            continue
        os.makedirs(parent, 0o755, exist_ok=True)
        if not (entry.isdir() and os.path.isdir(path) and not os.path.islink(path)):
            _remove(path)
        made.update((path, *(str(above) for above in Path(path).parents)))
        if entry.isdir():
            os.makedirs(path, exist_ok=True)
            os.chmod(path, entry.mode & 0o1777 | 0o700)
        elif entry.issym():
            os.symlink(entry.linkname, path)
        elif entry.islnk():
            os.link(os.path.normpath(f"/{entry.linkname}"), path, follow_symlinks=False)
        else:
            content = archive.extractfile(entry)
            assert content is not None
            with _new_file(path) as target:
                shutil.copyfileobj(content, target, _BLOCK)
                os.fchmod(target.fileno(), entry.mode & 0o777 | 0o600)
            # Byte code names the time of its source.
            os.utime(path, (entry.mtime, entry.mtime))


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _new_file(path: str) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


# Run a program in an image.


def run(root: str, request: dict[str, Any]) -> int:
    """Run a command and return its exit status.

    request: `way` (`namespace` or `chroot`), `command`, `environment`, `user`, and the `devices` of this
    machine.
    """
    way = request["way"]
    # If this process is killed, or its parent, so is the program.
    die_with_parent(signal.SIGKILL)
    if way == "namespace":
        _leave_namespaces(_NAMESPACES)
    alive, ours = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        status = _wait(child)
        if way == "chroot":
            end(request["user"])
        return status
    try:
        os.close(ours)
        die_with_parent(signal.SIGKILL)
        os.set_blocking(alive, False)
        with contextlib.suppress(BlockingIOError):
            if os.read(alive, 1) == b"":
                raise OSError("whoever started this has ended")
        if way == "namespace":
            _own_file_system(root, request["devices"])
            # The first process of a namespace ends the others with it. It runs nothing of the image and keeps
            # its privileges, so that no program can keep it from ending with its parent.
            program = os.fork()
            if program:
                os._exit(_wait(program))
        else:
            numbers = {path: os.stat(path).st_rdev for path in request["devices"]}
            # Where root may mount, the image gets the /proc without which TensorFlow does not start.
            with contextlib.suppress(OSError):
                _call("a mount namespace", _libc.unshare(_NEWNS))
                _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
                for path in ("/proc", "/sys"):
                    _mount(path, root + path, flags=_BIND | _RECURSIVE)
            os.chroot(root)
            os.chdir("/")
            for path, number in numbers.items():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mknod(path, 0o666 | stat.S_IFCHR, number)
                os.chmod(path, 0o666)
        for capability in range(64):
            _libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
        if os.geteuid() == 0:
            _become(request["user"])
            # A change of the user takes this setting away.
            die_with_parent(signal.SIGKILL)
        _call("no new privileges", _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        os.chdir(os.path.dirname(request["command"][1]))
        os.execvpe(request["command"][0], request["command"], request["environment"])
    except (OSError, ValueError) as error:
        print(f"the program in the image can't be started: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _wait(child: int) -> int:
    """Wait for a child, and reap others that end before it. Return its status as a shell does."""
    while True:
        found, ended = os.wait()
        if found == child:
            return os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else 128 + os.WTERMSIG(ended)


def _own_file_system(root: str, devices: Sequence[str]) -> None:
    """Make ROOT the only file system of this process, with a /proc, a /sys and a /dev of its own."""
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    _mount(root, root, flags=_BIND | _RECURSIVE)
    try:
        _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:
        # In a container whose /proc is masked, a user namespace may not have another one.
        _mount("/proc", f"{root}/proc", flags=_BIND | _RECURSIVE)
    _mount("sysfs", f"{root}/sys", "sysfs", _READ_ONLY | _NOSUID | _NODEV | _NOEXEC)
    _mount("tmpfs", f"{root}/dev", "tmpfs", _NOSUID)
    for path in devices:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.close(os.open(root + path, os.O_CREAT | os.O_WRONLY, 0o666))
        _mount(path, root + path, flags=_BIND)
    os.mkdir(f"{root}/dev/shm")
    os.chmod(f"{root}/dev/shm", 0o1777)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        # SIOCSIFFLAGS with IFF_UP: as in a container without a network, there is the loopback device.
        fcntl.ioctl(loopback, 0x8914, struct.pack("16sh14x", b"lo", 1))
    os.chdir(root)
    _call("pivot_root", _libc.syscall(_PIVOT_ROOT, b".", b"."))
    _call("umount of the old root", _libc.umount2(b".", _DETACH))
    os.chdir("/")


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


# Clean up, even if the measuring process was killed.


def end(user: int) -> None:
    """Kill every process of a user in one call, which none can outrun by starting others. This needs root."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        _become(user)
        # To root, this call would mean every process of the machine.
        if 0 not in os.getresuid():
            os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)


def clean(lines: IO[str]) -> None:
    """Read commands, and run them, the last one first, once nobody can write more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    found = [json.loads(line) for line in lines]
    # A process that was not killed sends an empty command last. If it is missing, an engine may still be
    # creating the container that it was asked for, so try again after pauses.
    for pause in (0,) if found[-1] == [] else (0, 1, 3):
        time.sleep(pause)
        for command in filter(None, reversed(found)):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    timeout=600,
                )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit status."""
    if arguments[0] == "clean":
        clean(sys.stdin)
        return 0
    try:
        if arguments[0] == "try":
            _leave_namespaces(_NAMESPACES)
            # Some systems give namespaces in which nothing may be mounted.
            _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
            _mount("tmpfs", "/tmp", "tmpfs")
            return 0
        if arguments[0] == "end":
            end(int(arguments[1]))
            return 0
        if arguments[0] == "start":
            die_with_parent(signal.SIGKILL)
            os.execvp(arguments[1], list(arguments[1:]))
        request = json.loads(Path(arguments[2]).read_text(encoding="utf-8"))
        if arguments[0] == "run":
            return run(arguments[1], request)
        make(arguments[1], request)
    except Exception as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
