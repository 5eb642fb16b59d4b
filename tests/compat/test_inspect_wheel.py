"""The inspection of wheels, on files made here, and the measured rows that ship with the package."""

from __future__ import annotations

import datetime
import struct
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from validator.compat.inspect import __main__ as command
from validator.compat.inspect import rows, runtime
from validator.compat.inspect.build import Kernels, count_kernels, inspect_tensorflow, pip_folders
from validator.compat.inspect.elf import ElfFile
from validator.compat.inspect.errors import InspectionError
from validator.compat.inspect.fatbin import fatbins, lz4_prefix
from validator.compat.inspect.wheel import WheelFile
from validator.errors import EXIT_INPUT, MissingError

from . import wheel_files as made

LZ4, ZSTD = 0x2000, 0x8000


def library(**parts: object) -> ElfFile:
    return ElfFile(made.elf(**parts), "lib.so")  # type: ignore[arg-type]


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


def test_rpath_counts_where_there_is_no_runpath() -> None:
    assert library(dynamic=((made.DT_RPATH, "/old"),)).search_path == ("/old",)


def test_symbols_by_name_and_their_contents() -> None:
    found = library(symbols={"prefix_one": b"\x90" * 3, "one": b"\xc3"})
    symbol = found.symbol("one")
    assert symbol is not None
    # The name is also the end of another name, whose symbol it must not be taken for.
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
    runtime.opened_sonames(found)
    runtime.compiled_cudnn(found)
    runtime.calls_dlopen(found)


@pytest.mark.parametrize("length", range(0, len(FULL), 13))
def test_a_library_cut_short_is_an_error_that_says_so(length: int) -> None:
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
    assert found.sass == (60, 80)
    assert found.ptx == ((90, (8, 5)),)
    assert found.has_kernels and not found.relocatable


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
    packed = made.image(1, 90, block, isa=(9, 9), flags=LZ4, size=len(text))
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(packed)}))
    assert found.ptx == ((90, (8, 5)),)


def test_ptx_compressed_with_zstd_takes_the_version_of_its_header() -> None:
    packed = made.image(1, 120, b"\x28\xb5\x2f\xfd", isa=(8, 7), flags=ZSTD, size=900)
    (found,) = fatbins(library(sections={".nv_fatbin": made.fatbin(packed)}))
    assert found.ptx == ((120, (8, 7)),)
    assert found.has_kernels


def test_a_unit_without_kernels_is_told_from_one_with() -> None:
    variables = made.fatbin(made.sass(80), made.ptx(90, "8.5", ".global .align 1 .b8 x[1];\n"))
    long = made.fatbin(made.ptx(90, "8.5", "// a kernel far below\n" * 1000))
    found = list(fatbins(library(sections={".nv_fatbin": variables + long})))
    assert [fatbin.has_kernels for fatbin in found] == [False, True]


def test_the_magic_number_by_chance_is_passed_over() -> None:
    chance = struct.pack("<IHHQ", 0xBA55ED50, 7, 99, 3)
    assert len(list(fatbins(library(sections={".rodata": chance + made.fatbin(made.sass(80))})))) == 1


def test_a_fatbin_longer_than_the_file() -> None:
    content = made.elf(sections={".nv_fatbin": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40)})
    with pytest.raises(InspectionError, match="cut short: the fatbin at byte"):
        list(fatbins(ElfFile(content, "lib.so")))


def test_an_image_longer_than_its_fatbin() -> None:
    image = bytearray(made.sass(80))
    image[8:16] = struct.pack("<Q", 4096)
    with pytest.raises(InspectionError, match="is said to be 4096 bytes"):
        list(fatbins(library(sections={".nv_fatbin": made.fatbin(bytes(image))})))


