"""Tiny shared libraries, fatbins and wheels, made byte by byte for the tests of the wheel inspection."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

#: Where the synthetic libraries are loaded, so that addresses and file offsets differ.
BASE = 0x400000

DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29
_PROGBITS, _STRTAB, _DYNAMIC, _DYNSYM = 1, 3, 6, 11

GETTER = "_ZN3tsl8internal9DsoLoader{0}Get{1}DsoHandleEv"
DLOPEN = "_ZN3tsl8internal18LoadDynamicLibraryEPKcPPv"
CUDNN_INIT = "_ZN15stream_executor3gpu12CudnnSupport4InitEv"
CUDNN_CONSTANT = "_ZZN15stream_executor3gpu12CudnnSupport4InitEvE14kSourceVersion"


def elf(
    *,
    dynamic: tuple[tuple[int, str], ...] = (),
    symbols: dict[str, bytes] | None = None,
    sections: dict[str, bytes] | None = None,
    text: bytes = b"",
) -> bytes:
    """A 64-bit little-endian shared library.

    dynamic: (tag, string) entries. symbols: name -> content, in the order they lie in `.text`.
    sections: further sections with their contents. text: bytes before the symbols' contents.
    """
    symbols = symbols or {}
    strings = bytearray(b"\0")

    def intern(name: str) -> int:
        at = len(strings)
        strings.extend(name.encode() + b"\0")
        return at

    names = {name: intern(name) for name in symbols}
    entries = [(tag, intern(value)) for tag, value in dynamic]
    code, starts = bytearray(text), {}
    for name, content in symbols.items():
        starts[name] = len(code)
        code += content
    place = 64 + 56
    bodies: list[tuple[str, int, bytes, int]] = [(".text", _PROGBITS, bytes(code), 0)]
    table = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", names[name], 0x12, 0, 1, BASE + place + starts[name], len(content))
        for name, content in symbols.items()
    )
    bodies.append((".dynstr", _STRTAB, bytes(strings), 0))
    bodies.append((".dynsym", _DYNSYM, table, 2))
    pairs = [*entries, (0, 0)]
    bodies.append((".dynamic", _DYNAMIC, b"".join(struct.pack("<QQ", *pair) for pair in pairs), 2))
    bodies += [(name, _PROGBITS, content, 0) for name, content in (sections or {}).items()]
    name_table = bytearray(b"\0")
    headers, contents = [b"\0" * 64], bytearray()
    for name, kind, body, link in [*bodies, (".shstrtab", _STRTAB, b"", 0)]:
        at = len(name_table)
        name_table += name.encode() + b"\0"
        if name == ".shstrtab":
            body = bytes(name_table)
        offset = place + len(contents)
        headers.append(
            struct.pack("<IIQQQQIIQQ", at, kind, 0, BASE + offset, offset, len(body), link, 0, 1, 0)
        )
        contents += body
    size = place + len(contents)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, size, 0, 64, 56, 1, 64, len(headers), len(headers) - 1
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 4096)
    return header + segment + bytes(contents) + b"".join(headers)


def image(
    kind: int,
    target: str,
    payload: bytes,
    *,
    isa: tuple[int, int] = (0, 0),
    flags: int = 0,
    size: int = 0,
) -> bytes:
    """One image of a fatbin. target: `90a`. size: the uncompressed size, where the payload is compressed."""
    flags |= {"a": 0x100000, "f": 0x200000}.get(target[-1], 0)
    architecture = int(target.rstrip("af"))
    padded = payload + b"\0" * (-len(payload) % 8)
    compressed = len(payload) if size else 0
    fields = (kind, 0x101, 64, len(padded), compressed, 0, isa[1], isa[0], architecture, 0, 0, flags, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + padded


def sass(target: int | str, code: bytes = b"machine code") -> bytes:
    return image(2, str(target), code, isa=(1, 7))


def ptx(
    target: int | str,
    isa: str,
    body: str = ".visible .entry Cast()\n{\n\tret;\n}\n",
    *,
    marked: bool = True,
) -> bytes:
    """A PTX image. marked: the header has the flag for the suffix of the target."""
    major, minor = isa.split(".")
    text = f"\n.version {isa}\n.target sm_{target}\n.address_size 64\n{body}".encode()
    written = str(target) if marked else str(target).rstrip("af")
    return image(1, written, text, isa=(int(major), int(minor)))


def fatbin(*images: bytes) -> bytes:
    body = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def store(displacement: int, text: bytes) -> bytes:
    """mov [rbp+d8], immediate: of 1, 2 or 4 bytes."""
    opcode = {1: b"\xc6\x45", 2: b"\x66\xc7\x45", 4: b"\xc7\x45"}[len(text)]
    return opcode + struct.pack("b", displacement) + text


#: How Clang composes `cudart` and `12` on the stack.
CUDART_12 = (
    store(-0x30, b"cuda")
    + store(-0x2C, b"rt")
    + b"\x48\xc7\x45\xc8\x06\0\0\0"
    + store(-0x2A, b"\0")
    + store(-0x50, b"12")
    + store(-0x4E, b"\0")
)
#: How GCC does it: the last letters through a register, the version before the name.
CUBLAS_11_0 = (
    b"\xba\x61\x73\0\0"
    + store(-0x60, b"11.0")
    + store(-0x5C, b"\0")
    + store(-0x40, b"cubl")
    + b"\x66\x89\x55\xc4"
    + store(-0x3A, b"\0")
)
#: Eight letters go through a 64-bit register.
CUSOLVER_11 = (
    b"\x48\xb8cusolver\x48\x89\x45\xd8" + store(-0x20, b"\0") + store(-0x50, b"11") + store(-0x4E, b"\0")
)


def packed(members: dict[str, bytes]) -> bytes:
    """The content of a wheel, the same for the same members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    path.write_bytes(packed(members))
    return path


#: A whole wheel of TensorFlow.
METADATA = b"""Metadata-Version: 2.1
Name: tensorflow
Version: 2.99.1
Requires-Python: >=3.10
Requires-Dist: keras>=3.12.0
Requires-Dist: numpy<2.0.0,>=1.23.5; python_version <= "3.11"
Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"
Requires-Dist: other; extra == "gcs"
"""
BUILD_INFO = b"""import collections
build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_80', 'compute_90']),
 ('cuda_version', '12.5'), ('cudnn_version', '9'), ('is_cuda_build', True)])
"""
FRAMEWORK = elf(
    dynamic=((DT_RUNPATH, "$ORIGIN/../nvidia/cuda_runtime/lib:$ORIGIN/../../nvidia/cusolver/lib"),),
    symbols={
        DLOPEN: b"\xc3",
        GETTER.format(23, "CudaRuntime"): CUDART_12,
        GETTER.format(20, "Cusolver"): CUSOLVER_11,
        CUDNN_CONSTANT: struct.pack("<3i", 9, 3, 0),
    },
    sections={".nv_fatbin": fatbin(sass(80), ptx("90a", "8.5")) * 2},
)
MEMBERS = {
    "tensorflow-2.99.1.dist-info/METADATA": METADATA,
    "tensorflow/python/platform/build_info.py": BUILD_INFO,
    "tensorflow/libtensorflow_framework.so.2": FRAMEWORK,
    "tensorflow/libtensorflow_cc.so.2": elf(
        sections={
            "__nv_relfatbin": fatbin(ptx(90, "8.3")),
            ".nv_fatbin": fatbin(sass(90, b"ncclDevKernel")),
        }
    ),
    "tensorflow/notes.so": b"not a library",
    "tensorflow/empty.so": b"",
}
