from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import validator
from validator.versions import (
    OPERATORS,
    Comparer,
    ComputeCapability,
    CudaVersion,
    DriverRelease,
    InvalidVersion,
    Range,
    Version,
    caret_range,
    driver_comparer,
    is_release_of,
    leading_numbers,
    major,
    major_minor,
    numbers_comparer,
    release_comparer,
    tilde_range,
    version_or_oldest,
)

#: The point release of a bare branch, which stands for its newest one.
BRANCH = (math.inf,)


@pytest.mark.parametrize(
    ("text", "branch", "point"),
    [("535.183.01", 535, (183, 1)), ("535", 535, BRANCH), ("R535", 535, BRANCH), ("570.26", 570, (26,))],
)
def test_driver_releases_are_read(text: str, branch: int, point: tuple[float, ...]) -> None:
    release = DriverRelease.parse(text)
    assert (release.branch, release.point) == (branch, point)


@pytest.mark.parametrize(
    "text", ["", "12.2", "535.", "535.183.01.7", "5351234", "v535", "535.x", "130", "R99", "013.0"]
)
def test_other_text_is_no_driver_release(text: str) -> None:
    with pytest.raises(ValueError, match="is not a driver release"):
        DriverRelease.parse(text)


def test_a_branch_stands_for_its_newest_release() -> None:
    assert DriverRelease.parse("525") > DriverRelease.parse("525.60.13")
    assert DriverRelease.parse("525") < DriverRelease.parse("530.30.02")


def test_leading_zeros_do_not_matter_for_order() -> None:
    assert DriverRelease.parse("535.104.05") < DriverRelease.parse("535.183.01")
    assert DriverRelease.parse("535.54.03") < DriverRelease.parse("535.104.05")
    assert str(DriverRelease.parse("535.104.05")) == "535.104.05"


@given(
    st.lists(st.integers(0, 9999), min_size=3, max_size=3),
    st.lists(st.integers(0, 9999), min_size=3, max_size=3),
)
def test_driver_releases_order_as_their_numbers(one: list[int], other: list[int]) -> None:
    def release(parts: list[int]) -> DriverRelease:
        return DriverRelease.parse(f"{parts[0] % 800 + 200}.{parts[1]}.{parts[2]}")

    first, second = release(one), release(other)
    assert (first < second) == ((first.branch, *first.point) < (second.branch, *second.point))
    assert (first == second) == (hash(first) == hash(second) and not first < second and not second < first)


@pytest.mark.parametrize("text", ["9.0", "90", "sm_90", "compute_90", "sm_90a", "SM_90"])
def test_compute_capabilities_are_read_as_people_write_them(text: str) -> None:
    assert ComputeCapability.parse(text) == ComputeCapability(9, 0)


def test_two_digit_majors() -> None:
    assert ComputeCapability.parse("sm_120") == ComputeCapability(12, 0)
    assert ComputeCapability.parse("10.3") == ComputeCapability(10, 3)
    assert ComputeCapability(12, 0).sm == "sm_120"
    assert ComputeCapability(9, 0) < ComputeCapability(12, 0)


def test_cuda_versions() -> None:
    assert CudaVersion.parse("12.5.1") == CudaVersion(12, 5)
    assert CudaVersion.parse("12.9") < CudaVersion.parse("12.10")


# Laws of every type of version.

_DRIVERS = st.builds(
    lambda branch, point: ".".join(map(str, (branch, *point))),
    st.integers(160, 9999),
    st.lists(st.integers(0, 9999), max_size=2),
).map(DriverRelease.parse)
_CUDA = st.builds(CudaVersion, st.integers(0, 99), st.integers(0, 99))
_CAPABILITIES = st.builds(ComputeCapability, st.integers(0, 99), st.integers(0, 9))
_KINDS = st.sampled_from([_DRIVERS, _CUDA, _CAPABILITIES])


@given(_KINDS.flatmap(lambda kind: st.lists(kind, min_size=3, max_size=3)))
def test_versions_of_a_type_are_totally_ordered(versions: list[Any]) -> None:
    one, other, _ = versions
    assert [one < other, one == other, one > other].count(True) == 1
    assert (one <= other) == (one < other or one == other)
    assert (one < other) == (other > one)
    assert one != other or hash(one) == hash(other)
    lowest, middle, highest = sorted(versions)
    assert lowest <= middle <= highest and lowest <= highest


