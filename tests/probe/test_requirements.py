"""The probe's reading of PEP 440 and PEP 508 against `packaging`, which it can't use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging import requirements as reference
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version as Known

from validator.probe.requirements import Requirement, RequirementError, Version, fits, markers

# Small numbers, so that versions are often equal or neighbours.
numbers = st.integers(0, 3)
suffixes = st.sampled_from(["", "a1", "b2", "rc1", ".dev1", "rc1.dev2", ".post1", ".post1.dev3", ".post0"])
locals_ = st.sampled_from(["", "", "", "+cpu", "+1", "+nv23.3", "+cpu.1"])
releases = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
epochs = st.sampled_from(["", "", "", "", "1!"])
versions = st.builds(lambda *parts: "".join(parts), epochs, releases, suffixes, locals_)
public = st.builds(lambda *parts: "".join(parts), epochs, releases, suffixes)
specifiers = st.one_of(
    st.builds(lambda operator, version: operator + version, st.sampled_from(["<", "<=", ">", ">="]), public),
    st.builds(lambda operator, version: operator + version, st.sampled_from(["==", "!="]), versions),
    st.builds(lambda operator, version: f"{operator}{version}.*", st.sampled_from(["==", "!="]), releases),
    st.builds(
        lambda parts, suffix: f"~={'.'.join(map(str, parts))}{suffix}",
        st.lists(numbers, min_size=2, max_size=4),
        suffixes,
    ),
)


@given(versions, versions)
def test_versions_are_ordered_as_packaging_orders_them(one: str, other: str) -> None:
    left, right = Version.parse(one), Version.parse(other)
    assert (left.key < right.key) == (Known(one) < Known(other))
    assert (left.key == right.key) == (Known(one) == Known(other))


@given(versions, st.lists(specifiers, min_size=1, max_size=3))
def test_versions_fit_as_packaging_says(version: str, wanted: list[str]) -> None:
    text = ",".join(wanted)
    assert fits(version, text) == SpecifierSet(text).contains(version, prereleases=True)


@pytest.mark.parametrize(
    "text", ["1.0-ALPHA.3", "v2.15.0.post1", "1.0-1", "2.22.0rc0", "1.0.DEV", "1.0_post2", "1.0preview2"]
)
def test_versions_in_their_other_spellings(text: str) -> None:
    assert Version.parse(text).key == Version.parse(str(Known(text))).key


conditions = st.sampled_from(
    [
        "python_version < '3.12'",
        'python_version >= "3.9"',
        "python_full_version <= '3.11.0a1'",
        "sys_platform == 'linux'",
        'sys_platform != "win32"',
        "platform_machine in 'x86_64 aarch64'",
        "platform_machine not in 'arm64'",
        "platform_system == 'Darwin'",
        "extra == 'and-cuda'",
        "'linux' == sys_platform",
        "implementation_name == 'cpython'",
        "python_version ~= '3.8'",
    ]
)
expressions = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
        st.builds("({})".format, inner),
    ),
    max_leaves=6,
)


@given(expressions)
def test_markers_are_true_when_packaging_says_so(marker: str) -> None:
    expected = Marker(marker).evaluate({"extra": ""})
    assert Requirement.parse(f"x; {marker}").applies(markers()) == expected


@pytest.mark.parametrize(
    "line",
    [
        'numpy<2.0.0,>=1.23.5; python_version <= "3.11"',
        "protobuf!=4.21.0,!=4.21.1,<5.0.0dev,>=3.20.3",
        "keras<2.16,>=2.15.0",
        "six>=1.12.0",
        "nvidia-cudnn-cu12 (==8.9.4.25) ; extra == 'and-cuda'",
        "tensorflow-io-gcs-filesystem>=0.23.1 ; python_version < '3.12'",
        "requests[socks] <3,>=2.21.0",
        "opt_einsum>=2.3.2",
        "wheel",
    ],
)
def test_lines_of_real_metadata(line: str) -> None:
    mine, theirs = Requirement.parse(line), reference.Requirement(line)
    assert mine.name == theirs.name
    assert SpecifierSet(mine.specifiers) == theirs.specifier
    environment = {"extra": "and-cuda"}
    expected = theirs.marker is None or theirs.marker.evaluate(environment)
    assert mine.applies({**markers(), **environment}) == expected


@pytest.mark.parametrize(
    "line", ["", ">=1", "x >> 1", "x; python_version", "x; (python_version < '3'", "x; y == '1'"]
)
def test_what_is_no_requirement_is_said_to_be_none(line: str) -> None:
    with pytest.raises(RequirementError):
        Requirement.parse(line).applies(markers())
    with pytest.raises(RequirementError):
        fits("banana", ">=1")
