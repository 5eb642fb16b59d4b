"""The entry point gives XLA a directory for what it compiles: private, keyed, bounded, and never a danger."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from validator.assemble.configuration import XLA_CACHE, entry_point

from .test_entrypoint import CACHE, Host, Started

GPU, DRIVER = "NVIDIA H100 80GB HBM3", "580.65.06"
IMAGE = "2.21.0-0123456789abcdef"
FLAGS = "--tf_xla_persistent_cache_directory --xla_gpu_per_fusion_autotune_cache_dir"
KEY = f"{IMAGE}-NVIDIA-H100-80GB-HBM3-{DRIVER}"


def entry(size: int = 100) -> bytes:
    """Return an entry as TensorFlow writes it: the fields 1 to 3, of which the last has this many bytes."""
    length = bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size])
    return b"\x0a\x02ab\x12\x01c\x1a" + length + b"x" * size


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Nothing is written next to what goes into images.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("xla_cache_of_the_image", CACHE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the place in a volume, with a Python that has TensorFlow 2.21.0."""
    (tmp_path / "venv/lib/python3.12/site-packages/tensorflow-2.21.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    old = os.umask(0o022)
    os.umask(old)
    monkeypatch.setattr(os, "umask", lambda mask: old)
    (tmp_path / "volume").mkdir()
    return str(tmp_path / "volume" / IMAGE)


@pytest.mark.unit
def test_each_user_image_gpu_and_driver_has_a_private_directory(cache: ModuleType, place: str) -> None:
    chosen = cache.prepare(place, DRIVER, [GPU, GPU])
    assert chosen == Path(place).parent / str(os.getuid()) / KEY
    for directory in (chosen, chosen.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    others = {
        cache.prepare(place, "580.65.07", [GPU]),
        cache.prepare(place, DRIVER, [GPU, "NVIDIA A100"]),
        cache.prepare(place.replace("cdef", "cdee"), DRIVER, [GPU]),
    }
    assert len({chosen, *others}) == 4


@pytest.mark.unit
def test_a_directory_of_somebody_else_is_not_used(
    cache: ModuleType, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Path(place).parent / "4242"
    own.mkdir(mode=0o777)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(cache.Refused, match="is not a directory of user 4242"):
        cache.prepare(place, DRIVER, [GPU])
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    (Path(place).parent / str(os.getuid())).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(cache.Refused, match="is not a directory of user"):
        cache.prepare(place, DRIVER, [GPU])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"driver": ""}, "the driver or the GPU is not known"),
        ({"gpus": []}, "the driver or the GPU is not known"),
        ({"image": "2.18.1-0123"}, "another TensorFlow than 2.18.1"),
        ({"free": 5}, "less than 1 GiB is free"),
        ({"image": f"my files/{IMAGE}"}, "such as a space"),
    ],
)
def test_nothing_is_kept_where_it_would_be_wrong(
    cache: ModuleType, place: str, change: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "free" in change:
        usage = type("Usage", (), {"free": change["free"]})
        monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage)
    given = str(Path(place).parent / change.get("image", IMAGE))
    with pytest.raises(cache.Refused, match=why):
        cache.prepare(given, change.get("driver", DRIVER), change.get("gpus", [GPU]))


@pytest.mark.unit
def test_damaged_entries_are_removed_and_others_stay(cache: ModuleType, place: str) -> None:
    chosen = cache.prepare(place, DRIVER, [GPU])
    contents = {
        "good.pb": entry(), "long.pb": entry(1000), "cut.pb": entry(1000)[:-1], "empty.pb": b"",
        "other.pb": b"\x08\x01" * 50, "partial.pb": b"\x0a\x02ab", "mid.pb": b"\x0a\xff", "result.txt": b"",
        "new.tmp": b"x", "old.tmp": b"x",
    }  # fmt: skip
    for name, content in contents.items():
        (chosen / name).write_bytes(content)
    os.utime(chosen / "old.tmp", (0, 0))
    cache.prepare(place, DRIVER, [GPU])
    assert {path.name for path in chosen.iterdir()} == {"good.pb", "long.pb", "result.txt", "new.tmp"}