@given(_KINDS.flatmap(lambda kind: kind))
def test_versions_are_read_as_they_are_written(version: Any) -> None:
    assert type(version).parse(str(version)) == version


# Comparisons as people write them.

_NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=4)
_RELEASES = st.builds(
    lambda numbers, suffix: ".".join(map(str, numbers)) + suffix,
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.sampled_from(["", "", "rc0", "rc1", ".post1", ".dev2"]),
)
#: The comparer of each kind of version, what may be wanted, and what may be found.
_COMPARERS: list[tuple[Callable[[str], Comparer], st.SearchStrategy[str], st.SearchStrategy[str]]] = [
    (numbers_comparer, _NUMBERS.map(lambda some: ".".join(map(str, some))), _RELEASES),
    (driver_comparer, _DRIVERS.map(str), _DRIVERS.map(str)),
    (release_comparer, _RELEASES.flatmap(lambda text: st.sampled_from([text, major_minor(text)])), _RELEASES),
]


@given(st.data())
def test_exactly_one_of_less_equal_and_greater_holds(data: st.DataObject) -> None:
    comparer, wanted, found = data.draw(st.sampled_from(_COMPARERS))
    order = comparer(data.draw(wanted))(data.draw(found))
    holds = {operator: question(order) for operator, question in OPERATORS.items()}
    assert [holds["<"], holds["="], holds[">"]].count(True) == 1
    assert holds["=="] == holds["="] != holds["!="]
    assert holds["<="] == (holds["<"] or holds["="])
    assert holds[">="] == (holds[">"] or holds["="])


@given(st.data())
def test_comparers_never_contradict_the_order_of_what_is_found(data: st.DataObject) -> None:
    comparer, wanted, found = data.draw(st.sampled_from(_COMPARERS))
    key: Callable[[str], Any] = DriverRelease.parse if comparer is driver_comparer else Version
    if comparer is numbers_comparer:
        key = leading_numbers
    one, other = sorted((data.draw(found), data.draw(found)), key=key)
    compare = comparer(data.draw(wanted))
    assert compare(one) <= compare(other)


@given(_RELEASES)
def test_a_minor_version_means_all_its_releases(release: str) -> None:
    minor = major_minor(release)
    assert release_comparer(minor)(release) == 0
    assert numbers_comparer(minor)(release) == 0
    assert is_release_of(release.removesuffix("rc0").removesuffix("rc1"), minor)


@given(_RELEASES, _RELEASES)
def test_full_releases_are_ordered_by_pep_440(one: str, other: str) -> None:
    first, second = Version(one), Version(other)
    assert release_comparer(other)(one) == (first > second) - (first < second)


def test_numbers_are_not_compared_as_text() -> None:
    assert not is_release_of("3.10", "3.1") and numbers_comparer("3.1")("3.10") > 0
    assert is_release_of("12.8.1", "12.8") and is_release_of("12.8", "12.8")
    assert not is_release_of("12.8", "12.8.0")
    assert numbers_comparer("12.0")("12") == 0, "a missing number counts as zero"


def test_a_post_release_is_another_release() -> None:
    assert release_comparer("2.15")("2.15.0.post1") == 0
    assert release_comparer("2.15.0")("2.15.0.post1") > 0


def test_a_found_branch_stands_for_its_newest_release() -> None:
    assert driver_comparer("535.183.01")("535") > 0
    assert driver_comparer("535")("535.54.03") == 0


