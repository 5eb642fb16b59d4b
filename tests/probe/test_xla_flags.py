"""Reading `XLA_FLAGS`, and which flags a TensorFlow knows."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from validator.probe.xla import Flags, parse, unknown_flags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("--xla_a", (("--xla_a", None),)),
        ("  --xla_a=1 \t--xla_b=", (("--xla_a", "1"), ("--xla_b", ""))),
        ("--xla_dir='/my toolkit' --xla_b=x=y", (("--xla_dir", "/my toolkit"), ("--xla_b", "x=y"))),
        ('--xla_dir="/my \\"kit\\""', (("--xla_dir", '/my \\"kit\\"'),)),
        ("-xla_a=1", (("-xla_a", "1"),)),
    ],
)
def test_flags_are_read(text: str, expected: tuple[tuple[str, str | None], ...]) -> None:
    read = parse(text)
    assert (read.file, read.missing, read.flags) == (None, False, expected)


def test_the_last_value_counts() -> None:
    read = parse("--xla_level=1 --xla_level=2 --xla_other=3")
    assert read.value("xla_level") == "2"
    assert read.value("xla_lev") is None


def test_a_value_without_a_dash_names_a_file(tmp_path: Path) -> None:
    assert parse("xla_a=1") == Flags("xla_a=1", True, ())
    file = tmp_path / "flags"
    file.write_text("--xla_a=1\n--xla_b")
    assert parse(str(file)) == Flags(str(file), False, (("--xla_a", "1"), ("--xla_b", None)))


def test_flags_that_are_in_no_library_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "libtensorflow_framework.so.2").write_bytes(b"\x12\x0exla_gpu_longer_name\0--xla_gpu_first\0")
    (tmp_path / "libtensorflow_cc.so.2").write_bytes(b"\0xla_gpu_second\0")
    read = parse("--xla_gpu_first --xla_gpu_second=1 --xla_gpu_longer --xla_gpu_third --other --xla_x")
    assert unknown_flags(read, "xla_", str(tmp_path)) == [
        "--other",
        "--xla_gpu_longer",
        "--xla_gpu_third",
    ]


ALLOCATED, EXECUTABLE = 2, 4


def elf_file(sections: dict[bytes, tuple[int, bytes]]) -> bytes:
    """Return an ELF file with these sections of program data. sections: flags and content, by name."""
    names = b"\0" + b"\0".join([*sections, b""])
    body, headers = names, struct.pack("<IIQQQQ24x", 0, 3, 0, 0, 64, len(names))
    for name, (properties, content) in sections.items():
        place = names.index(b"\0" + name + b"\0") + 1
        headers += struct.pack("<IIQQQQ24x", place, 1, properties, 0, 64 + len(body), len(content))
        body += content
    start = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64 + len(body))
    return start.ljust(58, b"\0") + struct.pack("<HHH", 64, len(sections) + 1, 0) + body + headers


def test_only_data_of_a_library_is_searched(tmp_path: Path) -> None:
    content = elf_file(
        {
            b".rodata": (ALLOCATED, b"\0xla_gpu_known\0"),
            b".nv_fatbin": (ALLOCATED, b"\0xla_gpu_kernels\0"),
            b".text": (ALLOCATED | EXECUTABLE, b"\0xla_gpu_code\0"),
            b".comment": (0, b"\0xla_gpu_comment\0"),
        }
    )
    library = tmp_path / "libtensorflow_cc.so.2"
    library.write_bytes(content)
    read = parse("--xla_gpu_known --xla_gpu_kernels --xla_gpu_code --xla_gpu_comment")
    elsewhere = ["--xla_gpu_kernels", "--xla_gpu_code", "--xla_gpu_comment"]
    assert unknown_flags(read, "xla_", str(tmp_path)) == elsewhere
    # If the table of sections is cut off or damaged, the whole file is searched.
    far = (2**64 - 1).to_bytes(8, "little")
    for damaged in (content[:-64], content[:40] + far + content[48:], content[:40] + bytes(8) + content[48:]):
        library.write_bytes(damaged)
        assert unknown_flags(read, "xla_", str(tmp_path)) == []


def test_without_a_library_only_the_prefix_is_judged(tmp_path: Path) -> None:
    read = parse("--xla_gpu_nonsense --tf_xla_auto_jit=2")
    assert unknown_flags(read, "xla_", str(tmp_path)) == ["--tf_xla_auto_jit"]
    assert unknown_flags(read, "xla_", None) == ["--tf_xla_auto_jit"]
