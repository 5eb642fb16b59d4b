"""Releases before those that images are made of, and the drivers of CUDA toolkits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validator.compat import facts, releases
from validator.compat.judge import judge
from validator.compat.offers import installed, requirement
from validator.model.prediction import Host
from validator.versions import CudaVersion, DriverRelease


@pytest.mark.parametrize("release", releases.releases(), ids=lambda release: str(release.version))
def test_a_listed_release_is_found_by_its_version(release: releases.Release) -> None:
    assert releases.release_of_any_age(release.version) is release


@pytest.mark.parametrize(
    ("version", "cuda", "cudnn"), [("2.4.1", "11.0", "8.0"), ("1.15", "10.0", "7.6"), ("1.3.0", "8.0", "6.0")]
)
def test_older_releases_are_known(version: str, cuda: str, cudnn: str) -> None:
    known = releases.release_of_any_age(version)
    assert known is not None and (known.version, known.cuda, known.cudnn) == (version, cuda, cudnn)


@pytest.mark.parametrize("version", ["", "x", "2", "9.9.9", "2.99.0", "2.18.5"])
def test_text_that_is_not_a_release_is_not_known(version: str) -> None:
    assert releases.release_of_any_age(version) is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("2.16", "2.16.2"),
        ("2.18", "2.18.1"),
        ("2.17.0+nv25.2", "2.17.0"),
        ("v2.18.0-rc2-4-g6550e4bd802", "2.18.0"),
    ],
)
def test_a_series_and_local_versions(asked: str, found: str) -> None:
    known = releases.release_of_any_age(asked)
    assert known is not None and known.version == found


def test_the_older_releases_end_where_the_others_begin() -> None:
    minors = [row["minor"] for row in facts.rows("older", "releases")]
    assert minors[0] == "2.7" and releases.releases()[0].minor == "2.8"
    assert len(minors) == len(set(minors))


@pytest.mark.parametrize(
    ("cuda", "windows", "expected"),
    [
        ("12.5", False, "525.60.13"),
        ("12.5", True, "527.41"),
        ("11.2", True, "452.39"),
        ("10.0", True, "411.31"),
        ("10.1", False, "418.39"),
        ("9.0", False, "384.81"),
    ],
)
def test_oldest_drivers(cuda: str, windows: bool, expected: str) -> None:
    floor = releases.oldest_driver(CudaVersion.parse(cuda), windows)
    assert floor is not None and floor.driver == DriverRelease.parse(expected)


def test_a_toolkit_of_unknown_age_has_no_oldest_driver() -> None:
    assert releases.oldest_driver(CudaVersion(7, 5), windows=False) is None


@pytest.mark.parametrize(
    ("cuda", "windows", "expected"),
    [
        ("12.2", False, "535"),
        ("12.2", True, "535"),
        ("12.0", True, "527.41"),
        ("11.0", True, "452.39"),
        ("10.1", False, "418.39"),
        ("10.1", True, "418.96"),
        ("8.0", False, "375.26"),
    ],
)
def test_the_oldest_driver_that_shows_a_cuda(cuda: str, windows: bool, expected: str) -> None:
    assert releases.driver_with(CudaVersion.parse(cuda), windows) == DriverRelease.parse(expected)


@pytest.mark.parametrize("cuda", ["7.5", "10.3", "11.9", "99.0"])
def test_a_cuda_that_no_driver_shows(cuda: str) -> None:
    assert releases.driver_with(CudaVersion.parse(cuda)) is None


def test_an_older_release_is_installed_by_its_series() -> None:
    wanted = [requirement(release) for release in releases.older_releases()]
    assert wanted[0] == "tensorflow-gpu==1.0.*" and wanted[-1] == "tensorflow==2.7.*"
    assert wanted[-7:-5] == ["tensorflow==2.1.*", "tensorflow==2.2.*"]
    assert wanted[-8] == "tensorflow-gpu==2.0.*"


@pytest.mark.parametrize(("release", "outcome"), [("1.5", "unknown"), ("1.6", "fails"), ("2.3", "fails")])
def test_a_gpu_below_those_that_a_release_is_documented_for(release: str, outcome: str) -> None:
    host = Host(gpu="K10", driver="470", system="linux", machine="x86_64")
    found = next(one for one in releases.older_releases() if one.version == release)
    prediction = judge(replace(installed(found, library_path=False), python=found.pythons[-1]), host)
    assert prediction.outcome == outcome
    failing = [reason.rule for reason in prediction.reasons if reason.outcome == "fails"]
    assert failing == ([] if outcome == "unknown" else ["no_kernels_for_gpu"])


def test_the_newest_release_with_a_cuda_or_cudnn() -> None:
    cudas = ("10.2", "10.1", "10.0", "9.0", "11.0", "12.2", "")
    found = [releases.newest_with(cuda) for cuda in cudas]
    assert [one.version if one else None for one in found] == [
        None,
        "2.3",
        "2.0",
        "1.12",
        "2.11.1",
        None,
        None,
    ]
    found = [
        releases.newest_with(cudnn=cudnn, python=python) for cudnn, python in (("8.1", "3.6"), ("5.1", None))
    ]
    assert [one.version if one else None for one in found] == ["2.6", "1.2"]


def test_the_libraries_of_every_release_are_listed_once() -> None:
    listed = releases.libraries_by_release(None, windows=False)
    assert listed.startswith("2.18 to 2.21: CUDA 12.5, cuDNN 9.3; ")
    assert "; 2.1 to 2.3: CUDA 10.1, cuDNN 7.6; " in listed
    assert releases.libraries_by_release("3.6", windows=True).startswith("2.5 to 2.6: CUDA 11.2, cuDNN 8.1; ")
    assert "2.1 to 2.3: driver 418.39" in releases.libraries_by_release(None, windows=False, driver=True)
    fitting = releases.libraries_by_release(None, windows=False, cuda="10.0")
    assert (
        fitting == "2.0: CUDA 10.0, cuDNN 7.4; 1.15: CUDA 10.0, cuDNN 7.6; 1.13 to 1.14: CUDA 10.0, cuDNN 7.4"
    )
    assert releases.libraries_by_release(None, windows=False, cuda="10.2") == ""


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("2.4.1", "2.8.0"),
        ("2.7", "2.8.0"),
        ("1.15.5", "2.8.0"),
        ("2.15.0rc0", "2.15.0"),
        ("2.20.0.dev20250314", "2.20.0"),
        ("2.18.0", None),
        ("2.18", None),
        ("2.22.0rc0", None),
        ("2.15.7", None),
        ("2.40.0", None),
        ("2.40.0rc0", None),
        ("latest", None),
    ],
)
def test_the_nearest_inspected_release_of_one_that_was_not(asked: str, nearest: str | None) -> None:
    found = releases.nearest_inspected(asked)
    assert (found.version if found else None) == nearest


@pytest.mark.parametrize(
    ("loaded", "python", "release"),
    [
        ("8.0.5", None, "2.4"),
        ("8.0", "3.10", None),
        ("7.4.2", None, "2.0"),
        ("7.5.1", None, "2.0"),
        ("3.0", None, None),
    ],
)
def test_the_newest_release_for_a_cudnn_that_is_there(
    loaded: str, python: str | None, release: str | None
) -> None:
    found = releases.newest_for_cudnn(loaded, python)
    assert (found.minor if found else None) == release


def test_a_release_for_a_cudnn_is_older_than_the_one_that_refuses_it() -> None:
    found = releases.newest_for_cudnn("7.5.1", before="1.15")
    assert found is not None and found.minor == "1.14"
