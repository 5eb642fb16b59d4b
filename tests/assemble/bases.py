"""A small base, made file by file, and locks of small wheels."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.assemble import wheel_layers
from validator.assemble.base import Base, BaseLayer, read_base
from validator.assemble.host_files import CacheEntry, LoaderCache, render
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheel import InstallableWheel, open_wheel
from validator.model.spec import Choice, ImageSpec, Lock, Variant, Wheel

from .wheels import record_of

GPU = ImageSpec("2.21.0", "3.11", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
CPU = ImageSpec("2.21.0", "3.11", Variant.CPU)
ELF = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little") + bytes(44)
CACHE = LoaderCache((CacheEntry("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1"),), "ldconfig")
FILES: dict[str, bytes | str | None] = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\n",
    "etc/shadow": b"root:*::0:99999:7:::\n",
    "etc/skel/.profile": b"# profile\n",
    "etc/ld.so.cache": render(CACHE),
    "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
    "etc/ld.so.conf.d/x86_64-linux-gnu.conf": b"# Multiarch\n/lib/x86_64-linux-gnu\n",
    "usr/bin/python3.11": ELF + b"\x003.11.2\x00and 3.2.0\x00",
    "usr/bin/python3": "python3.11",
    "usr/lib/x86_64-linux-gnu/libc.so.6": ELF + b"GNU C Library (Debian) stable release version 2.36.\n",
    "usr/lib64/ld-linux-x86-64.so.2": ELF,
    "lib64": "usr/lib64",
}


def archive(files: Mapping[str, bytes | str | None]) -> bytes:
    """Return a tar archive. files: by path, the content, the target of a link, or None for a directory."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o750
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            else:
                is_program = "bin/" in path or (".so." in path and not path.startswith("etc/"))
                member.size, member.mode = len(content), 0o750 if is_program else 0o640
            tar.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return stream.getvalue()


def layer(files: Mapping[str, bytes | str | None]) -> BaseLayer:
    data = archive(files)
    return BaseLayer(f"sha256:{hashlib.sha256(data).hexdigest()}", None, lambda: iter([data]))


def base_of(table: LayerTable, *layers: BaseLayer, environment: tuple[str, ...] = ()) -> Base:
    config = {"os": "linux", "architecture": "amd64", "config": {"Env": list(environment), "Cmd": ["bash"]}}
    return read_base("bootstrap:test@sha256:ba5e", "debian:test", None, config, layers, "3.11", table)


@dataclass(frozen=True)
class Shelf:
    """Wheels in a directory, by their hash."""

    directory: Path

    def path(self, wheel: Wheel) -> Path:
        return self.directory / wheel.sha256

    def open(self, wheel: Wheel) -> InstallableWheel:
        return open_wheel(self.path(wheel), wheel)

    def wheel(
        self, name: str, files: Mapping[str, bytes], size: int | None = None, tag: str = "py3-none-any"
    ) -> Wheel:
        """Write a wheel, and return its entry in a lock. size: what the lock says."""
        project = name.replace("-", "_")
        info = f"{project}-1.0.dist-info"
        everything = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        }
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
            for path, content in {**everything, f"{info}/RECORD": record_of(everything, info)}.items():
                opened.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
        digest = hashlib.sha256(stream.getvalue()).hexdigest()
        self.directory.mkdir(exist_ok=True)
        (self.directory / digest).write_bytes(stream.getvalue())
        return Wheel(name, "1.0", digest, f"{project}-1.0-{tag}.whl", size or len(stream.getvalue()))


def lock_of(spec: ImageSpec, *wheels: Wheel) -> Lock:
    return Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", (), wheels)


class ThisPython:
    """Runs the Python of the tests in place of a base's."""

    name = "test"

    def command(self, argv: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        return nullcontext([sys.executable, *argv[1:]])


def set_small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files and wheels have layers of their own."""
    for module in (wheel_layers, wheel_layers, wheel_layers):
        monkeypatch.setattr(module, "LARGE_FILE", 50_000)
    monkeypatch.setattr(wheel_layers, "LARGE_WHEEL", 30_000)
