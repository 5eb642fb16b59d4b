"""Read which libraries TensorFlow's CUDA loader opens, and the cuDNN that it was compiled against.

TensorFlow links to no CUDA library. `tsl::internal::DsoLoader::Get<Library>DsoHandle()` opens each of them
by a soname that it composes at run time from a name and a version, so no soname is in the file as text.
Both parts are constants of a function of some 150 bytes whose symbol is exported, and are read from its
x86-64 code. The cuDNN version is a constant of `stream_executor::gpu::CudnnSupport::Init()`, which compares
it with the cuDNN that it finds ("Loaded runtime CuDNN library: ... but source was compiled with: ..."). The
patterns are those of the compilers seen so far (GCC 9, Clang 16 to 18); code that matches none of them is
reported as unknown.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from .elf import ElfFile

_GETTER_PREFIX, _GETTER_SUFFIX = b"_ZN3tsl8internal9DsoLoader", b"DsoHandleEv"
_DLOPEN = "_ZN3tsl8internal18LoadDynamicLibraryEPKcPPv"
_CUDNN_INIT = "_ZN15stream_executor3gpu12CudnnSupport4InitEv"
_CUDNN_CONSTANT_FORMAT = struct.Struct("<3i")
_CUDNN_CONSTANT = "_ZZN15stream_executor3gpu12CudnnSupport4InitEvE14kSourceVersion"

#: NVIDIA's libraries; the same loader also opens those of ROCm.
_CUDA_NAME = re.compile(r"(cu|nccl|nv)[a-zA-Z_-]*")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")

# A short std::string is built on the stack: immediates stored to [rbp+d8], or loaded into a register (mov
# r32, i32; movabs r64, i64) and stored from there. The register is in the last three bits of the load's
# opcode and in bits 3 to 5 of the store's ModRM byte, whose other bits say [rbp+d8].
_STACK_STORE = re.compile(
    rb"(?P<immediate>\x48\xc7\x45|\x66\xc7\x45|\xc7\x45|\xc6\x45)(?P<at>.)(?=(?P<value>.{4}))"
    rb"|(?P<load>\x48?[\xb8-\xbf])(?=(?P<constant>.{4,8}))"
    rb"|(?P<put>\x48\x89|\x66\x89|\x89)(?P<modrm>[\x45\x4d\x55\x5d\x65\x6d\x75\x7d])(?P<put_at>.)",
    re.DOTALL,
)
# 64-bit immediate stores are only used for lengths and null pointers, so they are ignored.
_STORED_BYTES = {b"\xc6\x45": 1, b"\x66\xc7\x45": 2, b"\xc7\x45": 4, b"\x48\xc7\x45": 0}
_PUT_BYTES = {b"\x66\x89": 2, b"\x89": 4, b"\x48\x89": 8}

# A string view: lea rcx, [rip+d32] (the text); up to two lea r64, [rbp+d8] (other arguments); mov edx, i32
# (the length of the text).
_VIEW = re.compile(rb"\x48\x8d\x0d(?P<text>.{4})(?:\x48\x8d[\x75\x7d].){0,2}\xba(?P<length>.{4})", re.DOTALL)

# movabs reg, i64: a version as two 32-bit numbers, major in the low half.
_PACKED_VERSION = re.compile(rb"\x48[\xb8-\xbf]([\x08-\x0f]\0\0\0[\0-\x63]\0\0\0)", re.DOTALL)
# mov edi, i32 (or xor edi, edi for zero); mov rsi, reg; call: a number turned into text.
_NUMBER_TO_TEXT = re.compile(rb"(?:\xbf(.\0\0\0)|\x31\xff)[\x48\x4c]\x89[\xc6-\xfe]\xe8", re.DOTALL)


def opened_sonames(elf: ElfFile) -> tuple[str, ...]:
    """Return the sonames of NVIDIA's libraries that the loader in this library opens, sorted."""
    sonames = set()
    for getter in elf.names_with(_GETTER_PREFIX, _GETTER_SUFFIX):
        symbol = elf.symbol(getter)
        if symbol is None:
            continue
        code = elf.content(symbol)
        texts = _stack_texts(code)
        name = next((text for text in texts if _CUDA_NAME.fullmatch(text)), None)
        if name is None:
            continue
        version = _viewed_text(elf, symbol.address, code) or next(
            (text for text in texts if _VERSION.fullmatch(text)), None
        )
        sonames.add(f"lib{name}.so.{version}" if version else f"lib{name}.so")
    return tuple(sorted(sonames))


def calls_dlopen(elf: ElfFile) -> bool:
    """Return True if the loader's call of dlopen is in this library.

    Only the search path of the library that calls it counts (ld.so(8)).
    """
    return elf.symbol(_DLOPEN) is not None


def compiled_cudnn(elf: ElfFile) -> str | None:
    """Return the cuDNN version of the headers: `9.3.0`, or `8.6` without the patch level, or None."""
    constant = elf.symbol(_CUDNN_CONSTANT)
    if constant is not None and constant.size == _CUDNN_CONSTANT_FORMAT.size:
        return _dotted(_CUDNN_CONSTANT_FORMAT.unpack(elf.content(constant)))
    function = elf.symbol(_CUDNN_INIT)
    if function is None:
        return None
    code = elf.content(function)
    packed = _PACKED_VERSION.search(code)
    if packed:
        return _dotted(struct.unpack("<2i", packed[1]))
    numbers = [match[1][0] if match[1] else 0 for match in _NUMBER_TO_TEXT.finditer(code)]
    return _dotted(numbers) if len(numbers) == 3 else None


def _dotted(numbers: Iterable[int]) -> str:
    return ".".join(str(number) for number in numbers)


def _stack_texts(code: bytes) -> list[str]:
    """Return the NUL-terminated texts that a function puts on its stack, by address."""
    memory: dict[int, int] = {}
    registers: dict[int, bytes] = {}
    for match in _STACK_STORE.finditer(code):
        if match["load"]:
            registers[match["load"][-1] & 7] = match["constant"]
            continue
        if match["immediate"]:
            place, value = match["at"], match["value"][: _STORED_BYTES[match["immediate"]]]
        else:
            place = match["put_at"]
            value = registers.get(match["modrm"][0] >> 3 & 7, b"")[: _PUT_BYTES[match["put"]]]
        start = struct.unpack("b", place)[0]
        for number, byte in enumerate(value):
            # The first value counts: a fallback without a version may follow in the same place.
            memory.setdefault(start + number, byte)
    return [text.decode("ascii") for text in re.findall(rb"[!-~]+", _laid_out(memory))]


def _laid_out(memory: dict[int, int]) -> bytes:
    if not memory:
        return b""
    return bytes(memory.get(address, 0) for address in range(min(memory), max(memory) + 1))


def _viewed_text(elf: ElfFile, address: int, code: bytes) -> str | None:
    view = _VIEW.search(code)
    if view is None:
        return None
    start = elf.offset_of(address + view.end("text") + struct.unpack("<i", view["text"])[0])
    found = elf.buffer[start : start + struct.unpack("<I", view["length"])[0]].decode("ascii", "replace")
    return found if _VERSION.fullmatch(found) else None
