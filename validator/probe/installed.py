"""Describe the Python environment: interpreter, distributions, variables, and TensorFlow (not imported)."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import mmap
import os
import platform
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from . import table

#: Variables that change what TensorFlow, XLA, CUDA or the loader do.
VARIABLES = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|TF|XLA|XRT|TPU|KERAS|LD)_|PYTHON(PATH|HOME|NOUSERSITE|USERBASE)$"
    r"|(PATH|COLAB_TPU_ADDR|KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS|GCE_METADATA_(HOST|IP))$"
)
#: Another program's variables that share the prefix `TF_` (Terraform's), and names that hold credentials.
FOREIGN = re.compile(
    r"TF_(VAR|CLI|TOKEN|LOG|INPUT|DATA|WORKSPACE|PLUGIN|REATTACH)|.*(TOKEN|SECRET|PASSW|CREDENTIAL|KEY$)",
    re.IGNORECASE,
)


def normalized(name: str) -> str:
    """Return a distribution's name in lower case with runs of `-_.` as one dash (PyPA's normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages() -> dict[str, list[str]]:
    """Return versions by normalized name. A broken upgrade can leave two for one name."""
    found: dict[str, dict[str, None]] = {}
    for distribution in metadata.distributions():
        # A dist-info directory without METADATA, left by an interrupted uninstall, has no name.
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalized(name), {})[distribution.version] = None
    return {name: list(found[name]) for name in sorted(found)}


#: Top-level directories that some packages install by mistake; nobody imports them.
_STRAY = frozenset({"benchmarks", "docs", "examples", "scripts", "test", "tests"})


def import_names(package: str) -> list[str] | None:
    """Return the names that a distribution is imported by, sorted; None if it is not installed.

    For a namespace package, these are the first packages within it that belong to the distribution.
    """
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    files = [file.parts for file in distribution.files or []]
    inits = [parts[:-1] for parts in files if parts[-1] == "__init__.py" and parts[1:]]
    packages = {parts for parts in inits if all(part.isidentifier() for part in parts)}
    modules = {parts[0] for parts in files if len(parts) == 1 and parts[0].endswith((".py", ".so"))}
    stems = (name.partition(".")[0] for name in modules)
    names = {name for name in stems if name.isidentifier()}
    for parts in packages:
        if not any(parts[:size] in packages for size in range(len(parts))):
            names.add(".".join(parts))
    if not names:
        # An editable installation lists none of its modules.
        names = set((distribution.read_text("top_level.txt") or "").split())
    usual = {name for name in names if not name.startswith("_") and name not in _STRAY}
    return sorted(usual or names)


def environment(found: dict[str, list[str]], tensorflow: dict[str, Any] | None) -> dict[str, Any]:
    names = sorted(name for name in os.environ if VARIABLES.match(name) and not FOREIGN.match(name))
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "tensorflow": tensorflow["version"] if tensorflow else None,
        "packages": {name: ", ".join(versions) for name, versions in found.items()},
        "variables": {name: os.environ[name] for name in names},
    }


