"""Runs inside an image derived from one of ours: which files of TensorFlow and NVIDIA's wheels changed?

An assembled image gives every file the time 0 and the content that RECORD lists. Files that still have that
time and their size are taken as unchanged, so that gigabytes need not be read; the hash decides about others.
Prints JSON: for each distribution the changed and missing files. Standard library only, Python 3.9 and newer.
"""

import base64
import csv
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path

OURS = re.compile(r"(tensorflow|nvidia)([-_.].*)?", re.IGNORECASE)


def changed_files() -> dict[str, list[str]]:
    """Return the changed files by distribution; only distributions with such files."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        record = distribution.read_text("RECORD")
        if OURS.fullmatch(name) and record:
            changed = [
                path
                for path, digest, size in csv.reader(record.splitlines())
                if digest and _changed(Path(str(distribution.locate_file(path))), digest, int(size or -1))
            ]
            if changed:
                found[name.lower().replace("_", "-")] = sorted(changed)
    return dict(sorted(found.items()))


def _changed(path: Path, digest: str, size: int) -> bool:
    try:
        status = os.lstat(path)
        if status.st_mtime == 0 and status.st_size == size:
            return False
        algorithm, _, expected = digest.partition("=")
        hashed = hashlib.new(algorithm)
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                hashed.update(block)
    except (OSError, ValueError):
        return True
    return base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=") != expected


if __name__ == "__main__":
    json.dump(changed_files(), sys.stdout)
