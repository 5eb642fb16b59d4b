"""The readers of ELF, fatbins and the loader's code, on libraries made here byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.compat import inspect as build
from validator.compat.elf import ElfFile, InspectionError, fatbins, lz4_prefix
from validator.compat.releases import Target

from . import wheel_files as made

LZ4, ZSTD = 0x2000, 0x8000


def library(**parts: object) -> ElfFile:
    return ElfFile(made.elf(**parts), "lib.so")  # type: ignore[arg-type]


def sm(name: str) -> Target:
    return Target.parse(name)


# ELF


def test_dynamic_section() -> None:
    found = library(
        dynamic=(
            (made.DT_NEEDED, "libcudart.so.12"),
            (made.DT_NEEDED, "libc.so.6"),
            (made.DT_SONAME, "libx.so.2"),
            (made.DT_RUNPATH, "$ORIGIN/:$ORIGIN/../nvidia/cublas/lib::$ORIGIN/"),
            (made.DT_RPATH, "/ignored"),
        )
    )
    assert found.needed == ("libcudart.so.12", "libc.so.6")
    assert found.soname == "libx.so.2"
    assert found.search_path == ("$ORIGIN/", "$ORIGIN/../nvidia/cublas/lib")


def test_rpath_counts_if_there_is_no_runpath() -> None:
    assert library(dynamic=((made.DT_RPATH, "/old"),)).search_path == ("/old",)


def test_symbols_are_found_by_name_with_their_contents() -> None:
    found = library(symbols={"prefix_one": b"\x90" * 3, "one": b"\xc3"})
    symbol = found.symbol("one")
    assert symbol is not None
    # The name is also the end of another name, which must not be mistaken for it.
    assert found.content(symbol) == b"\xc3"
    assert found.symbol("two") is None
    assert found.names_with(b"prefix_", b"one") == ("prefix_one",)


def test_an_address_outside_every_segment() -> None:
    with pytest.raises(InspectionError, match="nothing is loaded at address 0x10"):
        library().offset_of(0x10)


FULL = made.elf(
    dynamic=((made.DT_NEEDED, "libc.so.6"), (made.DT_RUNPATH, "$ORIGIN")),
    symbols={made.DLOPEN: b"\xc3", made.CUDNN_CONSTANT: struct.pack("<3i", 9, 3, 0)},
    sections={".nv_fatbin": made.fatbin(made.sass(80), made.ptx(90, "8.5"))},
)


def read_everything(content: bytes) -> None:
    found = ElfFile(content, "lib.so")
    list(fatbins(found))
    build.opened_sonames(found)
    build.compiled_cudnn(found)
    build.calls_dlopen(found)


@pytest.mark.parametrize("length", range(0, len(FULL), 13))
def test_a_truncated_library_is_reported_as_such(length: int) -> None:
    with pytest.raises(InspectionError, match=r"lib\.so: (cut short|not an ELF|not a 64-bit)"):
        read_everything(FULL[:length])


@given(st.lists(st.tuples(st.integers(0, len(FULL) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_library_gives_an_answer_or_an_inspection_error(changes: list[tuple[int, int]]) -> None:
    content = bytearray(FULL)
    for position, value in changes:
        content[position] = value
    try:
        read_everything(bytes(content))
    except InspectionError as error:
        assert error.hint


# Device code


def test_architectures_and_isa_versions() -> None:
    (found,) = fatbins(
        library(sections={".nv_fatbin": made.fatbin(made.sass(80), made.ptx(90, "8.5"), made.sass(60))})
    )
    assert found.sass == (sm("60"), sm("80"))
    assert found.ptx == ((sm("90"), (8, 5)),)
    assert found.has_kernels and not found.relocatable


@pytest.mark.parametrize("target", ["90", "90a", "100f"])
def test_the_suffix_of_a_target_is_kept(target: str) -> None:
    (found,) = fatbins(library(sections={".data": made.fatbin(made.sass(target), made.ptx(target, "8.8"))}))
    assert (found.sass, found.ptx) == ((sm(target),), ((sm(target), (8, 8)),))


def test_the_target_in_the_ptx_text_decides() -> None:
    (found,) = fatbins(library(sections={".data": made.fatbin(made.ptx("90a", "8.5", marked=False))}))
    assert found.ptx == ((sm("90a"), (8, 5)),)


def test_ptx_that_cannot_be_decompressed_gets_its_target_from_the_header() -> None:
    packed = made.image(1, "100a", b"\x28\xb5\x2f\xfd", isa=(8, 7), flags=ZSTD, size=900)
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(packed)}))
    assert found.ptx == ((sm("100a"), (8, 7)),)


@pytest.mark.parametrize(
    ("images", "nccl"),
    [
        ([made.sass(80, b".text._Z20ncclDevKernel_Reduce")], True),
        ([made.sass(80)], False),
        ([made.sass(80, b".text._Z20ncclDevKernel_Reduce"), made.ptx(90, "8.5")], False),
        ([made.image(2, "80", b"\x60ncclFn", flags=LZ4, size=6)], True),
    ],
)
def test_the_machine_code_of_nccl_is_recognised(images: list[bytes], nccl: bool) -> None:
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(*images)}))
    assert found.nccl is nccl


def test_fatbins_are_found_in_any_section() -> None:
    generated = made.fatbin(made.ptx(90, "8.5"))
    found = list(fatbins(library(sections={".data": b"\1" * 5 + generated, ".nv_fatbin": generated * 2})))
    assert len(found) == 3


def test_relocatable_code_is_marked() -> None:
    (found,) = fatbins(library(sections={"__nv_relfatbin": made.fatbin(made.ptx(80, "7.8"))}))
    assert found.relocatable


def test_ptx_compressed_with_lz4_is_read() -> None:
    text = b"\n.version 8.5\n.target sm_90\n.visible .entry Cast()"
    block = bytes([0xF0, len(text) - 15]) + text
    packed = made.image(1, "90", block, isa=(9, 9), flags=LZ4, size=len(text))
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(packed)}))
    assert found.ptx == ((sm("90"), (8, 5)),)


def test_ptx_compressed_with_zstd_gets_its_version_from_the_header() -> None:
    packed = made.image(1, "120", b"\x28\xb5\x2f\xfd", isa=(8, 7), flags=ZSTD, size=900)
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(packed)}))
    assert found.ptx == ((sm("120"), (8, 7)),)
    assert found.has_kernels


def test_a_unit_without_kernels_is_distinguished_from_one_with_kernels() -> None:
    variables = made.fatbin(made.sass(80), made.ptx(90, "8.5", ".global .align 1 .b8 x[1];\n"))
    long = made.fatbin(made.ptx(90, "8.5", "// a kernel far below\n" * 1000))
    found = list(fatbins(library(sections={".nv_fatbin": variables + long})))
    assert [fatbin.has_kernels for fatbin in found] == [False, True]


def test_the_magic_number_by_chance_is_ignored() -> None:
    chance = b"".join(
        struct.pack("<IHHQ", 0xBA55ED50, version, header_size, 1 << 40)
        for version, header_size in ((7, 99), (7, 16), (1, 99))
    )
    assert len(list(fatbins(library(sections={".rodata": chance + made.fatbin(made.sass(80))})))) == 1


def test_a_fatbin_longer_than_the_file() -> None:
    content = made.elf(sections={".nv_fatbin": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40)})
    with pytest.raises(InspectionError, match="cut short: the fatbin at byte"):
        list(fatbins(ElfFile(content, "lib.so")))


def test_an_image_longer_than_its_fatbin() -> None:
    image = bytearray(made.sass(80))
    image[8:16] = struct.pack("<Q", 4096)
    with pytest.raises(InspectionError, match="claims to have 4096 bytes"):
        list(fatbins(library(sections={".nv_fatbin": made.fatbin(bytes(image))})))


def test_ptx_whose_compression_is_damaged() -> None:
    packed = made.image(1, "90", b"\xf0\xff", isa=(8, 5), flags=LZ4, size=40)
    with pytest.raises(InspectionError, match="is not an LZ4 block, although its flags"):
        list(fatbins(library(sections={".nv_fatbin": made.fatbin(packed)})))


def lz4_block(text: bytes) -> bytes:
    """A correct block, by the plainest search for matches."""
    block, literals, position = bytearray(), bytearray(), 0

    def lengthened(length: int) -> bytes:
        return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])

    while position < len(text):
        best = max(
            ((common(text, start, position), start) for start in range(max(0, position - 64), position)),
            default=(0, 0),
        )
        if best[0] < 4:
            literals.append(text[position])
            position += 1
            continue
        length, start = best
        block.append(min(len(literals), 15) << 4 | min(length - 4, 15))
        block += lengthened(len(literals)) + literals + struct.pack("<H", position - start)
        block += lengthened(length - 4)
        literals.clear()
        position += length
    block.append(min(len(literals), 15) << 4)
    return bytes(block + lengthened(len(literals)) + literals)


def common(text: bytes, start: int, position: int) -> int:
    length = 0
    while position + length < len(text) and text[start + length] == text[position + length]:
        length += 1
    return length


@given(st.lists(st.sampled_from([b"ab", b"mov.u32 ", b"\n", b"x" * 300]), max_size=12).map(b"".join))
def test_lz4_restores_the_original_text(text: bytes) -> None:
    assert lz4_prefix(lz4_block(text), len(text) + 1) == text


def test_lz4_stops_at_the_limit() -> None:
    text = b"".join(b"%d, " % number for number in range(500))
    assert 8 <= len(lz4_prefix(lz4_block(text), 8)) < 100


# What is opened at run time

NO_VERSION = made.store(-0x30, b"nvin") + made.store(-0x2C, b"fer\0") + made.store(-0x50, b"\0")
ROCM = made.store(-0x30, b"rocb") + made.store(-0x2C, b"las\0") + made.store(-0x50, b"\0")


@pytest.mark.parametrize(
    ("code", "sonames"),
    [
        (made.CUDART_12, ("libcudart.so.12",)),
        (made.CUBLAS_11_0, ("libcublas.so.11.0",)),
        (made.CUSOLVER_11, ("libcusolver.so.11",)),
        (NO_VERSION, ("libnvinfer.so",)),
        (ROCM, ()),
        (b"\xc3", ()),
    ],
)
def test_sonames_that_are_composed_on_the_stack_are_read(code: bytes, sonames: tuple[str, ...]) -> None:
    assert build.opened_sonames(library(symbols={made.GETTER.format(7, "X"): code})) == sonames


def test_a_fallback_without_version_does_not_hide_the_version() -> None:
    fallback = made.store(-0x50, b"\0\0") + b"\x90" * 8
    assert build.opened_sonames(library(symbols={made.GETTER.format(7, "X"): made.CUDART_12 + fallback})) == (
        "libcudart.so.12",
    )


def test_a_version_passed_as_a_string_view_is_read() -> None:
    name = made.store(-0x28, b"cudn") + made.store(-0x24, b"n\0")
    text = b"..12.."
    symbol = made.GETTER.format(17, "Cudnn")
    # The text is before the function; the lowest byte of the displacement is also the opcode of the length.
    pad = b"\x90" * (0x46 - len(text) - len(name) - 5)
    distance = 2 - (len(text) + len(pad) + len(name) + 7)
    code = name + b"\x48\x8d\x0d" + struct.pack("<i", distance) + b"\x48\x8d\x75\xc8\xba\x02\0\0\0\xe8"
    found = library(symbols={symbol: code}, text=text + pad)
    assert struct.pack("<i", distance)[0] == 0xBA
    assert build.opened_sonames(found) == ("libcudnn.so.12",)


def test_the_caller_of_dlopen_is_identified_by_its_symbol() -> None:
    assert build.calls_dlopen(library(symbols={made.DLOPEN: b"\xc3"}))
    assert not build.calls_dlopen(library())


def number(value: int) -> bytes:
    load = b"\xbf" + struct.pack("<I", value) if value else b"\x31\xff"
    return load + b"\x4c\x89\xf6\xe8\0\0\0\0"


@pytest.mark.parametrize(
    ("symbols", "version"),
    [
        ({made.CUDNN_CONSTANT: struct.pack("<3i", 9, 10, 2)}, "9.10.2"),
        ({made.CUDNN_INIT: number(9) + number(3) + number(0)}, "9.3.0"),
        ({made.CUDNN_INIT: b"\x48\xbf" + struct.pack("<2i", 8, 6) + number(8)}, "8.6"),
        ({made.CUDNN_INIT: number(9) + number(3)}, None),
        ({}, None),
    ],
)
def test_cudnn_of_the_headers(symbols: dict[str, bytes], version: str | None) -> None:
    assert build.compiled_cudnn(library(symbols=symbols)) == version
