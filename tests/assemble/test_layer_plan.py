"""The assignment of wheels to layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.assemble.wheel_layers import LARGE_WHEEL, Group, group_of, wheel_layers, wheels_of
from validator.errors import BuildError
from validator.model.spec import Lock, Variant, Wheel

NAMES = (
    "numpy",
    "keras",
    "nvidia-cudnn-cu12",
    "nvidia-cublas-cu12",
    "nvidia-curand-cu12",
    "wheel",
    "libclang",
)
SIZES = st.one_of(st.none(), st.integers(0, 2 * LARGE_WHEEL))


def wheel(name: str, size: int | None = None) -> Wheel:
    return Wheel(name, "1.0", name.encode().hex().ljust(64, "0")[:64], f"{name}-1.0-py3-none-any.whl", size)


def lock(*wheels: Wheel) -> Lock:
    return Lock("tf2.21.0-test", "3.12", "x86_64-manylinux_2_28", (), wheels)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("nvidia-cudnn-cu12", Group.NVIDIA),
        ("nvidia-cudnn-cu11", Group.NVIDIA),
        ("nvidia-cublas", Group.NVIDIA),
        ("nvidia-nvjitlink-cu12", Group.NVIDIA),
        ("nvidia-cudnn-frontend", Group.NVIDIA),
        ("tensorrt-libs", Group.NVIDIA),
        ("tensorflow", Group.TENSORFLOW),
        ("tensorflow-cpu", Group.TENSORFLOW),
        ("tensorflow-io-gcs-filesystem", Group.PYTHON),
        ("tensorflow-estimator", Group.PYTHON),
        ("numpy", Group.PYTHON),
    ],
)
def test_each_wheel_has_its_group(name: str, group: Group) -> None:
    assert group_of(name) is group


@given(st.dictionaries(st.sampled_from(NAMES), SIZES), SIZES)
def test_every_wheel_is_in_exactly_one_layer(sizes: dict[str, int | None], tensorflow: int | None) -> None:
    wheels = [wheel(name, size) for name, size in sizes.items()] + [wheel("tensorflow", tensorflow)]
    layers = wheel_layers(lock(*wheels), Variant.GPU)
    placed = [one for layer in layers for one in layer.wheels]
    assert sorted(placed, key=str) == sorted(wheels, key=str)
    assert all(layer.wheels and list(layer.wheels) == sorted(layer.wheels, key=str) for layer in layers)
    for layer in layers:
        assert {group_of(one.name) for one in layer.wheels} == {layer.group}
        # A large wheel is by itself; at most one layer of each group has several.
        assert len(layer.wheels) == 1 or all((one.size or 0) < LARGE_WHEEL for one in layer.wheels)
    order = list(Group)
    assert [layer.group for layer in layers] == sorted((one.group for one in layers), key=order.index)
    small = [one for one in layers if (one.wheels[0].size or 0) < LARGE_WHEEL]
    assert len(small) == len({one.group for one in small})


@given(st.permutations([wheel(name, number << 21) for number, name in enumerate((*NAMES, "tensorflow"))]))
def test_the_order_of_the_lock_does_not_matter(wheels: list[Wheel]) -> None:
    assert wheel_layers(lock(*wheels), Variant.GPU) == wheel_layers(lock(*reversed(wheels)), Variant.GPU)


def test_the_limit_of_a_large_wheel() -> None:
    wheels = [wheel("a", LARGE_WHEEL), wheel("b", LARGE_WHEEL - 1), wheel("c"), wheel("tensorflow", 1)]
    layers = wheel_layers(lock(*wheels), Variant.CPU)
    assert [[one.name for one in layer.wheels] for layer in layers] == [["a"], ["b", "c"], ["tensorflow"]]
    assert [layer.name for layer in layers] == ["a 1.0", "2 small wheels (Python)", "tensorflow 1.0"]
    assert [one.name for one in wheels_of(layers, Group.PYTHON)] == ["a", "b", "c"]


def test_a_cpu_image_has_no_layer_for_nvidia() -> None:
    with pytest.raises(BuildError, match=r"tf2\.21\.0-test: .*gpu image.*nvidia-cudnn-cu12==1\.0"):
        wheel_layers(lock(wheel("nvidia-cudnn-cu12"), wheel("tensorflow")), Variant.CPU)


@pytest.mark.parametrize("names", [("numpy",), ("tensorflow", "tensorflow-cpu")])
def test_a_lock_must_have_one_tensorflow(names: tuple[str, ...]) -> None:
    with pytest.raises(BuildError, match="one wheel of TensorFlow"):
        wheel_layers(lock(*map(wheel, names)), Variant.GPU)


def test_the_wheel_that_an_image_is_named_after_is_its_tensorflow() -> None:
    nightly, other = wheel("tf-nightly"), wheel("numpy")
    found = Lock(f"tf2.23.0.dev20261127+{nightly.sha256[:8]}-cpu-py312", "3.12", "x", (), (nightly, other))
    assert wheels_of(wheel_layers(found, Variant.GPU), Group.TENSORFLOW) == (nightly,)
    with pytest.raises(BuildError, match=r"not tf-nightly==1\.0 and tensorflow==1\.0"):
        wheel_layers(replace(found, wheels=(*found.wheels, wheel("tensorflow"))), Variant.GPU)
