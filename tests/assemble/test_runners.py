"""Programs of a base, run without an engine."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest

from validator.assemble import bytecode
from validator.assemble.bytecode import Bubblewrap, bubblewrap
from validator.assemble.layer_table import LayerTable

from .bases import FILES, archive, base_of, layer


def unpacked(root: Path, *layers: Mapping[str, bytes | str | None]) -> Path:
    root.mkdir()
    for files in layers:
        with tarfile.open(fileobj=BytesIO(archive(files)), mode="r|") as opened:
            bytecode._unpack(opened, root)
    return root


def test_layers_are_unpacked_on_top_of_each_other(tmp_path: Path) -> None:
    root = unpacked(
        tmp_path / "root",
        {"etc": None, "etc/a": b"old", "etc/b": b"b", "opt/x/y": b"y", "usr/share/doc": b"d"},
        {"lib": "usr/lib"},
        {"etc/a": b"new", "etc/.wh.b": b"", "lib/c": b"c", "opt/x/.wh..wh..opq": b""},
    )
    assert (root / "etc/a").read_bytes() == b"new"
    assert (root / "usr/lib/c").read_bytes() == b"c"
    assert sorted(os.listdir(root / "etc")) == ["a"]
    assert os.listdir(root / "opt/x") == []
    assert not (root / "usr/share").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"../outside": b"x"},
        {"/outside": b"x"},
        {"up": "..", "up/outside": b"x"},
        {"root": "/", "root/outside": b"x"},
        {"a": "../../../..", "a/outside": b"x"},
        {"a": "b", "b": "a", "a/outside": b"x"},
        {"outside": "../../outside", ".wh.outside": b""},
    ],
)
def test_nothing_is_written_outside_of_the_root(
    files: Mapping[str, bytes | str | None], tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    unpacked(tmp_path / "root", files)
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]
    assert (tmp_path / "outside").read_bytes() == b"mine"
    assert not Path("/outside").exists()


def test_a_link_to_a_file_outside_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.write_bytes(b"mine")
    root = unpacked(tmp_path / "root", {"etc/passwd": str(target)}, {"etc/passwd": b"x"})
    assert target.read_bytes() == b"mine"
    assert (root / "etc/passwd").read_bytes() == b"x"


@pytest.mark.service
def test_a_program_sees_only_the_base(tmp_path: Path) -> None:
    # The shell of this machine with what it needs.
    system = Path("/lib/x86_64-linux-gnu")
    files: dict[str, bytes | str | None] = {
        "bin/sh": Path("/bin/dash").read_bytes(),
        "usr/lib/x86_64-linux-gnu/libc.so.6": (system / "libc.so.6").read_bytes(),
        "usr/lib64/ld-linux-x86-64.so.2": Path("/lib64/ld-linux-x86-64.so.2").read_bytes(),
        "lib": "usr/lib",
    }
    runner = bubblewrap(base_of(LayerTable(tmp_path), layer({**FILES, **files})))
    assert isinstance(runner, Bubblewrap)
    script = "read line; echo $PYTHONHASHSEED $line /* /root/* /sys/*; echo >/etc/x"
    with runner.command(["/bin/sh", "-c", script]) as command:
        done = subprocess.run(command, input=b"input\n", capture_output=True, check=False)
    assert done.stdout.split() == [
        b"0", b"input", b"/bin", b"/dev", b"/etc", b"/lib", b"/lib64", b"/proc", b"/tmp", b"/usr",
        b"/root/*", b"/sys/*",
    ], done.stderr  # fmt: skip
    assert b"Read-only file system" in done.stderr


def test_without_bubblewrap_there_is_no_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert bubblewrap(base_of(LayerTable(tmp_path), layer(FILES))) is None
