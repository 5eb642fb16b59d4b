"""A small image with this machine's own Python, so that nodes can run the real probe without TensorFlow."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.assemble.images import push
from tests.registry.server import RunningRegistry
from validator.assemble.layers import Entry, InMemory

PYTHON = Path("/usr/bin/python3")
_LEFT_OUT = {
    "__pycache__",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "turtledemo",
}


def push_python(registry: RunningRegistry, repository: str) -> str:
    """Push the image and return its reference, `host/path@sha256:…`."""
    push(registry.address, repository, [entries()])
    return f"{registry.address}/{repository}@{registry.tags(repository)['latest']}"


def entries() -> list[Entry]:
    program = PYTHON.resolve()
    asked = [str(program), "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    library = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    files = [path for path in sorted(library.rglob("*")) if not _LEFT_OUT & set(path.parts)]
    shared: list[Path] = [program, *(path for path in files if path.suffix == ".so")]
    found = subprocess.run(["ldd", *map(str, shared)], check=True, capture_output=True, text=True).stdout
    libraries = {
        path for path in re.findall(r"(/\S+\.so[\w.]*) \(", found) if not path.startswith(str(library))
    }
    contents = {"usr/bin/python3": program, **{path.strip("/"): Path(path) for path in libraries}}
    contents.update({str(path).strip("/"): path for path in files if path.is_file()})
    directories = {str(parent) for path in contents for parent in Path(path).parents} - {"."}
    entries = [Entry(path, 0o755, InMemory(source.read_bytes())) for path, source in contents.items()]
    entries += [Entry(path, 0o755) for path in directories | {"proc", "dev", "sys"}]
    entries.append(Entry("tmp", 0o1777))
    return sorted(entries, key=lambda entry: entry.path)
