"""The assignment of wheels to layers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.engines.docker.groups import BIG_LIBRARIES, OF_VARIANT, group_of, group_wheels, requirements
from validator.errors import BuildError
from validator.model.spec import Variant
from validator.resources import images_directory

from .orders import CPU, GPU, lock_of


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("nvidia-cudnn-cu12", "cudnn"),
        ("nvidia-cudnn-cu11", "cudnn"),
        ("nvidia-cublas", "cublas"),
        ("nvidia-nccl-cu12", "nccl"),
        ("nvidia-cuda-runtime-cu12", "cuda"),
        ("nvidia-cuda-nvcc-cu12", "cuda"),
        ("nvidia-nvjitlink-cu12", "cuda"),
        ("nvidia-nvshmem-cu12", "cuda"),
        ("nvidia-cudnn-frontend", "cuda"),
        ("tensorrt-libs", "cuda"),
        ("tensorflow", "tensorflow"),
        ("tensorflow-cpu", "tensorflow"),
        ("tensorflow-io-gcs-filesystem", "python"),
        ("tensorflow-estimator", "python"),
        ("numpy", "python"),
    ],
)
def test_each_wheel_has_its_group(name: str, group: str) -> None:
    assert group_of(name) == group


@given(
    st.sets(
        st.sampled_from(
            [
                "numpy",
                "keras",
                "nvidia-cudnn-cu12",
                "nvidia-cublas-cu12",
                "nvidia-curand-cu12",
                "tensorrt",
                "wheel",
            ]
        )
    )
)
def test_every_wheel_is_in_exactly_one_group(names: set[str]) -> None:
    lock = lock_of(GPU, "tensorflow==2.21.0", *(f"{name}==1.0" for name in names))
    groups = group_wheels(lock, Variant.GPU)
    assert sorted(str(wheel) for wheels in groups.values() for wheel in wheels) == [
        str(w) for w in lock.wheels
    ]


def test_a_cpu_image_has_no_layer_for_nvidia() -> None:
    with pytest.raises(BuildError, match=r"nvidia-cudnn-cu12==9\.3"):
        group_wheels(lock_of(CPU, "tensorflow-cpu==2.21.0", "nvidia-cudnn-cu12==9.3"), Variant.CPU)


def test_a_lock_without_tensorflow_is_rejected() -> None:
    with pytest.raises(BuildError, match="does not contain TensorFlow"):
        group_wheels(lock_of(CPU, "numpy==2.0.0"), Variant.CPU)


def test_each_requirement_pins_one_file() -> None:
    text = requirements(lock_of(CPU, "numpy==2.0.0", "six==1.17.0").wheels)
    assert text == f"numpy==2.0.0 --hash=sha256:{0:064x}\nsix==1.17.0 --hash=sha256:{1:064x}\n"


@pytest.mark.parametrize("variant", list(Variant))
def test_the_dockerfile_has_a_stage_and_a_copy_for_every_group(variant: Variant) -> None:
    text = (images_directory() / "Dockerfile").read_text(encoding="utf-8")
    target = text.partition(f"FROM runtime AS {'gpu' if variant.has_cuda else 'cpu'}\n")[2].partition(
        "\nFROM "
    )[0]
    for group in OF_VARIANT[variant]:
        assert re.search(rf"^FROM (tools|venv) AS {group}$", text, re.MULTILINE)
        assert f"source={group}.txt,target=/requirements.txt" in text
        assert f"COPY --link --from={group} /layer /" in target
    copied = set(re.findall(r"COPY --link --from=(\w+)", target))
    entrypoint = {"entrypoint"} if variant.has_cuda else set()
    assert copied == {"venv", *entrypoint, *OF_VARIANT[variant]}


def test_shared_layers_come_first() -> None:
    text = (
        (images_directory() / "Dockerfile").read_text(encoding="utf-8").partition("FROM runtime AS gpu\n")[2]
    )
    order = re.findall(r"COPY --link --from=(\w+) /layer", text)
    assert order[-2:] == ["python", "tensorflow"]
    assert set(order[:-2]) == {"entrypoint", "cuda", *BIG_LIBRARIES}
