"""The cache of the dynamic loader: read, sorted and written as glibc does."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.assemble.host_files import CacheEntry, LoaderCache, name_key, parse, render
from validator.errors import InputError

LDCONFIG = shutil.which("ldconfig") or "/sbin/ldconfig"
CACHE = Path("/etc/ld.so.cache")
V3 = CacheEntry("libz.so.1", "/usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1", hwcap=1 << 62, hwcaps="x86-64-v3")
V2 = CacheEntry("libz.so.1", "/usr/lib/glibc-hwcaps/x86-64-v2/libz.so.1", hwcap=1 << 62, hwcaps="x86-64-v2")
PLAIN = CacheEntry("libz.so.1", "/usr/lib/libz.so.1")


def entry(name: str, directory: str = "/usr/lib") -> CacheEntry:
    return CacheEntry(name, f"{directory}/{name}")


def listed(path: Path) -> list[str]:
    """Return the lines of `ldconfig -p`, without the first, which has the file's name."""
    done = subprocess.run([LDCONFIG, "-p", "-C", path], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[1:]


@pytest.mark.service
@pytest.mark.skipif(not CACHE.exists(), reason="this machine's loader has no cache")
def test_this_machines_cache_is_in_ldconfigs_order_and_survives(tmp_path: Path) -> None:
    cache = parse(CACHE.read_bytes())
    assert cache.entries and cache.with_libraries((), lambda _: True) == cache
    (tmp_path / "cache").write_bytes(render(cache))
    assert listed(tmp_path / "cache") == listed(CACHE)


@pytest.mark.service
@pytest.mark.skipif(not CACHE.exists(), reason="this machine's loader has no cache")
@pytest.mark.parametrize("kept_first", [True, False])
def test_libraries_are_added_where_ldconfig_finds_them(tmp_path: Path, kept_first: bool) -> None:
    cache = parse(CACHE.read_bytes())
    added = [entry(name, "/opt/lib") for name in ("libcudnn.so.9", "libc.so.6", "libcudnn.so.10", "libA.so")]
    # Libraries of the same name, such as libc.so.6, are in the order in which ldconfig reads the directories.
    whole = cache.with_libraries(added, lambda _: kept_first)
    (tmp_path / "cache").write_bytes(render(whole))
    lines = listed(tmp_path / "cache")
    assert [line for line in lines if "/opt/lib" not in line] == listed(CACHE)
    own = [line.split()[0] for line in lines if "/opt/lib" in line]
    assert own == ["libcudnn.so.10", "libcudnn.so.9", "libc.so.6", "libA.so"]
    both = [line.rpartition("=> ")[2] for line in lines if line.strip().startswith("libc.so.6 ")]
    assert both[-1 if kept_first else 0] == "/opt/lib/libc.so.6"


def test_hwcaps_come_first_and_are_kept() -> None:
    cache = LoaderCache((PLAIN,), "ldconfig of a test").with_libraries((V2, V3), lambda _: True)
    assert cache.entries == (V2, V3, PLAIN)
    again = parse(render(cache))
    assert [one.hwcaps for one in again.entries] == ["x86-64-v2", "x86-64-v3", None]
    assert [one.path for one in again.entries] == [V2.path, V3.path, PLAIN.path]
    assert again.generator == "ldconfig of a test"
    assert render(again) == render(cache)


def test_the_older_format_before_the_newer_one_is_skipped() -> None:
    cache = LoaderCache((entry("libz.so.1"),), "ldconfig")
    assert parse(b"ld.so-1.7.0\0" + struct.pack("<I", 0) + render(cache)) == cache


def test_an_empty_cache() -> None:
    assert parse(render(LoaderCache())) == LoaderCache()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a cache",
        render(LoaderCache((entry("libz.so.1"),)))[:60],
        render(LoaderCache((entry("libz.so.1"),))).replace(struct.pack("<I", 72), b"\xff\xff\xff\x7f"),
        render(LoaderCache()).replace(b"cache1.1\0\0\0\0\0\0\0\0\2", b"cache1.1\0\0\0\0\0\0\0\0\3"),
    ],
)
def test_a_damaged_cache_is_rejected(data: bytes) -> None:
    with pytest.raises(InputError, match=r"/etc/ld\.so\.cache of the base"):
        parse(data)


@pytest.mark.parametrize(
    ("older", "newer"),
    # A digit comes after everything that is not one.
    [("libz.so.9", "libz.so.10"), ("libz.so", "libz.so.1"), ("libz.so", "lib1.so"), ("liba2", "lib2")],
)
def test_numbers_in_names_count_by_their_value(older: str, newer: str) -> None:
    assert name_key(older) < name_key(newer)


NAMES = st.text("ab.019", max_size=8)


@given(st.lists(st.tuples(NAMES.filter(bool), st.sampled_from(["/lib", "/opt/lib"])), max_size=20))
def test_what_is_written_can_be_read(libraries: list[tuple[str, str]]) -> None:
    cache = LoaderCache((), "x").with_libraries([entry(*pair) for pair in libraries], lambda _: True)
    assert parse(render(cache)) == cache