def tensorflow(found: dict[str, list[str]]) -> dict[str, Any] | None:
    """Return the TensorFlow that `import tensorflow` would take, or None.

    requires: the lines of its metadata that say what it requires; None without metadata.
    build: its build information (`tf.sysconfig.get_build_info()`), read without importing it; None when
        that file is not there.
    built_with: for each NVIDIA wheel that its metadata names, the version it was built and tested with:
        the pin, or the lower bound, of the `and-cuda` extra. Empty for releases without that extra.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    distribution = None
    # Any of several names may have installed it.
    for name in (name for name in table("stack")["same_package"]["tensorflow"] if name in found):
        candidate = metadata.distribution(name)
        if Path(str(candidate.locate_file("tensorflow"))).resolve() == directory.resolve():
            distribution = candidate
            break
    requirements = distribution.requires if distribution else None
    built_with: dict[str, str] = {}
    for requirement in requirements or []:
        match = re.match(r"(nvidia-[a-z0-9-]+)\s*\(?([^;)]*)\)?\s*;.*and-cuda", requirement)
        bound = re.search(r"(?:==|>=)\s*([0-9.]+)", match[2]) if match else None
        if match and bound:
            built_with[match[1]] = bound[1]
    # `build_info = collections.OrderedDict([...])` is read out of the generated module without running it.
    build: dict[str, Any] | None = None
    with contextlib.suppress(OSError, SyntaxError):
        text = (directory / "python" / "platform" / "build_info.py").read_text(encoding="utf-8")
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                build = dict(ast.literal_eval(statement.value.args[0]))
                break
    return {
        "version": distribution.version if distribution else None,
        "distribution": normalized(distribution.metadata["Name"]) if distribution else None,
        "directory": str(directory),
        "requires": requirements,
        "build": build,
        "built_with": built_with,
        "built_with_source": "and-cuda" if built_with else None,
    }


# List the copies of a library that could load, with their versions, without opening any of them.

#: The order in which glibc looks for a library that another one opens (ld.so(8), dlopen(3)). RUNPATH is that
#: of the object that opens it.
LIBRARY_PATH, RUNPATH, CACHE, DEFAULT = "LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache", "default directory"
_DEFAULTS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
#: The format glibc-ld.so.cache1.1 (sysdeps/generic/dl-cache.h): the header's size, and the fields of an entry
#: (flags, name, path, version of the operating system, capabilities).
_CACHE_MAGIC, _CACHE_HEADER, _CACHE_ENTRY = b"glibc-ld.so.cache1.1", 48, struct.Struct("<iIIIQ")
#: The part of an entry's flags that names the machine, and its value for x86-64.
_MACHINE_MASK, _X86_64 = 0xFF00, 0x0300
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 5, 15, 29


@dataclass(frozen=True)
class Copy:
    """One file with a soname. found_by: the first place that leads to it; path: links resolved."""

    path: str
    found_by: str


def library_path(variables: dict[str, str]) -> list[str]:
    return [entry for entry in variables.get("LD_LIBRARY_PATH", "").split(":") if entry]


def copies(
    soname: str, directories: Sequence[str], runpath: Sequence[str], cache: dict[str, list[str]]
) -> list[Copy]:
    """Return every copy of a library, in the order in which the loader would find it; each file once.

    directories: of `LD_LIBRARY_PATH`. runpath: of the object that opens it. cache: as `cached` gives it.
    """
    places = [
        *((LIBRARY_PATH, os.path.join(directory, soname)) for directory in directories),
        *((RUNPATH, os.path.join(directory, soname)) for directory in runpath),
        *((CACHE, path) for path in cache.get(soname, [])),
        *((DEFAULT, os.path.join(directory, soname)) for directory in _DEFAULTS),
    ]
    found: dict[str, Copy] = {}
    for place, path in places:
        real = os.path.realpath(path)
        if real not in found and os.path.isfile(real):
            found[real] = Copy(real, place)
    return list(found.values())


def cached(file: str = "/etc/ld.so.cache") -> dict[str, list[str]]:
    """Read `/etc/ld.so.cache`: paths by soname for this machine; empty where there is no such file."""
    found: dict[str, list[str]] = {}
    try:
        content = Path(file).read_bytes()
        # An older table may come first; offsets of this one count from its own beginning.
        content = content[content.index(_CACHE_MAGIC) :]

        def text(offset: int) -> str:
            return os.fsdecode(content[offset : content.index(b"\0", offset)])

        (count,) = struct.unpack_from("<I", content, len(_CACHE_MAGIC))
        entries = content[_CACHE_HEADER : _CACHE_HEADER + count * _CACHE_ENTRY.size]
        for flags, name, path, _, _ in _CACHE_ENTRY.iter_unpack(entries):
            if flags & _MACHINE_MASK == _X86_64:
                found.setdefault(text(name), []).append(text(path))
    except (OSError, ValueError, struct.error):
        return {}
    return found


def runpath(library: str) -> list[str]:
    """Return the directories that an ELF file (64 bits, little-endian) has the loader search, each once.

    DT_RUNPATH, or DT_RPATH where there is only that, with `$ORIGIN` put in; empty where it names none.
    """
    try:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            text = _search_path(content)
    except (OSError, ValueError, KeyError, OverflowError, struct.error):
        # Empty, cut short, or not an ELF file at all: the loader would reject it too.
        return []
    # As the loader does, without resolving links: a library may be a link to a file elsewhere.
    origin = os.path.dirname(os.path.abspath(library))
    entries = (entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for entry in text.split(":"))
    return list(dict.fromkeys(filter(None, entries)))


def _search_path(content: mmap.mmap) -> str:
    if content[:6] != b"\x7fELF\x02\x01":
        return ""
    table, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    # For each: type, offset in the file, address in memory, size in the file (elf(5), Elf64_Phdr).
    headers = [struct.unpack_from("<I4xQQ8xQ", content, table + number * size) for number in range(count)]
    entries: dict[int, int] = {}
    for kind, offset, _, length in headers:
        if kind == _PT_DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", content[offset : offset + length]):
                entries.setdefault(tag, value)
    path = entries.get(_DT_RUNPATH, entries.get(_DT_RPATH))
    if path is None:
        return ""
    strings = entries[_DT_STRTAB]
    for kind, offset, address, length in headers:
        if kind == _PT_LOAD and address <= strings < address + length:
            start = offset + strings - address + path
            return os.fsdecode(content[start : content.find(b"\0", start)])
    return ""


def version_of(path: str, soname: str) -> str | None:
    """Return the version of a library's file from its name or its wheel; else None.

    `libcublas.so.12.5.3.2` names its version; `nvidia/cudnn/lib/libcudnn.so.9` of a wheel does not, but the
    wheel's metadata next to `nvidia` does.
    """
    named = re.search(r"\.so\.(\d+(?:\.\d+)+)$", os.path.basename(path))
    if named and os.path.basename(path) != soname:
        return named[1]
    file = Path(path)
    if file.parent.name != "lib" or len(file.parents) < 4 or file.parents[2].name != "nvidia":
        return None
    wheel = file.parents[1].name
    found = [
        match[1]
        for entry in file.parents[3].glob(f"nvidia_{wheel}_cu*.dist-info")
        if (match := re.fullmatch(rf"nvidia_{wheel}_cu\d+-([^-]+)\.dist-info", entry.name))
    ]
    return found[0] if len(found) == 1 else None