@pytest.mark.parametrize(
    ("comparer", "wanted", "message"),
    [
        (numbers_comparer, "twelve", r"it is not a version \(expected something like 12.5.1\)"),
        (partial(numbers_comparer, max_parts=2), "", r"it is not a version \(expected something like 12.5\)"),
        (partial(numbers_comparer, max_parts=2), "12.5.1", r"it has more than 2 parts \(write 12.5\)"),
        (driver_comparer, "12.2", "is not a driver release"),
        (release_comparer, "newest?", r"it is not a version \(expected something like 2.21 or 2.21.0\)"),
    ],
)
def test_a_wanted_version_that_cannot_be_read_is_refused(
    comparer: Callable[[str], Comparer], wanted: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        comparer(wanted)


@given(st.lists(st.tuples(st.sampled_from(sorted(OPERATORS)), _RELEASES), min_size=1, max_size=3), _RELEASES)
def test_a_range_contains_the_versions_that_satisfy_every_comparison(
    parts: list[tuple[str, str]], found: str
) -> None:
    expected = all(OPERATORS[operator](release_comparer(bound)(found)) for operator, bound in parts)
    read = Range.parse(" , ".join(f"{operator} {bound}" for operator, bound in parts), release_comparer)
    assert read.contains(found) == expected
    assert read.is_exact == any(operator in ("=", "==") for operator, _ in parts)


@pytest.mark.parametrize("text", ["", "2.14", ">=2.14,", "=>2.14", "~=2.14", ">=2.14,<newest"])
def test_a_range_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not begin with one of|is not a version"):
        Range.parse(text, release_comparer)


@given(_NUMBERS)
def test_leading_numbers_are_read_as_they_are_written(numbers: list[int]) -> None:
    text = ".".join(map(str, numbers))
    assert leading_numbers(text) == leading_numbers(f" v{text}-3-g85c") == tuple(numbers)


@given(st.text())
def test_leading_numbers_are_found_in_any_text(text: str) -> None:
    assert (leading_numbers(text) == ()) != bool(re.match(r"v?\d", text.strip()))


@given(st.text() | _RELEASES)
def test_other_text_is_older_than_every_release(text: str) -> None:
    read = version_or_oldest(text)
    try:
        assert read == Version(text)
    except InvalidVersion:
        assert read < Version("0.0.1.dev0")
    assert version_or_oldest(None) < Version("0.0.1.dev0")


@pytest.mark.parametrize(
    ("version", "caret", "tilde"),
    [
        ("2.15.1", ">=2.15.1,<3", ">=2.15.1,<2.16"),
        ("2", ">=2,<3", ">=2,<3"),
        ("0.4", ">=0.4,<0.5", ">=0.4,<0.5"),
        ("0.0.3", ">=0.0.3,<0.0.4", ">=0.0.3,<0.1"),
        ("0.0", ">=0.0,<0.1", ">=0.0,<0.1"),
        ("1.2.3.4", ">=1.2.3.4,<2", ">=1.2.3.4,<1.3"),
    ],
)
def test_ranges_of_poetry(version: str, caret: str, tilde: str) -> None:
    """The examples of https://python-poetry.org/docs/dependency-specification, and longer versions."""
    assert (caret_range(version), tilde_range(version)) == (caret, tilde)


@pytest.mark.parametrize(
    ("text", "first"), [("12.5.1", "12"), ("535.183.01", "535"), ("8", "8"), ("R535", "")]
)
def test_the_first_number_of_a_version(text: str, first: str) -> None:
    assert major(text) == first


ROOT = Path(validator.__file__).parent
#: The modules that read versions.
READERS = {"versions.py", "version_numbers.py"}
#: What other modules split at dots: names of modules, tables, fields and hosts, and IP addresses.
NOT_VERSIONS = {
    ("lint/pins.py", "match['table']"),
    ("diagnosis/observe.py", "row['field']"),
    ("redaction/identifiers.py", "name.lower()"),
    ("redaction/identifiers.py", "match[0]"),
}


def split_at_dots(source: str) -> Iterator[str]:
    """Yield what is split at its dots, or has them removed to see if the rest is a number."""
    if not re.search(r"split\(|isdigit|isdecimal", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            arguments = [ast.unparse(each) for each in node.args]
            number = isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value).endswith(
                ".replace('.', '')"
            )
            if (node.func.attr == "split" and arguments[:1] == ["'.'"]) or (
                node.func.attr in ("isdigit", "isdecimal") and number
            ):
                yield ast.unparse(node.func.value)


@pytest.mark.slow
def test_no_other_module_takes_versions_apart() -> None:
    found = {
        (str(path.relative_to(ROOT)), what)
        for path in sorted(ROOT.rglob("*.py"))
        if path.name not in READERS and "_vendor" not in path.parts
        for what in split_at_dots(path.read_text(encoding="utf-8"))
    }
    assert found == NOT_VERSIONS


@pytest.mark.parametrize(
    "code",
    [
        "tuple(int(part) for part in version.split('.'))",
        "'.'.join(version.split('.')[:2])",
        "major, minor = version.split('.', 1)",
        "version.replace('.', '').isdigit()",
    ],
)
def test_a_version_that_is_taken_apart_is_noticed(code: str) -> None:
    assert list(split_at_dots(code))
