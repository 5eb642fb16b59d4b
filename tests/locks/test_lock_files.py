from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.compat.policies import requirements
from validator.errors import InputError
from validator.locks import lock_files
from validator.model.spec import Choice, ImageSpec, Lock, Variant, Wheel

SPEC = ImageSpec("2.21.0", "3.12", Variant.CPU)
ASKED = ("tensorflow-cpu==2.21.0",)
TENSORFLOW = Wheel(
    "tensorflow-cpu", "2.21.0", "a" * 64, "tensorflow_cpu-2.21.0-cp312-cp312-x.whl", 250_000_000
)
SIX = Wheel("six", "1.16.0", "b" * 64, "six-1.16.0-py2.py3-none-any.whl")
LOCK = Lock(SPEC.identifier, "3.12", "x86_64-manylinux_2_28", ASKED, (SIX, TENSORFLOW))

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\.post[0-9])?(\+[a-z0-9]{1,5})?", fullmatch=True)
hashes = st.integers(0, 16**64 - 1).map("{:064x}".format)
filenames = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,40}\.whl", fullmatch=True)
sizes = st.integers(0, 10**10)
paths = st.from_regex(r"(\.\./)?[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,40}\.whl", fullmatch=True)
wheels = st.builds(Wheel, names, versions, hashes, filenames, st.none() | sizes) | st.builds(
    Wheel, names, versions, hashes, filenames, sizes, paths
)
locks = st.builds(
    Lock,
    st.just(SPEC.identifier),
    st.sampled_from(["3.9", "3.12"]),
    st.just("x86_64-manylinux_2_28"),
    st.lists(st.builds("{}=={}".format, names, versions), max_size=4).map(tuple),
    st.lists(wheels, max_size=8).map(tuple),
)


@pytest.mark.slow
@given(locks)
def test_a_written_lock_can_be_read_again(lock: Lock) -> None:
    assert lock_files.parse(lock_files.render(lock)) == lock


@given(locks, st.data())
def test_a_lost_or_changed_line_is_always_noticed(lock: Lock, data: st.DataObject) -> None:
    lines = lock_files.render(lock).splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if "--hash" in line]
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    with pytest.raises(InputError, match="the file was edited by hand or is incomplete"):
        lock_files.parse("".join([*lines[:place], *lines[place + 1 :]]))
    changed = lines[place].replace("==", "==9", 1)
    with pytest.raises(InputError):
        lock_files.parse("".join([*lines[:place], changed, *lines[place + 1 :]]))


@pytest.mark.slow
@given(locks, st.data())
def test_a_truncated_lock_never_has_other_wheels(lock: Lock, data: st.DataObject) -> None:
    text = lock_files.render(lock)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        assert lock_files.parse(cut).digest == lock.digest
    except InputError:
        return


@given(locks, st.sampled_from(["six", "# a comment", "six>=1", "", "--index-url x", "six==1"]), st.data())
def test_a_foreign_line_is_named_wherever_it_is(lock: Lock, foreign: str, data: st.DataObject) -> None:
    lines = lock_files.render(lock).splitlines()
    place = data.draw(st.integers(0, len(lines)))
    text = "\n".join([*lines[:place], foreign, *lines[place:]]) + "\n"
    with pytest.raises(InputError, match=f"^here:{place + 1}: "):
        lock_files.parse(text, "here")


def test_the_digest_depends_only_on_the_wheels() -> None:
    other = Lock("another", "3.9", "y", (), LOCK.wheels)
    assert other.digest == LOCK.digest
    assert Lock(SPEC.identifier, "3.12", "x", ASKED, (TENSORFLOW,)).digest != LOCK.digest
    assert LOCK.size == 250_000_000
    assert LOCK.version("six") == "1.16.0"
    assert LOCK.version("absent") is None


