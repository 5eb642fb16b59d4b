"""Prepare the directory where XLA keeps what it compiles, and print its path: `cache.py PLACE DRIVER GPU...`

The entry point runs it with the image's own Python, if VALIDATOR_XLA_CACHE names a PLACE: a directory that
outlives the container, and in it a name for the image, `TENSORFLOW-DIGEST`. What is kept there is code that
will be run. So every user, image, GPU and driver gets a directory of its own, which belongs to the user and
which nobody else may read or write (mode 0700).

TensorFlow ends the program if it can't write an entry or can't read a damaged one. So nothing is kept if the
disk is nearly full, and damaged entries are removed. TensorFlow itself removes nothing: here, the directories
that were not used for the longest time go first, and then the oldest files, until LIMIT is kept.

Exits with status 1 and one line on stderr if nothing can be kept.
"""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

#: All that one user keeps, in bytes, and what must be free for it on the disk.
LIMIT = 2 << 30
FREE = 1 << 30
#: Bytes that the user must be allowed to write.
QUOTA = 32 << 20
#: Seconds after which a file that is still being written was left by a process that was killed.
LEFT = 24 * 3600


class Refused(Exception):
    """Nothing can be kept."""


def prepare(place, driver, gpus):
    """Return the directory, which exists and keeps to the limits. Raises Refused or OSError."""
    root, image = Path(place).parent, Path(place).name
    version = image.rpartition("-")[0]
    installed = f"lib/python*/site-packages/tensorflow-{version}.dist-info"
    if not list(Path(sys.executable).parent.parent.glob(installed)):
        raise Refused(f"the image has another TensorFlow than {version}")
    if not driver or not gpus:
        raise Refused("the driver or the GPU is not known")
    os.umask(0o077)
    own = root / str(os.getuid())
    if not re.fullmatch(r"[\w./+:@~-]+", str(own), re.ASCII):
        raise Refused("the path has characters that end a flag, such as a space")
    host = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join([*sorted(set(gpus)), driver]))
    chosen = own / f"{image}-{host}"
    for directory in (own, chosen):
        directory.mkdir(parents=True, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise Refused(f"{directory} is not a directory of user {os.getuid()}")
        directory.chmod(0o700)
    os.utime(chosen)
    # Another container may remove something at the same time.
    with contextlib.suppress(FileNotFoundError):
        prune(own, chosen)
    if shutil.disk_usage(chosen).free < FREE:
        raise Refused(f"less than {FREE >> 30} GiB is free")
    # What is free on the disk may be more than a quota allows.
    with tempfile.TemporaryFile(dir=chosen) as file:
        os.posix_fallocate(file.fileno(), 0, QUOTA)
    return chosen


def prune(own, chosen):
    """Remove what is damaged, and what is beyond the limit."""
    now = chosen.stat().st_mtime
    used = {directory: directory.stat().st_mtime for directory in own.iterdir()}
    files = []
    for directory in used:
        for path in directory.rglob("*"):
            try:
                found = path.lstat()
                if not stat.S_ISREG(found.st_mode):
                    continue
                abandoned = path.suffix == ".tmp" and found.st_mtime < now - LEFT
                if abandoned or (path.suffix == ".pb" and not is_whole(path, found.st_size)):
                    path.unlink()
                else:
                    order = (directory == chosen, used[directory], found.st_mtime)
                    files.append((order, found.st_size, path))
            except FileNotFoundError:
                continue
    kept = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if kept <= LIMIT:
            break
        path.unlink(missing_ok=True)
        kept -= size
    for directory, when in used.items():
        if when < now - LEFT and not any(path.is_file() for path in directory.rglob("*")):
            shutil.rmtree(directory, ignore_errors=True)
        elif directory != chosen:
            # To remove a file is not to use the directory.
            os.utime(directory, (when, when))


def is_whole(path, size):
    """Return whether a file ends where the last field of its message does.

    An entry of TensorFlow's cache is an XlaSerializedCacheEntry: the fields 1 to 3, each a length and bytes.
    """
    seen = set()
    with path.open("rb") as file:
        while file.tell() < size:
            field = file.read(1)[0]
            length = shift = 0
            while True:
                byte = file.read(1)
                if not byte:
                    return False
                length |= (byte[0] & 0x7F) << shift
                shift += 7
                if byte[0] < 0x80:
                    break
            if field & 7 != 2 or file.tell() + length > size:
                return False
            seen.add(field >> 3)
            file.seek(length, os.SEEK_CUR)
    return {1, 2, 3} <= seen


if __name__ == "__main__":
    try:
        print(prepare(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except (Refused, OSError) as error:
        print(f"tensorflow-gpu-matrix: XLA keeps nothing for the next start: {error}.", file=sys.stderr)
        raise SystemExit(1) from None
