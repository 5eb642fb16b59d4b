"""Wheels become the files that an installer would write."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from validator.assemble.install import Environment, check_compatible, entries, merged
from validator.assemble.layers import Entry
from validator.errors import InputError
from validator.model.spec import Wheel

from . import wheels
from .wheels import ENVIRONMENT, FILENAME, INFO, SITE

DATA = "example-1.0.data"


def installed(directory: Path, files: Mapping[str, bytes]) -> dict[str, tuple[int, bytes]]:
    """Install a wheel with these files, and return path -> mode and content."""
    return read(entries(wheels.opened(directory, wheels.with_metadata(files)), ENVIRONMENT))


def read(some: tuple[Entry, ...]) -> dict[str, tuple[int, bytes]]:
    assert [entry.path for entry in some] == sorted(entry.path for entry in some)
    return {entry.path: (entry.mode, b"".join(entry.content.chunks())) for entry in some if entry.content}


def test_a_simple_wheel(tmp_path: Path) -> None:
    files = {"example.py": b"x = 1\n", "example/sub/data.txt": b""}
    found = installed(tmp_path, files)
    record = found.pop(f"{SITE}/{INFO}/RECORD")
    assert found == {
        f"{SITE}/example.py": (0o644, b"x = 1\n"),
        f"{SITE}/example/sub/data.txt": (0o644, b""),
        **{f"{SITE}/{path}": (0o644, content) for path, content in wheels.METADATA.items()},
        f"{SITE}/{INFO}/INSTALLER": (0o644, b"tensorflow-gpu-matrix\n"),
        f"{SITE}/{INFO}/REQUESTED": (0o644, b""),
    }
    assert record[0] == 0o644
    everything = {path.removeprefix(f"{SITE}/"): content for path, (_, content) in found.items()}
    assert sorted(record[1].splitlines()) == sorted(wheels.record_of(everything).splitlines())


def test_each_part_of_the_data_directory_has_its_place(tmp_path: Path) -> None:
    files = {
        f"{DATA}/purelib/pure.py": b"1",
        f"{DATA}/platlib/native.so": b"2",
        f"{DATA}/headers/example.h": b"3",
        f"{DATA}/data/share/example/x": b"4",
        f"{DATA}/data/lib/python3.11/site-packages/late.py": b"5",
        f"{DATA}/scripts/tool": b"\x7fELF",
    }
    found = installed(tmp_path, files)
    expected = {
        f"{SITE}/pure.py": (0o644, b"1"),
        f"{SITE}/native.so": (0o644, b"2"),
        "opt/venv/include/site/python3/example/example.h": (0o644, b"3"),
        "opt/venv/share/example/x": (0o644, b"4"),
        f"{SITE}/late.py": (0o644, b"5"),
        "opt/venv/bin/tool": (0o755, b"\x7fELF"),
    }
    assert {path: found[path] for path in found if INFO not in path} == expected
    record = found[f"{SITE}/{INFO}/RECORD"][1].decode()
    for path, (_, content) in expected.items():
        relative = path.removeprefix(f"{SITE}/").replace("opt/venv/", "../../../")
        assert wheels.record_of({relative: content}).decode().splitlines()[0] in record.splitlines()


def test_scripts_start_the_environments_python(tmp_path: Path) -> None:
    files = {
        f"{DATA}/scripts/python-script": b"#!python\nprint('a')\n",
        f"{DATA}/scripts/windowed": b"#!pythonw -s\nprint('b')\n",
        f"{DATA}/scripts/shell": b"#!/bin/sh\necho\n",
    }
    found = installed(tmp_path, files)
    first = b"#!/opt/venv/bin/python\n"
    assert found["opt/venv/bin/python-script"] == (0o755, first + b"print('a')\n")
    assert found["opt/venv/bin/windowed"] == (0o755, first + b"print('b')\n")
    assert found["opt/venv/bin/shell"] == (0o755, b"#!/bin/sh\necho\n")
    digest = wheels.record_of({"../../../bin/windowed": first + b"print('b')\n"}).splitlines()[0]
    assert digest in found[f"{SITE}/{INFO}/RECORD"][1].splitlines()


def test_entry_points_become_scripts(tmp_path: Path) -> None:
    declared = (
        b"[console_scripts]\ntool = example.cli:main\nNested-Tool=example : Class.method [extra]\n"
        b"[gui_scripts]\nwindow = example.gui:run\n[other]\nnot-a-script = example:x\n"
    )
    files = {f"{INFO}/entry_points.txt": declared, f"{DATA}/scripts/tool": b"#!python\nold\n"}
    found = installed(tmp_path, files)
    scripts = {path.rpartition("/")[2]: found[path] for path in found if path.startswith("opt/venv/bin/")}
    assert set(scripts) == {"tool", "Nested-Tool", "window"}
    assert {mode for mode, _ in scripts.values()} == {0o755}
    called: list[str] = []

    class Class:
        @staticmethod
        def method() -> int:
            called.append("method")
            return 7

    text = scripts["Nested-Tool"][1].decode()
    assert text.startswith("#!/opt/venv/bin/python\n")
    text = text.replace("from example import Class\n", "")
    with pytest.raises(SystemExit) as caught:
        exec(text, {"__name__": "__main__", "Class": Class})
    assert (called, caught.value.code) == (["method"], 7)


def test_the_files_do_not_depend_on_the_version_of_python(tmp_path: Path) -> None:
    """Images with several Pythons share the layers of wheels that fit all of them."""
    declared = {
        "pip-1.0.dist-info/entry_points.txt": b"[console_scripts]\npip = pip:main\npip3 = pip:main\n",
        "pip-1.0.data/headers/pip.h": b"",
        "pip-1.0.data/scripts/x": b"#!python\n",
        "pip-1.0.data/data/lib/python3/x": b"",
    }
    wheel = wheels.opened(tmp_path, wheels.renamed(declared, "pip"), "pip-1.0-py3-none-any.whl")
    one, other = (read(entries(wheel, Environment(version, (2, 36)))) for version in ("3.10", "3.13"))
    assert one == other
    assert {"opt/venv/bin/pip", "opt/venv/bin/pip3", "opt/venv/include/site/python3/pip/pip.h"} < set(one)


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "-x", "a\tb"])
def test_names_of_scripts_are_checked(name: str, tmp_path: Path) -> None:
    files = {f"{INFO}/entry_points.txt": f"[console_scripts]\n{name} = example:main\n".encode()}
    with pytest.raises(InputError, match=r"no valid reference|can't be read"):
        installed(tmp_path, files)


@pytest.mark.parametrize(
    "reference", ["example", "example:", "example:main; import os", "exa mple:main", ":main"]
)
def test_references_of_scripts_are_checked(reference: str, tmp_path: Path) -> None:
    files = {f"{INFO}/entry_points.txt": f"[console_scripts]\ntool = {reference}\n".encode()}
    with pytest.raises(InputError, match="no valid reference"):
        installed(tmp_path, files)


def test_the_executable_bit_comes_from_the_archive(tmp_path: Path) -> None:
    files = wheels.with_metadata({"example/tool": b"", "example/text": b"", "example/odd": b""})
    files[0].mode, files[1].mode, files[2].mode = 0o100775, 0o100600, 0
    found = read(entries(wheels.opened(tmp_path, files), ENVIRONMENT))
    modes = {path.rpartition("/")[2]: mode for path, (mode, _) in found.items() if "/example/" in path}
    assert modes == {"tool": 0o755, "text": 0o644, "odd": 0o644}


def test_what_the_wheel_says_of_its_installation_is_replaced(tmp_path: Path) -> None:
    files = {f"{INFO}/INSTALLER": b"evil\n", f"{INFO}/REQUESTED": b"x", f"{INFO}/direct_url.json": b"{}"}
    found = installed(tmp_path, files)
    assert found[f"{SITE}/{INFO}/INSTALLER"][1] == b"tensorflow-gpu-matrix\n"
    assert found[f"{SITE}/{INFO}/REQUESTED"][1] == b""
    assert f"{SITE}/{INFO}/direct_url.json" not in found


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (f"{DATA}/scripts/python", "would replace bin/python"),
        (f"{DATA}/scripts/python3.11", r"would replace bin/python3\.11"),
        (f"{DATA}/data/bin/activate", "would replace bin/activate"),
        (f"{DATA}/data/pyvenv.cfg", r"would replace pyvenv\.cfg"),
        (f"{DATA}/unknown/x", "belongs to no part"),
        (f"{DATA}/scripts", "belongs to no part"),
        ("other-2.0.data/purelib/x.py", "belongs to another package"),
    ],
)
def test_files_without_a_place(path: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why) as caught:
        installed(tmp_path, {path: b""})
    assert str(caught.value).startswith(FILENAME)


def test_two_files_with_the_same_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"two of its files are installed as .*/x\.py"):
        installed(tmp_path, {"x.py": b"", f"{DATA}/purelib/x.py": b""})


@pytest.mark.parametrize("version", ["2.0", "1", "", "one"])
def test_other_versions_of_the_format(version: str, tmp_path: Path) -> None:
    files = [file for file in wheels.with_metadata({}) if not file.name.endswith(("/WHEEL", "/RECORD"))] + [
        wheels.File(f"{INFO}/WHEEL", f"Wheel-Version: {version}\n".encode()),
        wheels.File(f"{INFO}/RECORD"),
    ]
    with pytest.raises(InputError, match=r"version .* of the wheel format"):
        entries(wheels.opened(tmp_path, files), ENVIRONMENT)


def native(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine) + bytes(1000)


def test_an_extension_module_for_another_machine(tmp_path: Path) -> None:
    name = "example/native.cpython-311-x86_64-linux-gnu.so"
    assert installed(tmp_path, {name: native(62)})[f"{SITE}/{name}"][1] == native(62)
    for wrong in (name, "example/native.abi3.so"):
        with pytest.raises(InputError, match="is not made for x86_64"):
            installed(tmp_path, {wrong: native(183)})
    # Data, such as code for a GPU, may have any machine.
    assert installed(tmp_path, {"example/kernel.so": native(190)})


def named(tags: str) -> Wheel:
    return Wheel("example", "1.0", "0" * 64, f"example-1.0-{tags}.whl")


@pytest.mark.parametrize(
    "tags",
    [
        "py3-none-any",
        "py2.py3-none-any",
        "cp311-cp311-manylinux_2_36_x86_64",
        "cp39-abi3-manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_39_x86_64.manylinux_2_28_x86_64",
        "py3-none-manylinux1_x86_64.manylinux_2_5_x86_64",
        "cp311-none-linux_x86_64",
    ],
)
def test_wheels_that_fit(tags: str) -> None:
    check_compatible(named(tags), ENVIRONMENT)


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ("cp311-cp311-manylinux_2_37_x86_64", r"needs glibc 2\.37, and the base has 2\.36"),
        ("cp311-cp311-manylinux_2_39_x86_64.manylinux_2_38_x86_64", r"needs glibc 2\.38"),
        (
            "py3-none-manylinux_2_28_aarch64",
            "is for manylinux_2_28_aarch64, and images are for Linux on x86_64",
        ),
        ("cp311-cp311-win_amd64", "is for win_amd64"),
        ("cp311-cp311-macosx_11_0_x86_64", "is for macosx_11_0_x86_64"),
        ("cp311-cp311-musllinux_1_2_x86_64", "is for musllinux_1_2_x86_64"),
        ("cp312-cp312-manylinux_2_28_x86_64", r"does not fit Python 3\.11"),
        ("cp312-abi3-manylinux_2_28_x86_64", r"does not fit Python 3\.11"),
        ("py2-none-any", r"does not fit Python 3\.11"),
    ],
)
def test_wheels_that_do_not_fit(tags: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        check_compatible(named(tags), ENVIRONMENT)
    assert str(caught.value).startswith(f"example-1.0-{tags}.whl")
    assert caught.value.hint


def test_the_wheel_is_checked_before_it_is_installed(tmp_path: Path) -> None:
    old = Environment("3.11", (2, 17))
    filename = "example-1.0-py3-none-manylinux_2_28_x86_64.whl"
    wheel = wheels.opened(tmp_path, wheels.with_metadata({}), filename)
    assert entries(wheel, ENVIRONMENT)
    with pytest.raises(InputError, match=r"needs glibc 2\.28"):
        entries(wheel, old)


def two(directory: Path, one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[Entry]:
    (directory / "other").mkdir()
    opened = [
        wheels.opened(directory, wheels.with_metadata(one)),
        wheels.opened(directory / "other", wheels.renamed(other, "other"), "other-1.0-py3-none-any.whl"),
    ]
    return merged((wheel.wheel.filename, entries(wheel, ENVIRONMENT)) for wheel in opened)


def test_several_wheels_in_one_layer(tmp_path: Path) -> None:
    found = two(
        tmp_path, {"shared/__init__.py": b"", "a.py": b"a"}, {"shared/__init__.py": b"", "b/c.py": b"b"}
    )
    paths = [entry.path for entry in found]
    assert paths == sorted(set(paths))
    assert [entry.path for entry in found[:4]] == ["opt", "opt/venv", "opt/venv/lib", "opt/venv/lib/python3"]
    directories = {entry.path for entry in found if entry.content is None}
    assert directories == {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    assert {entry.mode for entry in found if entry.content is None} == {0o755}
    assert {f"{SITE}/a.py", f"{SITE}/b/c.py", f"{SITE}/shared/__init__.py"} < set(paths)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"x.py": b"1"}, {"x.py": b"2"}, r"both contain .*/x\.py, with different content"),
        ({"x.py": b"1"}, {"x.py": b"12"}, "different content"),
        ({"x": b"1"}, {"x/y.py": b"2"}, "/x is a file in one and a directory in the other"),
        ({"x/y.py": b"1"}, {"x": b"2"}, "/x is a file in one and a directory in the other"),
    ],
)
def test_wheels_that_contradict_each_other(
    one: dict[str, bytes], other: dict[str, bytes], why: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        two(tmp_path, one, other)
    assert FILENAME in str(caught.value)
    assert "other-1.0-py3-none-any.whl" in str(caught.value)


def test_the_same_content_without_hashes_is_compared(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    found = []
    for content, name in ((b"1", "example"), (b"1", "other"), (b"2", "other")):
        files = wheels.renamed({}, name)
        info = f"{name}-1.0.dist-info"
        record = wheels.record_of({}, info)
        files = [file for file in files if "RECORD" not in file.name]
        files += [wheels.File("x.py", content), wheels.File(f"{info}/RECORD", record)]
        filename = f"{name}-1.0-py3-none-any.whl"
        directory = tmp_path / hashlib.sha256(content).hexdigest()
        directory.mkdir(exist_ok=True)
        wheel = wheels.opened(directory, files, filename)
        found.append((name, entries(wheel, ENVIRONMENT)))
    assert merged(found[:2])
    with pytest.raises(InputError, match="different content"):
        merged([found[0], found[2]])