def test_files_are_written_and_read_by_identifier(tmp_path: Path) -> None:
    assert lock_files.read(tmp_path, SPEC.identifier) is None
    path = lock_files.write(tmp_path / "deeper", LOCK)
    assert path.name == "tf2.21.0-cpu-py312.txt"
    assert lock_files.read(tmp_path / "deeper", SPEC.identifier) == LOCK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text + "six>=1\n", r':8: "six>=1" is not a valid line of a lock file'),
        (
            lambda text: text.replace("sha256:" + "b" * 64, "sha256:short"),
            r":6: .* is not a valid line of a lock file",
        ),
        (lambda text: text.replace("# python: 3.12\n", ""), "missing in the header: python"),
        (lambda text: "", "missing in the header: identifier, python, platform, digest"),
        (
            lambda text: text.replace("py312; written", "py311; written"),
            "contains the lock of tf2.21.0-cpu-py311",
        ),
        (lambda text: text.rstrip() + "1" * 5000, r"is not a valid line of a lock file"),
        (lambda text: text.rsplit("six==", 1)[0], "the file was edited by hand or is incomplete"),
    ],
)
def test_a_file_that_is_not_a_lock_is_rejected_with_the_line(
    tmp_path: Path, change: object, message: str
) -> None:
    path = lock_files.path_of(tmp_path, SPEC.identifier)
    path.write_text(change(lock_files.render(LOCK)))  # type: ignore[operator]
    with pytest.raises(InputError, match=message) as caught:
        lock_files.read(tmp_path, SPEC.identifier)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_lock_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    lock_files.path_of(tmp_path, SPEC.identifier).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="can't be read"):
        lock_files.read(tmp_path, SPEC.identifier)


def test_a_lock_satisfies_its_own_spec() -> None:
    assert lock_files.mismatches(LOCK, SPEC, ASKED) == []
    asked = ("tensorflow[and-cuda]==2.21.0",)
    wheel = Wheel("tensorflow", "2.21.0", "a" * 64, "t.whl")
    assert lock_files.mismatches(Lock("x", "3.12", "x", asked, (wheel,)), SPEC, asked) == []


@pytest.mark.parametrize(
    ("lock", "asked", "sentence"),
    [
        (LOCK, ("tensorflow-cpu==2.20.0",), "it has tensorflow-cpu 2.21.0, but the spec requires ==2.20.0"),
        (LOCK, (*ASKED, "numpy<2"), "it has no numpy"),
        (LOCK, (*ASKED, "numpy<2"), "the spec requires numpy<2, but the lock was resolved without it"),
        (LOCK, (), "the lock was resolved with tensorflow-cpu==2.21.0, which the spec no longer requires"),
        (Lock("x", "3.11", "x", ASKED, LOCK.wheels), ASKED, "it is for Python 3.11, but the spec needs 3.12"),
    ],
)
def test_each_mismatch_with_the_spec_is_named(lock: Lock, asked: tuple[str, ...], sentence: str) -> None:
    assert sentence in lock_files.mismatches(lock, SPEC, asked)


COMMITTED = sorted((Path(__file__).parents[2] / lock_files.DIRECTORY).glob("*.txt"))


def test_there_are_committed_locks() -> None:
    assert COMMITTED


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_lock_is_complete_and_has_no_address(path: Path) -> None:
    lock = lock_files.read(path.parent, path.stem)
    assert lock is not None
    assert all(wheel.filename.endswith(".whl") for wheel in lock.wheels)
    assert "://" not in path.read_text()
    names = [wheel.name for wheel in lock.wheels]
    assert names == sorted(set(names))
    assert "tensorrt" not in names


def test_as_built_locks_have_exactly_the_versions_of_the_build() -> None:
    spec = ImageSpec("2.21.0", "3.11", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
    lock = lock_files.read(COMMITTED[0].parent, spec.identifier)
    assert lock is not None
    assert lock_files.mismatches(lock, spec, requirements(spec)) == []
    assert lock.version("nvidia-cudnn-cu12") == "9.3.0.75"
    nvidia = {wheel.name for wheel in lock.wheels if wheel.name.startswith("nvidia-")}
    assert nvidia == {line.split("==")[0] for line in lock.requirements if line.startswith("nvidia-")}


def test_the_date_is_kept_and_is_not_part_of_the_digest() -> None:
    dated = replace(LOCK, resolved=date(2026, 11, 22))
    text = lock_files.render(dated)
    assert "# resolved: 2026-11-22\n" in text
    assert lock_files.parse(text).resolved == date(2026, 11, 22)
    assert dated.digest == LOCK.digest and dated == LOCK
    assert lock_files.parse(lock_files.render(LOCK)).resolved is None


def test_a_date_that_is_none_is_rejected() -> None:
    text = lock_files.render(replace(LOCK, resolved=date(2026, 11, 22))).replace("2026-11-22", "yesterday")
    with pytest.raises(InputError, match="its header has no date such as 2026-11-22"):
        lock_files.parse(text)