def test_ptx_whose_compression_is_damaged() -> None:
    packed = made.image(1, 90, b"\xf0\xff", isa=(8, 5), flags=LZ4, size=40)
    with pytest.raises(InspectionError, match="not the LZ4 block that its flags say"):
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
def test_lz4_gives_back_what_was_packed(text: bytes) -> None:
    assert lz4_prefix(lz4_block(text), len(text) + 1) == text


def test_lz4_stops_when_there_is_enough() -> None:
    text = b"abcdefgh" * 1000
    assert len(lz4_prefix(lz4_block(b"0123456789" + text), 8)) < len(text)


# What is opened at run time

CLANG = (
    made.store(-0x30, b"cuda")
    + made.store(-0x2C, b"rt")
    + b"\x48\xc7\x45\xc8\x06\0\0\0"
    + made.store(-0x2A, b"\0")
    + made.store(-0x50, b"12")
    + made.store(-0x4E, b"\0")
)
#: GCC puts the last letters into a register first, and the version before the name.
GCC = (
    b"\xba\x61\x73\0\0"
    + made.store(-0x60, b"11.0")
    + made.store(-0x5C, b"\0")
    + made.store(-0x40, b"cubl")
    + b"\x66\x89\x55\xc4"
    + made.store(-0x3A, b"\0")
)
EIGHT_LETTERS = (
    b"\x48\xb8cusolver\x48\x89\x45\xd8" + made.store(-0x20, b"\0") + made.store(-0x50, b"11") + made.store(-0x4E, b"\0")
)
NO_VERSION = made.store(-0x30, b"nvin") + made.store(-0x2C, b"fer\0") + made.store(-0x50, b"\0")
ROCM = made.store(-0x30, b"rocb") + made.store(-0x2C, b"las\0") + made.store(-0x50, b"\0")


@pytest.mark.parametrize(
    ("code", "sonames"),
    [
        (CLANG, ("libcudart.so.12",)),
        (GCC, ("libcublas.so.11.0",)),
        (EIGHT_LETTERS, ("libcusolver.so.11",)),
        (NO_VERSION, ("libnvinfer.so",)),
        (ROCM, ()),
        (b"\xc3", ()),
    ],
)
def test_sonames_composed_on_the_stack(code: bytes, sonames: tuple[str, ...]) -> None:
    assert runtime.opened_sonames(library(symbols={made.GETTER.format(7, "X"): code})) == sonames


def test_a_fallback_without_version_does_not_hide_the_version() -> None:
    fallback = made.store(-0x50, b"\0\0")
    assert runtime.opened_sonames(library(symbols={made.GETTER.format(7, "X"): CLANG + fallback})) == (
        "libcudart.so.12",
    )


def test_a_version_passed_as_a_view_of_text() -> None:
    name = made.store(-0x28, b"cudn") + made.store(-0x24, b"n\0")
    text = b"..12.."
    symbol = made.GETTER.format(17, "Cudnn")
    # The text lies before the function; its displacement holds a byte that also is the opcode of the length.
    pad = b"\x90" * 0x46
    distance = 2 - (len(text) + len(pad) + len(name) + 7)
    code = name + b"\x48\x8d\x0d" + struct.pack("<i", distance) + b"\x48\x8d\x75\xc8\xba\x02\0\0\0\xe8"
    found = library(symbols={symbol: code}, text=text + pad)
    assert 0xBA in struct.pack("<i", distance) or distance < 0
    assert runtime.opened_sonames(found) == ("libcudnn.so.12",)


def test_the_caller_of_dlopen_is_known_by_its_symbol() -> None:
    assert runtime.calls_dlopen(library(symbols={made.DLOPEN: b"\xc3"}))
    assert not runtime.calls_dlopen(library())


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
    assert runtime.compiled_cudnn(library(symbols=symbols)) == version


