"""News on the index: releases, their Pythons, CUDA and cuDNN, for Linux with x86_64 only."""

from __future__ import annotations

import pytest

from validator.compat import policies, releases
from validator.locks.index import PackageIndex
from validator.supply.news import STABLE, Asked, News, news

from ..locks.local_index import LINUX, LocalIndex

EVERYTHING = Asked(candidates=True, nightlies=True)


@pytest.fixture(autouse=True)
def known(releases_up_to_2_22rc: None) -> None:
    """2.21.0 and 2.22.0rc0 are the newest."""


def asked(index: LocalIndex, what: Asked = STABLE) -> News:
    return news(PackageIndex(index.sources), what)


def tensorflow(version: str, python: str = "3.12", platform: str = LINUX) -> str:
    tag = f"cp{python.replace('.', '')}"
    return f"tensorflow-{version}-{tag}-{tag}-{platform}.whl"


def test_what_the_facts_know_is_not_new(index: LocalIndex) -> None:
    index.add(tensorflow("2.22.0rc0"), tensorflow("2.15.0.post1", "3.11"), tensorflow("2.9.1", "3.9"))
    found = asked(index, EVERYTHING)
    assert found.releases == () and found.cuda == () and not found.cudnn and not found.pythons
    assert not found


def test_a_release_is_new_with_all_its_pythons_on_linux(index: LocalIndex) -> None:
    index.add(*(tensorflow("2.22.0", python) for python in ("3.9", "3.14", "3.11", "3.10")))
    index.add(
        tensorflow("2.22.0", "3.15", "win_amd64"), tensorflow("2.22.0", "3.16", "manylinux_2_27_aarch64")
    )
    index.add("tensorflow-2.22.0-cp313-cp313t-manylinux_2_27_x86_64.whl")
    [release] = asked(index).releases
    assert (release.version, release.pythons) == ("2.22.0", ("3.9", "3.10", "3.11", "3.14"))
    assert release.wheel.filename == tensorflow("2.22.0", "3.11"), "compared like with like"


def test_a_release_without_wheels_for_linux_is_left_out(index: LocalIndex) -> None:
    index.add(tensorflow("2.22.0", platform="win_amd64"))
    assert not asked(index)


def test_a_patch_release_of_an_older_minor_version_is_new_but_not_an_older_patch(index: LocalIndex) -> None:
    index.add(tensorflow("2.20.1"), tensorflow("2.10.0.post1", "3.10"))
    assert [release.version for release in asked(index).releases] == ["2.20.1"]


def test_only_the_newest_candidate_of_a_later_release_is_new_and_only_on_request(index: LocalIndex) -> None:
    index.add(*map(tensorflow, ("2.21.0rc1", "2.22.0rc1", "2.22.0rc2", "2.23.0rc0", "2.23.0.dev20990101")))
    assert not asked(index)
    found = asked(index, Asked(candidates=True))
    assert [release.version for release in found.releases] == ["2.22.0rc2", "2.23.0rc0"]


def test_only_the_newest_nightly_is_new_and_only_on_request(index: LocalIndex) -> None:
    for day in ("20990101", "20990102"):
        index.add(tensorflow(f"2.30.0.dev{day}").replace("tensorflow", "tf_nightly"))
    assert not asked(index)
    [release] = asked(index, Asked(nightlies=True)).releases
    assert release.version == "2.30.0.dev20990102"


def test_a_new_python_of_a_known_release_is_new(index: LocalIndex) -> None:
    pythons = releases.release("2.21.0").pythons
    index.add(*(tensorflow("2.21.0", python) for python in (*pythons, "3.19")))
    found = asked(index)
    assert found.pythons == {"2.21.0": (*pythons, "3.19")}
    assert found.as_seen() == {"TensorFlow wheels of": ["2.21.0 for Python 3.19"]}


def test_new_cuda_and_cudnn_wheels(index: LocalIndex) -> None:
    index.add("cuda_toolkit-99.1.0.0-py3-none-any.whl", "cuda_toolkit-99.2.0rc1-py3-none-any.whl")
    index.add("cuda_toolkit-11.7.0-py3-none-any.whl")
    index.add(f"nvidia_cudnn_cu12-99.1.0.5-py3-none-{LINUX}.whl")
    index.add("nvidia_cudnn_cu12-99.2.0.5-py3-none-win_amd64.whl")
    index.add(
        f"nvidia_cudnn_cu13-99.1.0.5.dev7-py3-none-{LINUX}.whl",
        f"nvidia_cudnn_cu13-99.1.0.6-py3-none-{LINUX}.whl",
    )
    assert asked(index).as_seen() == {
        "CUDA": ["99.1.0"],
        "cuDNN": ["99.1.0.5 (cu12)", "99.1.0.6 (cu13)"],
    }


def test_the_facts_have_the_wheels_of_cuda_13_with_their_own_names() -> None:
    for release in policies.cuda_releases("cu13"):
        assert "nvidia-cublas" in release.components and "nvidia-cublas-cu13" not in release.components
    assert policies.cuda_releases("cu13")
