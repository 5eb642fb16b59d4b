from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from validator._vendor.packaging.tags import Tag
from validator.errors import InputError, MissingError
from validator.locks.resolve import PLATFORM, pick, resolve, target_tags
from validator.model.spec import Additions, ImageSpec, Variant
from validator.system.package_sources import host_sources

from .local_index import LocalIndex

SPEC = ImageSpec("2.21.0", "3.12", Variant.CPU)
ABI = "demo-1.0-cp37-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
EXACT = "demo-1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
NEWER = "demo-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
PURE = "demo-1.0-py3-none-any.whl"
FOREIGN = (
    "demo-1.0-cp312-cp312-manylinux_2_34_x86_64.whl",
    "demo-1.0-cp312-cp312-win_amd64.whl",
    "demo-1.0-cp311-cp311-manylinux2014_x86_64.whl",
)


def package(*filenames: str, **changes: Any) -> dict[str, Any]:
    wheels = [
        {"url": f"https://index.example/{name}", "hashes": {"sha256": name.encode().hex()}} | changes
        for name in filenames
    ]
    return {"name": "Demo", "version": "1.0", "wheels": wheels}


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        ((PURE, ABI, EXACT), EXACT),
        ((PURE, ABI), ABI),
        ((EXACT, NEWER), NEWER),
        ((PURE, *FOREIGN), PURE),
    ],
)
def test_the_wheel_that_the_target_would_install_is_chosen(offered: tuple[str, ...], taken: str) -> None:
    for order in (offered, offered[::-1]):
        wheel, url = pick(package(*order), target_tags("3.12"), SPEC)
        assert (wheel.filename, wheel.name, wheel.version) == (taken, "demo", "1.0")
        assert wheel.sha256 == taken.encode().hex()
        assert url.endswith(taken)


def test_a_package_without_a_fitting_wheel_is_named() -> None:
    with pytest.raises(InputError, match=r"Demo 1\.0 has no wheel for Python 3\.12 on x86_64-manylinux_2_28"):
        pick(package(*FOREIGN), target_tags("3.12"), SPEC)


def test_an_index_without_hashes_is_rejected() -> None:
    with pytest.raises(MissingError, match="has no sha256"):
        pick(package(PURE, hashes={}), target_tags("3.12"), SPEC)


def test_tags_rank_as_installers_rank_them() -> None:
    tags = target_tags("3.12")
    exact = tags[Tag("cp312", "cp312", "manylinux_2_28_x86_64")]
    assert (
        exact
        < tags[Tag("cp312", "cp312", "manylinux2014_x86_64")]
        < tags[Tag("cp37", "abi3", "manylinux2014_x86_64")]
    )
    assert tags[Tag("cp37", "abi3", "manylinux2014_x86_64")] < tags[Tag("py3", "none", "any")]
    assert (
        tags[Tag("cp312", "cp312", "manylinux_2_17_x86_64")] + 1
        == tags[Tag("cp312", "cp312", "manylinux2014_x86_64")]
    )
    assert Tag("cp313", "cp313", "manylinux_2_28_x86_64") not in tags


@pytest.mark.engine
def test_the_same_requirement_gives_the_same_lock() -> None:
    first, second = (resolve(SPEC, ["six==1.16.0"], host_sources()) for _ in range(2))
    assert first == second
    [wheel] = first.wheels
    assert (wheel.name, wheel.version, wheel.filename) == ("six", "1.16.0", "six-1.16.0-py2.py3-none-any.whl")
    assert wheel.sha256 == "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"
    assert (first.platform, first.requirements) == (PLATFORM, ("six==1.16.0",))


@pytest.mark.engine
def test_a_release_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"does not have six==1\.99\.0"):
        resolve(SPEC, ["six==1.99.0"], host_sources())


@pytest.mark.engine
@pytest.mark.parametrize(
    ("package", "sides"),
    [
        ("numpy<1.26", "tensorflow==2.21.0 needs numpy>=1.26.0, but the matrix asks for numpy<1.26"),
        # The index has only one version of it.
        (
            "torch==2.8.0",
            "torch needs nvidia-cudnn-cu12==9.10.2.21, but this image pins nvidia-cudnn-cu12==9.3.0.75",
        ),
        (
            "nvidia-cudnn-cu12==9.10.2.21",
            "this image pins nvidia-cudnn-cu12==9.3.0.75,"
            " but the matrix asks for nvidia-cudnn-cu12==9.10.2.21",
        ),
    ],
)
def test_a_conflict_names_both_sides(index: LocalIndex, package: str, sides: str) -> None:
    """Compare uv's own words, which the recorded texts of `test_faults` may no longer match."""
    index.files.clear()
    for version in ("2.20.0", "2.21.0", "2.22.0"):
        index.add_requiring("tensorflow", version, "numpy>=1.26.0")
    for version in ("1.25.2", "1.26.4", "2.1.0"):
        index.add_requiring("numpy", version)
    for version in ("9.3.0.75", "9.10.2.21"):
        index.add_requiring("nvidia-cudnn-cu12", version)
    index.add_requiring("torch", "2.8.0", "nvidia-cudnn-cu12==9.10.2.21")
    pins = ("tensorflow==2.21.0", "nvidia-cudnn-cu12==9.3.0.75")
    spec = replace(SPEC, additions=Additions("ours", (package,)))
    with pytest.raises(InputError) as caught:
        resolve(spec, (*pins, package), index.sources)
    assert str(caught.value) == f"{spec}: can't be resolved: {sides}"
    agreeing = resolve(spec, (*pins, "numpy<2.1"), index.sources)
    assert [(wheel.name, wheel.version) for wheel in agreeing.wheels] == [
        ("numpy", "1.26.4"), ("nvidia-cudnn-cu12", "9.3.0.75"), ("tensorflow", "2.21.0"),
    ]  # fmt: skip