@pytest.mark.unit
def test_the_longest_unused_goes_first(
    cache: ModuleType, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LIMIT", 3 * len(entry(1000)))
    chosen = cache.prepare(place, DRIVER, [GPU])
    older, oldest = (cache.prepare(place, driver, [GPU]) for driver in ("570.1.1", "560.1.1"))
    for age, directory in enumerate((chosen, older, oldest)):
        for number in (1, 2):
            (directory / f"{number}.pb").write_bytes(entry(1000))
            os.utime(directory / f"{number}.pb", (1000 + number, 1000 + number))
        os.utime(directory, (10_000 - age, 10_000 - age))
    cache.prepare(place, DRIVER, [GPU])
    left = sorted(str(path.relative_to(chosen.parent)) for path in chosen.parent.rglob("*.pb"))
    assert left == sorted([f"{KEY}/1.pb", f"{KEY}/2.pb", f"{older.name}/2.pb"])
    assert not oldest.exists()
    assert older.stat().st_mtime == 9_999
    monkeypatch.setattr(cache, "LIMIT", len(entry(1000)))
    cache.prepare(place, DRIVER, [GPU])
    assert [path.name for path in chosen.parent.rglob("*.pb")] == ["2.pb"]


@pytest.mark.unit
def test_every_user_may_have_a_directory_in_a_new_volume() -> None:
    modes = {entry.path: entry.mode for entry in entry_point().entries()}
    assert modes[XLA_CACHE[1:]] == 0o1777


# The entry point itself, in a fake root file system.


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path).kernel(DRIVER).device(0, GPU)
    made.write("opt/venv/lib/python3.12/site-packages/tensorflow-2.21.0.dist-info/METADATA")
    (tmp_path / "opt/venv/bin").mkdir()
    (tmp_path / "opt/venv/bin/python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "volume").mkdir(mode=0o777)
    return made


def flags_of(host: Host, **variables: str) -> tuple[str | None, str | None, Started]:
    """Return both variables as the command sees them."""
    place = f"{host.root}/volume/{IMAGE}"
    given = {"VALIDATOR_XLA_CACHE": place, "VALIDATOR_XLA_CACHE_FLAGS": FLAGS, **variables}
    started = host.start(command=["/usr/bin/env"], **given)
    seen = dict(line.split("=", 1) for line in started.out.splitlines())
    return seen.get("TF_XLA_FLAGS"), seen.get("XLA_FLAGS"), started


@pytest.mark.service
def test_flags_are_added_to_those_that_are_set(host: Host) -> None:
    kept = f"{host.root}/volume/{os.getuid()}/{KEY}"
    tf, xla = (f"{flag}={kept}" for flag in FLAGS.split())
    assert flags_of(host)[:2] == (tf, xla)
    found = flags_of(host, TF_XLA_FLAGS="--tf_xla_auto_jit=2", XLA_FLAGS=" --xla_dump_to=/tmp/a b")
    assert found[:2] == (f"--tf_xla_auto_jit=2 {tf}", f" --xla_dump_to=/tmp/a b {xla}")
    assert flags_of(host, VALIDATOR_REQUIRE="off")[:2] == (tf, xla)


@pytest.mark.service
@pytest.mark.parametrize(
    "value", ["--tf_xla_persistent_cache_directory=/mine --tf_xla_auto_jit=2", "flags.txt"]
)
def test_a_choice_of_the_user_stays(host: Host, value: str) -> None:
    assert flags_of(host, TF_XLA_FLAGS=value)[0] == value


@pytest.mark.service
def test_the_command_starts_without_a_cache_too(host: Host) -> None:
    (host.root / "volume").rmdir()
    (host.root / "volume").write_text("not a directory", encoding="utf-8")
    tf, xla, started = flags_of(host)
    assert (tf, xla, started.status) == (None, None, 0)
    assert "XLA keeps nothing for the next start" in started.said
    (host.root / "opt/venv/bin/python").unlink()
    assert flags_of(host)[2].status == 0


@pytest.mark.service
def test_nothing_happens_unless_asked(host: Host) -> None:
    done = subprocess.run(
        ["/bin/sh", str(host.script), "/usr/bin/env"], env={}, capture_output=True, text=True, check=True
    )
    assert "XLA" not in done.stdout
    assert list((host.root / "volume").iterdir()) == []