# Whole wheels

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
FRAMEWORK = made.elf(
    dynamic=((made.DT_RUNPATH, "$ORIGIN/../nvidia/cuda_runtime/lib:$ORIGIN/../../nvidia/cusolver/lib"),),
    symbols={
        made.DLOPEN: b"\xc3",
        made.GETTER.format(23, "CudaRuntime"): CLANG,
        made.GETTER.format(20, "Cusolver"): EIGHT_LETTERS,
        made.CUDNN_CONSTANT: struct.pack("<3i", 9, 3, 0),
    },
    sections={".nv_fatbin": made.fatbin(made.sass(80), made.ptx(90, "8.5")) * 2},
)
MEMBERS = {
    "tensorflow-2.99.1.dist-info/METADATA": METADATA,
    "tensorflow/python/platform/build_info.py": BUILD_INFO,
    "tensorflow/libtensorflow_framework.so.2": FRAMEWORK,
    "tensorflow/libtensorflow_cc.so.2": made.elf(
        sections={"__nv_relfatbin": made.fatbin(made.ptx(90, "8.3")), ".nv_fatbin": made.fatbin(made.sass(90))}
    ),
    "tensorflow/notes.so": b"not a library",
    "tensorflow/empty.so": b"",
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return made.wheel(tmp_path / "tensorflow-2.99.1-cp311-cp311-linux_x86_64.whl", MEMBERS)


def test_a_whole_wheel(wheel: Path) -> None:
    build = inspect_tensorflow(wheel)
    assert build.version == "2.99.1"
    assert build.size == wheel.stat().st_size
    assert build.requires == {
        "keras": (">=3.12.0",),
        "keras-nightly": (),
        "numpy": ('<2.0.0,>=1.23.5; python_version <= "3.11"',),
    }
    assert build.and_cuda == ("nvidia-cudnn-cu12<10.0,>=9.3.0.75",)
    assert build.build_info["cuda_version"] == "12.5"
    assert build.cudnn_headers == "9.3.0"
    assert build.opens == ("libcudart.so.12", "libcusolver.so.11")
    assert build.pip_libraries is not None
    assert build.pip_libraries.folders == ("cuda_runtime",)
    assert build.pip_libraries.missing_required == ("libcusolver.so.11",)
    assert build.kernels == (Kernels((80,), ((90, "8.5"),), 2), Kernels((90,), (), 1))
    assert build.relocatable == 1


def test_a_search_path_counts_from_the_folder_of_the_library() -> None:
    found = library(dynamic=((made.DT_RUNPATH, "$ORIGIN/../../nvidia/cusolver/lib:/usr/nvidia/cublas/lib"),))
    assert pip_folders(found, "tensorflow/libtensorflow_cc.so.2") == ()
    assert pip_folders(found, "tensorflow/python/_pywrap_tensorflow_internal.so") == ("cusolver",)


def test_kernels_are_counted_most_frequent_first() -> None:
    found = fatbins(
        library(sections={".nv_fatbin": made.fatbin(made.sass(90)) + made.fatbin(made.sass(80)) * 2})
    )
    assert [(group.sass, group.fatbins) for group in count_kernels(found)] == [((80,), 2), ((90,), 1)]


def test_build_info_is_not_run(tmp_path: Path) -> None:
    evil = b"build_info = print(__import__('sys').exit(9))"
    path = made.wheel(tmp_path / "x.whl", MEMBERS | {"tensorflow/python/platform/build_info.py": evil})
    with pytest.raises(InspectionError, match=r"build_info\.py: can't be read"):
        inspect_tensorflow(path)


def test_a_wheel_without_build_info_is_not_tensorflow(tmp_path: Path) -> None:
    with pytest.raises(InspectionError, match=r"holds no tensorflow/python/platform/build_info\.py"):
        inspect_tensorflow(made.wheel(tmp_path / "x.whl", {"x.dist-info/METADATA": METADATA}))


def test_a_wheel_without_metadata(tmp_path: Path) -> None:
    with (
        WheelFile(made.wheel(tmp_path / "x.whl", {"a": b""})) as found,
        pytest.raises(InspectionError, match="0 METADATA files"),
    ):
        found.metadata()


def test_a_download_cut_short(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(InspectionError, match="not a wheel, or cut short") as caught:
        inspect_tensorflow(wheel)
    assert caught.value.hint and "download the wheel again" in caught.value.hint


def test_a_damaged_member(wheel: Path) -> None:
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"machine code", b"machine c0de", 1))
    with pytest.raises(InspectionError, match=r"libtensorflow_\w+\.so\.2 is damaged"):
        inspect_tensorflow(wheel)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no such file"):
        WheelFile(tmp_path / "absent.whl")


