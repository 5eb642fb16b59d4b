"""The data files: every fact has an id, a known status and sources that resolve, and tables are in order."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter

import pytest

from validator._vendor.packaging.specifiers import SpecifierSet
from validator.compat import facts, hardware, kernels, known_issues, policies, releases
from validator.versions import (
    ComputeCapability,
    CudaVersion,
    DriverRelease,
    Range,
    Version,
    major_minor,
    release_comparer,
)

from ..support import read_yaml

#: Files whose sections are lists of facts (builds.yaml is written by a tool, in another form).
TABLES = (
    "base_images",
    "cudnn",
    "drivers",
    "forward",
    "frameworks",
    "gpus",
    "known_issues",
    "older",
    "measurements",
    "platforms",
    "reported",
    "tensorflow",
    "toolkits",
    "wheels",
    "xla",
)

DOCUMENTS = json.loads(facts.COMPILED.read_bytes())

ROWS = [
    (f"{table}/{row.get('id', number)}", row)
    for table in TABLES
    for section in DOCUMENTS[table].values()
    for number, row in enumerate(section)
]


def test_every_row_is_a_fact() -> None:
    assert {name: row["status"] for name, row in ROWS if row["status"] not in facts.STATUSES} == {}
    assert [name for name, row in ROWS if not row["sources"]] == [], "facts without a source"
    cited = [(name, key) for name, row in ROWS for key in row["sources"]]
    assert [(name, key) for name, key in cited if not facts.source_line(key).strip()] == []


def test_ids_are_unique() -> None:
    ids = Counter(row["id"] for _, row in ROWS)
    assert [identifier for identifier, count in ids.items() if count > 1] == []


def test_every_source_is_used() -> None:
    used = {key for _, row in ROWS for key in row["sources"]}
    assert [key for key in DOCUMENTS["sources"] if key not in used] == []


def test_an_unknown_source_is_an_error() -> None:
    with pytest.raises(KeyError):
        facts.source_line("no-such-source")


def test_an_issue_needs_no_entry_among_the_sources() -> None:
    assert facts.source_line("openxla/xla#19927") == "https://github.com/openxla/xla/issues/19927"


def test_the_rows_of_known_combinations_are_blocks_of_short_lines() -> None:
    lines = (facts.DATA / "known_issues.yaml").read_text().splitlines()
    assert [line for line in lines if len(line) > 110 or line.startswith("  - {")] == []
    assert sum(line.startswith("  - id: ") for line in lines) == len(known_issues.by_kind())


def test_other_files_have_one_row_per_line() -> None:
    blocks = ("known_issues", "measurements", "reported")
    for table in (*(table for table in TABLES if table not in blocks), "sources"):
        text = (facts.DATA / f"{table}.yaml").read_text()
        content = read_yaml(text)
        count = sum(len(section) for section in content.values()) if table != "sources" else len(content)
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        headings = 0 if table == "sources" else len(content)
        assert len(lines) == count + headings, table


def ordered(values: list[object]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("table", "section", "key"),
    [
        ("cudnn", "cudnn", lambda row: Version(row["from"])),
        ("drivers", "branches", lambda row: row["branch"]),
        ("drivers", "lifecycle", lambda row: row["branch"]),
        ("drivers", "ptx", lambda row: Version(row["isa"])),
        ("forward", "packages", lambda row: Version(row["compat"])),
        ("gpus", "gpus", lambda row: (Version(row["compute_capability"]), row["name"].lower())),
        ("known_issues", "issues", lambda row: row["id"]),
        ("tensorflow", "releases", lambda row: Version(row["version"])),
        ("tensorflow", "extras", lambda row: Version(row["releases"][0])),
        ("tensorflow", "kernels", lambda row: Version(row["tensorflow"])),
        ("toolkits", "toolkits", lambda row: Version(row["release"])),
        ("wheels", "cuda", lambda row: Version(row["release"])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_are_sorted(table: str, section: str, key: object) -> None:
    assert ordered([key(row) for row in facts.rows(table, section)])  # type: ignore[operator]


def test_sources_are_sorted() -> None:
    assert list(DOCUMENTS["sources"]) == sorted(DOCUMENTS["sources"])


def test_newer_branches_support_newer_cuda() -> None:
    assert ordered([branch.cuda for branch in hardware.branches()])


def test_the_ptx_table_agrees_with_the_branch_table() -> None:
    for row in facts.rows("drivers", "ptx"):
        cuda = CudaVersion.parse(row["cuda"][0])
        branch = hardware.branch_for(cuda)
        if cuda.major < 11:
            # The table of older drivers has releases, and no branches.
            floor = releases.oldest_driver(cuda, windows=False)
            assert floor is not None and row["branch"] <= floor.driver.branch < row["branch"] + 15
            continue
        # R445 brought CUDA 11.0 as a developer release; R450 is the branch that the driver tables name.
        assert branch is not None
        assert branch.number == row["branch"] or (branch.number, row["branch"]) == (450, 445)


def test_toolkit_drivers_belong_to_the_branch_that_introduced_their_cuda() -> None:
    listed = [row for row in facts.rows("toolkits", "toolkits") if "driver" in row]
    assert len(listed) > 50
    for row in listed:
        branch = hardware.branch_for(CudaVersion.parse(row["release"]))
        assert branch is not None
        assert DriverRelease.parse(row["driver"]).branch == branch.number


def test_every_toolkit_that_has_wheels_is_in_the_table_of_toolkits() -> None:
    toolkits = {row["release"] for row in facts.rows("toolkits", "toolkits")}
    assert {known.version for known in policies.cuda_releases()} <= toolkits


def test_cudnn_ranges_have_no_gaps_or_overlaps() -> None:
    rows = facts.rows("cudnn", "cudnn")
    assert [row["below"] for row in rows[:-1]] == [row["from"] for row in rows[1:]]


@pytest.mark.parametrize("suffix", ["cu11", "cu12"])
def test_every_cudnn_wheel_has_a_range_with_its_cuda_major(suffix: str) -> None:
    for version in policies.cudnn_releases(suffix):
        support = kernels.support(version)
        assert support is not None, version
        assert suffix.removeprefix("cu") in support["drivers"], version


def test_cudnn_lists_nothing_below_its_minimum() -> None:
    for row in facts.rows("cudnn", "cudnn"):
        listed = [ComputeCapability.parse(text) for text in row["compute_capabilities"]]
        assert ordered(list(listed))
        assert listed[0] >= ComputeCapability.parse(row["minimum"])


def test_every_forward_compatibility_package_has_a_branch() -> None:
    for row in facts.rows("forward", "packages"):
        branch = hardware.branch_for(CudaVersion.parse(row["compat"]))
        assert branch is not None
        assert set(row["bases"].values()) <= {"compatible", "not-needed", "none"}
        assert all(
            int(base) < branch.number for base, answer in row["bases"].items() if answer == "compatible"
        )
        assert all(
            int(base) == branch.number for base, answer in row["bases"].items() if answer == "not-needed"
        )


@pytest.mark.parametrize(
    "release", [one for one in releases.releases() if one.wheels], ids=lambda one: one.version
)
def test_the_pins_of_an_extra_exist_as_wheels(release: releases.Release) -> None:
    cuda = [known.components for known in policies.cuda_releases(release.suffix)]
    names = set().union(*cuda)
    for name, specifier in release.wheels.items():
        if name.startswith("nvidia-cudnn"):
            candidates = set(policies.cudnn_releases(release.suffix))
        elif name in names:
            candidates = {components[name] for components in cuda if name in components}
        else:
            continue  # NCCL and NVSHMEM don't belong to a CUDA release
        assert any(SpecifierSet(specifier).contains(version) for version in candidates), (name, specifier)


BUILDS = facts.rows("builds", "builds")


@pytest.mark.parametrize("row", BUILDS, ids=lambda row: row["tensorflow"])
def test_an_inspected_wheel_agrees_with_the_published_table(row: facts.Row) -> None:
    """If they differ, the table is wrong and has to be changed."""
    opened, published = releases.build(row["tensorflow"]), releases.release(row["tensorflow"])
    assert opened is not None
    assert opened.version == row["tensorflow"]
    assert opened.fact.status == "verified-local"
    assert opened.kernels
    compiled, tabled = Version(opened.cudnn or published.cudnn), Version(published.cudnn)
    assert compiled.major == tabled.major
    assert compiled.release[:2] <= tabled.release[:2]
    if (cuda := row["build"]["cuda"]) is not None:
        assert str(CudaVersion.parse(cuda)) == published.cuda


def test_a_wheel_of_every_buildable_minor_was_inspected() -> None:
    opened = {major_minor(row["tensorflow"]) for row in BUILDS}
    assert {release.minor for release in releases.releases() if release.wheels} <= opened


def test_the_newest_patch_of_every_minor_was_inspected() -> None:
    opened = {row["tensorflow"] for row in BUILDS}
    assert releases.newest().version in opened
    assert {releases.newest_patch(minor).version for minor in ("2.14", "2.15", "2.16", "2.17")} <= opened


def test_inspected_wheels_need_no_published_list() -> None:
    opened = {major_minor(row["tensorflow"]) for row in BUILDS}
    listed = {major_minor(row["tensorflow"]) for row in facts.rows("tensorflow", "kernels")}
    assert not opened & listed


def test_ranges_in_the_facts_agree_with_pep_440() -> None:
    """The facts are read with `versions.Range`, which needs less time to start than `SpecifierSet`."""
    versions = {known.version for known in releases.releases()}
    versions |= {pin for cuda in policies.cuda_releases() for pin in cuda.components.values()}
    versions |= {
        *policies.cudnn_releases("cu11"),
        *policies.cudnn_releases("cu12"),
        "1.26.4",
        "2.0.0",
        "2.2.6",
    }
    ranges = {pin for release in releases.releases() for pin in release.extra.values()}
    ranges |= {
        wanted.text
        for combination in known_issues.combinations()
        for comparison in combination.when.comparisons()
        for values in comparison.values.values()
        for wanted in values
        if wanted.range is not None
    }
    assert len(ranges) > 50
    for text in ranges:
        # A minor version means all its releases, which PEP 440 writes as `2.21.*`.
        pep_440 = SpecifierSet(re.sub(r"==(\d+\.\d+)$", r"==\1.*", text))
        read = Range.parse(text, release_comparer)
        wrong = [one for one in versions if read.contains(one) != pep_440.contains(one, prereleases=True)]
        assert wrong == [], text


def test_known_combinations_explain_the_problem_and_the_fix() -> None:
    for combination in known_issues.combinations():
        assert combination.means in (known_issues.FAILS, known_issues.UNKNOWN, known_issues.ADVISORY)
        assert combination.text and combination.remedy
        if not combination.fact.decides:
            assert combination.means != known_issues.FAILS


def test_gpu_kinds() -> None:
    kinds = {hardware.CONSUMER, hardware.DATA_CENTER, hardware.EMBEDDED, "professional"}
    assert {gpu.kind for gpu in hardware.gpus()} == kinds


def test_an_unverified_fact_never_decides() -> None:
    fact = facts.Fact("x", "unverified", "hearsay")
    assert fact.works("it runs").outcome.value == "unknown"
    assert fact.fails("it breaks", "known_issue").outcome.value == "unknown"
    assert "not verified" in fact.fails("it breaks", "known_issue").text
    assert fact.works("it runs").text == "it runs (not verified)"
    assert fact.advises("it may").outcome.value == "works"


def test_a_combined_fact_has_the_less_certain_status() -> None:
    sure, less = facts.Fact("a", "verified", "one; two"), facts.Fact("b", "derived", "two; three")
    assert sure.with_(less) == facts.Fact("a", "derived", "one; two; three")
    assert facts.Fact("c", "unverified", "x").derived().status == "unverified"
