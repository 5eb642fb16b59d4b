"""Small wheels of TensorFlow that no table lists: complete, so that uv and images can install them."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from ..compat import wheel_files as made

LINUX = "manylinux_2_27_x86_64"
#: NVIDIA's wheels that they need, with the versions that the policy as-built takes.
NVIDIA = {"cuda-runtime": "12.5.82", "cuda-nvcc": "12.5.82", "cudnn": "9.3.0.75"}


def content(
    version: str = "2.21.0",
    project: str = "tensorflow",
    *,
    python: str = "312",
    sass: int = 120,
    extra: bool = True,
) -> bytes:
    """Return a wheel with machine code for one compute capability, and a LLVM that knows Blackwell."""
    info = f"{project}-{version}.dist-info"
    lines = [
        f'Requires-Dist: nvidia-{name}-cu12<13,>={pin}; extra == "and-cuda"' for name, pin in NVIDIA.items()
    ]
    head = ["Metadata-Version: 2.1", f"Name: {project.replace('_', '-')}", f"Version: {version}"]
    metadata = "\n".join([*head, *(["Provides-Extra: and-cuda", *lines] if extra else [])]) + "\n"
    framework = made.elf(
        symbols={
            made.DLOPEN: b"\xc3",
            made.GETTER.format(23, "CudaRuntime"): made.CUDART_12,
            made.CUDNN_CONSTANT: bytes([9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        },
        sections={".nv_fatbin": made.fatbin(made.sass(sass)), ".rodata": b"\0ptx85\0ptx87\0"},
    )
    members = {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: cp{python}-cp{python}-{LINUX}\n".encode(),
        "tensorflow/__init__.py": f"__version__ = {version!r}\n".encode(),
        "tensorflow/python/platform/build_info.py": made.BUILD_INFO,
        "tensorflow/libtensorflow_framework.so.2": framework,
    }
    record = "".join(f"{name},sha256={_hash(body)},{len(body)}\n" for name, body in members.items())
    return made.packed({**members, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()})


def file_name(version: str = "2.21.0", python: str = "312", project: str = "tensorflow") -> str:
    return f"{project}-{version}-cp{python}-cp{python}-{LINUX}.whl"


def wheel(directory: Path, python: str = "312", sass: int = 120, *, extra: bool = True) -> Path:
    """Write a wheel of 2.21.0 into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_name(python=python)
    path.write_bytes(content(python=python, sass=sass, extra=extra))
    return path


def _hash(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