# Rows

HEAD = "# What this is.\n\nbuilds:\n"
DATE = datetime.date(2026, 11, 21)


def test_a_row_is_yaml_that_reads_back(wheel: Path) -> None:
    cells = rows.row(inspect_tensorflow(wheel), DATE)
    assert yaml.safe_load(rows.render(cells)) == [cells]
    assert cells["status"] == "verified-local"
    assert cells["kernels"][0] == {"fatbins": 2, "sass": [80], "ptx": {90: "8.5"}}


def test_rows_are_merged_in_order_under_the_comment(tmp_path: Path) -> None:
    path = tmp_path / "builds.yaml"
    path.write_text(HEAD)
    rows.write(path, [{"tensorflow": "2.10.0", "size": 1}, {"tensorflow": "2.9.0", "size": 2}])
    rows.write(path, [{"tensorflow": "2.10.0", "size": 3}])
    assert path.read_text().startswith("# What this is.\n")
    assert yaml.safe_load(path.read_text())["builds"] == [
        {"tensorflow": "2.9.0", "size": 2},
        {"tensorflow": "2.10.0", "size": 3},
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["builds.yaml"]


def test_a_release_that_pip_has_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(MissingError, match=r"tensorflow 0\.0\.1 for Python 3\.11: pip could not download it"):
        command.download("0.0.1", "3.11", tmp_path)


def test_the_command_prints_a_row(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inspect-wheel", str(wheel)])
    assert command.main() == 0
    assert yaml.safe_load(capsys.readouterr().out)[0]["tensorflow"] == "2.99.1"


def test_the_command_says_what_is_wrong_and_what_to_do(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel.write_bytes(b"PK")
    monkeypatch.setattr(sys, "argv", ["inspect-wheel", str(wheel)])
    assert command.main() == EXIT_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not a wheel" in printed.err and "hint: download the wheel again" in printed.err


# The measured rows

MEASURED = yaml.safe_load(rows.BUILDS.read_text("utf-8"))["builds"]


def test_the_file_is_as_the_tool_writes_it() -> None:
    text = rows.BUILDS.read_text("utf-8")
    assert rows.merge(text, []) == text
    releases = [Version(cells["tensorflow"]) for cells in MEASURED]
    assert releases == sorted(set(releases))


@pytest.mark.parametrize("cells", MEASURED, ids=lambda cells: cells["tensorflow"])
def test_a_measured_row(cells: dict[str, object]) -> None:
    assert cells["status"] == "verified-local"
    assert cells["build"]["cuda_build"] is True  # type: ignore[index]
    assert cells["build"]["cudnn_headers"]  # type: ignore[index]
    opens = cells["opens"]
    assert isinstance(opens, list)
    for stem in ("cublas", "cublasLt", "cudart", "cudnn", "cufft", "cusolver", "cusparse"):
        # One soname each, with its version: without one the code was misread.
        assert sum(soname.startswith(f"lib{stem}.so.") for soname in opens) == 1, stem
        assert f"lib{stem}.so" not in opens


def test_which_releases_do_not_find_the_libraries_of_pip() -> None:
    # 2.16.1: tensorflow/tensorflow issue 63362. 2.12 and 2.13 have no and-cuda extra.
    lacking = {
        cells["tensorflow"] for cells in MEASURED if cells["pip_libraries"]["missing_required"] and cells["and_cuda"]
    }
    assert lacking == {"2.16.1", "2.21.0"}
