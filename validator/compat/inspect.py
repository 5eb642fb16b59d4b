"""Read the facts of one TensorFlow wheel.

python -m validator.compat.inspect FILE ...   prints their rows; --write keeps them
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import hashlib
import lzma
import mmap
import os
import posixpath
import re
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import yaml

from .._vendor.packaging.requirements import Requirement
from ..errors import EXIT_OK, InputError, MissingError, ValidatorError
from ..versions import Version
from .elf import ElfFile, Fatbin, InspectionError, fatbins, is_elf
from .releases import Target

# Read the metadata and the shared libraries of a wheel, without installing or running anything.

#: What reading a damaged ZIP archive raises. RuntimeError is for an encrypted file and for unknown methods.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)
#: METADATA and build_info.py are read into memory, up to this size.
_LARGEST_TEXT = 32 << 20
_SHARED_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")


class WheelFile:
    """An open wheel. Raises InspectionError if the file is not a complete wheel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise MissingError(f"{path}: no such file") from None
        except OSError as error:
            hint = "name the file of a wheel"
            raise InputError(f"{path}: it can't be read: {error.strerror or error}", hint=hint) from None
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            raise InspectionError(f"{path}: not a wheel, or cut short: it has no zip directory") from None

    def __enter__(self) -> WheelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def sha256(self) -> str:
        """Return the hex digest of the file, as in the index and in lock files."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def metadata(self) -> Message:
        """Return the core metadata (PEP 566) as headers."""
        names = [one for one in self._archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)]
        if len(names) != 1:
            text = f"{self.path}: not a wheel: {len(names)} METADATA files where 1 is expected"
            raise InspectionError(text)
        # Old wheels have names of people in other encodings.
        return HeaderParser().parsestr(self.read(names[0], errors="replace"))

    def read(self, member: str, errors: str = "strict") -> str:
        """Return the text of one member. Raises InspectionError if it is absent, damaged or no text.

        errors: what to do with bytes that are not UTF-8, as for `bytes.decode`.
        """
        try:
            if (size := self._archive.getinfo(member).file_size) > _LARGEST_TEXT:
                raise InspectionError(f"{self.path}: {member} has {size} bytes, more than {_LARGEST_TEXT}")
            return self._archive.read(member).decode("utf-8", errors)
        except KeyError:
            raise InspectionError(f"{self.path}: has no {member}") from None
        except ZIP_ERRORS as error:
            raise InspectionError(f"{self.path}: {member} is damaged: {error}") from None

    def libraries(self, scratch: Path | None = None) -> Iterator[tuple[str, ElfFile]]:
        """Yield each shared library, as (member name, parsed file), valid until the next one is requested.

        scratch: a folder with room for the largest library unpacked (TensorFlow: 1.5 GB), or None.
        """
        for member in sorted(self._archive.namelist()):
            if not _SHARED_LIBRARY.search(member):
                continue
            with self._mapped(member, scratch) as content:
                if is_elf(content):
                    yield member, ElfFile(content, member)

    @contextlib.contextmanager
    def _mapped(self, member: str, scratch: Path | None) -> Iterator[mmap.mmap | bytes]:
        """Unpack a member into a file without a name and map it, so that a gigabyte takes no memory."""
        with tempfile.TemporaryFile(dir=scratch) as file:
            try:
                with self._archive.open(member) as packed:
                    shutil.copyfileobj(packed, file, 1 << 20)
            except ZIP_ERRORS as error:
                raise InspectionError(f"{self.path}: {member} is damaged: {error}") from None
            file.flush()
            if file.tell() == 0:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield content


# Read which libraries TensorFlow's CUDA loader opens, and the cuDNN that it was compiled against.
#
# TensorFlow links to no CUDA library. `tsl::internal::DsoLoader::Get<Library>DsoHandle()` opens each of
# them by a soname that it composes at run time from a name and a version, so no soname is in the file as
# text. Both parts are constants of a function of some 150 bytes whose symbol is exported, and are read from
# its x86-64 code. The cuDNN version is a constant of `stream_executor::gpu::CudnnSupport::Init()`, which
# compares it with the cuDNN that it finds ("Loaded runtime CuDNN library: ... but source was compiled with:
# ..."). The patterns are those of the compilers seen so far (GCC 9, Clang 16 to 18); code that matches none
# of them is reported as unknown.


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
    """Return True if this library calls dlopen. Only the search path of the caller counts (ld.so(8))."""
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
    return ".".join(map(str, numbers))


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
    addresses = range(min(memory), max(memory) + 1) if memory else ()
    laid_out = bytes(memory.get(address, 0) for address in addresses)
    return [text.decode("ascii") for text in re.findall(rb"[!-~]+", laid_out)]


def _viewed_text(elf: ElfFile, address: int, code: bytes) -> str | None:
    view = _VIEW.search(code)
    if view is None:
        return None
    start = elf.offset_of(address + view.end("text") + struct.unpack("<i", view["text"])[0])
    found = elf.buffer[start : start + struct.unpack("<I", view["length"])[0]].decode("ascii", "replace")
    return found if _VERSION.fullmatch(found) else None


_BUILD_INFO = "tensorflow/python/platform/build_info.py"

#: Where NVIDIA's wheels put the library of a soname: site-packages/nvidia/<folder>/lib.
_PIP_FOLDERS = {
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libcudart": "cuda_runtime",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcupti": "cuda_cupti",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse",
    "libnccl": "nccl",
    "libnvrtc": "cuda_nvrtc",
    "libnvshmem_host": "nvshmem",
}

#: The libraries that `DsoLoader::TryDlopenCUDALibraries()` opens. If one is missing, TensorFlow registers no
#: GPU ("Cannot dlopen some GPU libraries. ... Skipping registering GPU devices"). They are the same in 2.12
#: to 2.22, except for cuRAND, which was dropped in 2.14.
_REQUIRED = frozenset({
    "libcublas", "libcublasLt", "libcudart", "libcudnn", "libcufft", "libcurand", "libcusolver",
    "libcusparse",
})  # fmt: skip


def inspect_tensorflow(path: Path, *, scratch: Path | None = None) -> dict[str, Any]:
    """Return the facts of a TensorFlow wheel as plain data, in the order in which they are written.

    requires: the requirements on Python, numpy and keras. and_cuda: those of that extra, sorted. build: what
    `tf.sysconfig.get_build_info()` returns, and `cudnn_headers`, the cuDNN compiled against, or None if it
    can't be read. opens: sonames of NVIDIA's libraries that are opened at run time. pip_libraries: see
    `_pip_libraries`. kernels: see `count_kernels`. relocatable_fatbins: code that is linked into others.

    scratch: as for `WheelFile.libraries`. Raises InspectionError if the file is not one, or is damaged.
    """
    with WheelFile(path) as wheel:
        metadata = wheel.metadata()
        info = read_build_info(wheel.read(_BUILD_INFO), f"{path}: {_BUILD_INFO}")
        found: list[Fatbin] = []
        opens: set[str] = set()
        headers: set[str] = set()
        openers: dict[str, tuple[str, ...]] = {}
        llvm: set[int] = set()
        for member, library in wheel.libraries(scratch):
            found += fatbins(library)
            opens |= set(opened_sonames(library))
            headers |= {version for version in [compiled_cudnn(library)] if version}
            llvm |= ptx_features(library)
            if calls_dlopen(library):
                openers[member] = pip_folders(library, member)
        try:
            requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
            plain = {name: _plain(requirements, name) for name in ("keras", "keras-nightly", "numpy")}
        except ValueError as error:
            raise InspectionError(f"{path}: a requirement can't be read: {str(error)[:200]}") from None
        return {
            "tensorflow": str(metadata["Version"]),
            "wheel": {"file": path.name, "size": path.stat().st_size, "sha256": wheel.sha256()},
            "requires": {"python": str(metadata["Requires-Python"])}
            | {name: specifiers for name, specifiers in plain.items() if specifiers},
            "and_cuda": sorted(
                f"{one.name}{one.specifier}"
                for one in requirements
                if one.marker is not None and 'extra == "and-cuda"' in str(one.marker)
            ),
            "build": {
                "cuda": info.get("cuda_version"),
                "cudnn": info.get("cudnn_version"),
                "cudnn_headers": headers.pop() if len(headers) == 1 else None,
                "compute_capabilities": info.get("cuda_compute_capabilities", []),
                "tensorrt": info.get("is_tensorrt_build"),
                "cuda_build": info.get("is_cuda_build"),
                "compiler": info.get("cpu_compiler"),
            },
            "opens": sorted(opens),
            **({"pip_libraries": _pip_libraries(openers, opens)} if openers else {}),
            "kernels": count_kernels(found),
            **({"llvm_ptx": ".".join(map(str, divmod(max(llvm), 10)))} if llvm else {}),
            "relocatable_fatbins": sum(fatbin.relocatable for fatbin in found),
        }


def ptx_features(library: ElfFile) -> set[int]:
    """Return the PTX ISA versions that LLVM in a library can write: 87 for 8.7.

    LLVM has a table of the features of its target NVPTX, in which each version has a name such as `ptx87`.
    """
    found, start = set(), 0
    while (at := library.buffer.find(b"\0ptx", start)) != -1:
        start = at + 4
        if match := re.match(rb"\0ptx([0-9]{2,3})\0", library.buffer[at : at + 8]):
            found.add(int(match[1]))
    return found


def read_build_info(source: str, where: str) -> dict[str, Any]:
    """Return the literal dictionary in build_info.py, which is parsed but not run. Raises InspectionError."""
    try:
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                return dict(ast.literal_eval(node.value.args[0]))
    except (SyntaxError, ValueError, IndexError, TypeError, RecursionError, MemoryError) as error:
        # The parser of Python raises MemoryError for brackets that are nested too deep.
        raise InspectionError(f"{where}: can't be read: {error}") from None
    raise InspectionError(f"{where}: does not assign build_info")


def pip_folders(library: ElfFile, member: str) -> tuple[str, ...]:
    """Return the sorted `nvidia/<folder>/lib` that a library searches. member: its path in site-packages."""
    folder = posixpath.dirname(member)
    reached = {
        posixpath.normpath(re.sub(r"^\$(ORIGIN|\{ORIGIN\})", folder, entry)) for entry in library.search_path
    }
    matches = (re.fullmatch(r"nvidia/([^/]+)/lib", place) for place in reached)
    return tuple(sorted(match[1] for match in matches if match))


def count_kernels(found: Iterable[Fatbin]) -> list[dict[str, Any]]:
    """Group fatbins (translation units) by the GPUs that their device code covers, most frequent first.

    fatbins: their number. sass: targets with machine code. ptx: target -> PTX ISA version of its text.
    library: `nccl` if they are NCCL's, which is linked into TensorFlow up to 2.20. Fatbins without kernels
    are not counted, nor is relocatable code, which is also in a linked fatbin.
    """
    groups = Counter(
        (fatbin.sass, tuple((target, f"{isa[0]}.{isa[1]}") for target, isa in fatbin.ptx), fatbin.nccl)
        for fatbin in found
        if fatbin.has_kernels and not fatbin.relocatable
    )
    ordered = sorted(groups.items(), key=lambda group: (-group[1], group[0]))
    return [
        {
            "fatbins": count,
            "sass": [_number(target) for target in sass],
            "ptx": {_number(target): isa for target, isa in ptx},
        }
        | ({"library": "nccl"} if nccl else {})
        for (sass, ptx, nccl), count in ordered
    ]


def _number(target: Target) -> int | str:
    return target.number if target.suffix else int(target.number)


def _pip_libraries(openers: Mapping[str, tuple[str, ...]], opens: Iterable[str]) -> dict[str, Any]:
    """Return where TensorFlow finds the CUDA libraries installed by pip, without LD_LIBRARY_PATH.

    opener: the library that calls dlopen; only its search path counts. folders: `nvidia/<folder>/lib` on that
    search path. missing_required: sonames whose folder is not on it, and without which no GPU is registered.
    missing_optional: the same for those opened on demand (profiler, collectives).
    """
    # 2.12 has the loader in both of its large libraries; neither searches pip's folders.
    member = max(openers, key=lambda name: (name.endswith("libtensorflow_framework.so.2"), name))
    missing: dict[bool, list[str]] = {True: [], False: []}
    for soname in sorted(opens):
        stem = soname.partition(".so")[0]
        if stem in _PIP_FOLDERS and _PIP_FOLDERS[stem] not in openers[member]:
            missing[stem in _REQUIRED].append(soname)
    return {
        "opener": posixpath.basename(member),
        "folders": list(openers[member]),
        "missing_required": missing[True],
        "missing_optional": missing[False],
    }


def _plain(requirements: Iterable[Requirement], name: str) -> list[str]:
    """Return the specifiers (with their markers) for a distribution that are required without any extra."""
    return [
        f"{requirement.specifier}; {requirement.marker}" if requirement.marker else str(requirement.specifier)
        for requirement in requirements
        if requirement.name == name and "extra" not in str(requirement.marker)
    ]


# Write rows of `data/builds.yaml`: one block for each release, one line for each group of facts.

#: The file of measured builds that ships with the package.
BUILDS = Path(__file__).resolve().parent / "data" / "builds.yaml"

# With libyaml it takes a fifth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Read in the wheel itself on this project's own machine, without a GPU.
STATUS = "verified-local"


def row(build: dict[str, Any], date: datetime.date) -> dict[str, Any]:
    """Return the row of a build: what `inspect_tensorflow` read, and when."""
    return {**build, "status": STATUS, "date": date.isoformat()}


def render(cells: dict[str, Any]) -> str:
    """Return a row as YAML: a block whose values are in flow style, so that each fact is on one line."""
    lines = []
    for key, value in cells.items():
        if key == "kernels" and value:
            lines.append(f"  {key}:")
            lines += [f"  - {_flow(group)}" for group in value]
        else:
            lines.append(f"  {key}: {_flow(value)}")
    return "-" + "\n".join(lines)[1:] + "\n"


def merge(text: str, rows: Iterable[dict[str, Any]], without: Collection[str] = ()) -> str:
    """Return builds.yaml with these rows instead of those of their releases and of `without`, sorted."""
    head, _, _ = text.partition("\nbuilds:")
    present = (yaml.load(text, Loader=_LOADER) or {}).get("builds") or []
    kept = [cells for cells in present if cells["tensorflow"] not in without]
    by_release = {cells["tensorflow"]: cells for cells in [*kept, *rows]}
    ordered = sorted(by_release.values(), key=lambda cells: Version(cells["tensorflow"]))
    return head + "\nbuilds:\n" + "".join(render(cells) for cells in ordered)


def write(path: Path, rows: Iterable[dict[str, Any]], without: Collection[str] = ()) -> None:
    """Merge rows into a file, which is replaced as a whole or not at all."""
    merged = merge(path.read_text("utf-8"), rows, without)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(merged)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, sort_keys=False)
    return re.sub(r"\n(\.\.\.\n)?$", "", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="inspect-wheel", description="Print facts read from TensorFlow wheels, as rows of builds.yaml."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="a wheel file")
    parser.add_argument("--write", action="store_true", help="also put the rows into data/builds.yaml")
    options = parser.parse_args()
    try:
        for file in options.files:
            cells = row(inspect_tensorflow(file), datetime.date.today())
            print(render(cells), end="", flush=True)
            if options.write:
                write(BUILDS, [cells])
    except ValidatorError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
