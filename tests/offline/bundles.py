"""Small bundles, written here by hand: an image's blob, a lock and the program, cut into volumes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BLOB = random.Random(7).randbytes(5000)
FILES = {
    "measure": b"#!/usr/bin/env python3\n" * 20,
    "locks/a.txt": b"a==1\n" * 30,
    f"images/blobs/sha256/{hashlib.sha256(BLOB).hexdigest()}": BLOB,
    "images/index.json": b"{}",
    "tool/a-1-py3-none-any.whl": b"wheel" * 300,
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write(directory: Path, size: int = 1000, members: Mapping[str, bytes] = FILES) -> dict[str, Any]:
    """Write a bundle with volumes of at most `size` bytes, and return its `bundle.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    volumes, stream = [], b"".join(members.values())
    for number, at in enumerate(range(0, len(stream), size)):
        content, holds, begin = stream[at : at + size], [], 0
        for path, whole in members.items():
            start, end = max(at, begin), min(at + len(content), begin + len(whole))
            if start < end:
                holds.append([path, start - begin, end - start])
            begin += len(whole)
        name = f"volume-{number + 1:04}"
        (directory / name).write_bytes(content)
        volumes.append({"name": name, "size": len(content), "sha256": sha256(content), "holds": holds})
    files = {
        path: {"size": len(content), "sha256": sha256(content)}
        for path, content in members.items()
        if "/blobs/" not in path
    }
    document = {"format": 1, "images": [], "hosts": [], "files": files, "volumes": volumes}
    save(directory, document)
    return document


def save(directory: Path, document: object) -> None:
    (directory / "bundle.json").write_text(json.dumps(document), encoding="utf-8")


def content(directory: Path) -> dict[str, bytes]:
    """Return the content of every file, by its path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
