"""GPU names as people, shops and NVML write them."""

from __future__ import annotations

import pytest

from validator.compat.facts import UnknownGpu
from validator.compat.hardware import CONSUMER, DATA_CENTER, EMBEDDED, gpu, gpus


@pytest.mark.parametrize(
    ("asked", "name", "capability", "kind"),
    [
        ("h100", "H100", "9.0", DATA_CENTER),
        ("H100", "H100", "9.0", DATA_CENTER),
        ("NVIDIA H100 80GB HBM3", "H100", "9.0", DATA_CENTER),
        ("NVIDIA H100 PCIe", "H100", "9.0", DATA_CENTER),
        ("NVIDIA H100 NVL", "H100", "9.0", DATA_CENTER),
        ("NVIDIA H200", "H200", "9.0", DATA_CENTER),
        ("NVIDIA GH200 480GB", "GH200", "9.0", DATA_CENTER),
        ("NVIDIA A100-SXM4-80GB", "A100", "8.0", DATA_CENTER),
        ("NVIDIA A100 80GB PCIe", "A100", "8.0", DATA_CENTER),
        ("Tesla V100-SXM2-16GB", "V100", "7.0", DATA_CENTER),
        ("V100", "V100", "7.0", DATA_CENTER),
        ("Tesla T4", "T4", "7.5", DATA_CENTER),
        ("Tesla P100-PCIE-16GB", "P100", "6.0", DATA_CENTER),
        ("Tesla K80", "K80", "3.7", DATA_CENTER),
        ("NVIDIA L4", "L4", "8.9", DATA_CENTER),
        ("NVIDIA A10G", "A10G", "8.6", DATA_CENTER),
        ("Quadro P2000", "Quadro P2000", "6.1", "professional"),
        ("Quadro M6000 24GB", "Quadro M6000", "5.2", "professional"),
        ("NVIDIA T1000 8GB", "T1000", "7.5", "professional"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada", "8.9", "professional"),
        ("NVIDIA TITAN X (Pascal)", "TITAN X Pascal", "6.1", CONSUMER),
        ("GeForce GTX TITAN X", "GTX TITAN X", "5.2", CONSUMER),
        ("l40s", "L40S", "8.9", DATA_CENTER),
        ("rtx 4090", "RTX 4090", "8.9", CONSUMER),
        ("rtx4090", "RTX 4090", "8.9", CONSUMER),
        ("rtx-4090", "RTX 4090", "8.9", CONSUMER),
        ("GeForce RTX 4090", "RTX 4090", "8.9", CONSUMER),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D", "8.9", CONSUMER),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER", "8.9", CONSUMER),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX 3080", "8.6", CONSUMER),
        ("GeForce GTX 1080 Ti", "GTX 1080 Ti", "6.1", CONSUMER),
        ("gtx1080ti", "GTX 1080 Ti", "6.1", CONSUMER),
        ("RTX 50 series", "RTX 50 series", "12.0", CONSUMER),
        ("RTX 5000 series", "RTX 5000 series", "12.0", CONSUMER),
        ("GeForce GTX 1000-series", "GTX 1000 series", "6.1", CONSUMER),
        ("NVIDIA TITAN V", "TITAN V", "7.0", CONSUMER),
        ("NVIDIA RTX A6000", "RTX A6000", "8.6", "professional"),
        ("Quadro RTX 6000", "Quadro RTX 6000", "7.5", "professional"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "8.9", "professional"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            "professional",
        ),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            "professional",
        ),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Server Edition",
            "12.0",
            DATA_CENTER,
        ),
        ("NVIDIA B200", "B200", "10.0", DATA_CENTER),
        ("NVIDIA GH200 144G HBM3e", "GH200", "9.0", DATA_CENTER),
        ("rtx pro 6000", "RTX PRO 6000", "12.0", "professional"),
        ("rtxpro6000", "RTX PRO 6000", "12.0", "professional"),
        ("mx 450", "MX 450", "7.5", "consumer"),
        ("rtx 3070 mobile", "RTX 3070", "8.6", "consumer"),
        ("4090d", "RTX 4090 D", "8.9", "consumer"),
        ("4070tisuper", "RTX 4070 Ti SUPER", "8.9", "consumer"),
        ("p2200", "Quadro P2200", "6.1", "professional"),
        ("NVIDIA H20", "H20", "9.0", DATA_CENTER),
        ("Tesla K40c", "K40C", "3.5", DATA_CENTER),
        ("Tesla V100-DGXS-32GB", "V100", "7.0", DATA_CENTER),
        ("NVIDIA GeForce MX450", "MX450", "7.5", CONSUMER),
        ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", "GTX 1650 Ti", "7.5", CONSUMER),
        ("NVIDIA GeForce GTX 960M", "GTX 960M", "5.0", CONSUMER),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "RTX 5070 Ti", "12.0", CONSUMER),
        ("NVIDIA TITAN RTX", "TITAN RTX", "7.5", CONSUMER),
        ("NVIDIA RTX A1000 Laptop GPU", "RTX A1000", "8.6", "professional"),
        ("Quadro T2000", "Quadro T2000", "7.5", "professional"),
        (
            "NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU",
            "RTX PRO 1000 Blackwell",
            "12.0",
            "professional",
        ),
        ("Orin (nvgpu)", "Orin (nvgpu)", "8.7", EMBEDDED),
        ("Jetson AGX Orin", "Jetson AGX Orin", "8.7", EMBEDDED),
        ("NVIDIA Thor", "Thor", "11.0", EMBEDDED),
        # What people write without the family.
        ("4090", "RTX 4090", "8.9", CONSUMER),
        ("NVIDIA 3060", "RTX 3060", "8.6", CONSUMER),
        ("4070 ti super", "RTX 4070 Ti SUPER", "8.9", CONSUMER),
        ("5070TI", "RTX 5070 Ti", "12.0", CONSUMER),
        ("1080Ti", "GTX 1080 Ti", "6.1", CONSUMER),
        ("a6000", "RTX A6000", "8.6", "professional"),
        ("A1000", "RTX A1000", "8.6", "professional"),
        ("K6000", "K6000", "3.5", "professional"),
        ("Ada generation mobile", "Ada mobile", "8.9", CONSUMER),
        ("GTX 770", "GTX 770", "3.0", CONSUMER),
        ("Quadro M1200", "Quadro M1200", "5.0", "professional"),
        ("T4G", "T4G", "7.5", DATA_CENTER),
        # A part of a GPU: MIG, and vGPU profiles.
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100", "8.0", DATA_CENTER),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "H100", "9.0", DATA_CENTER),
        ("NVIDIA A30 MIG 1c.2g.12gb", "A30", "8.0", DATA_CENTER),
        ("GRID A100-10C", "A100", "8.0", DATA_CENTER),
        ("NVIDIA A100-1-5C", "A100", "8.0", DATA_CENTER),
        ("NVIDIA A40-48Q", "A40", "8.6", DATA_CENTER),
        ("GRID T4-16Q", "T4", "7.5", DATA_CENTER),
        # What nvidia-smi cuts short.
        ("NVIDIA RTX PRO 1000 Blac...", "RTX PRO 1000 Blackwell", "12.0", "professional"),
        ("NVIDIA RTX PRO 1000 Blac\u2026", "RTX PRO 1000 Blackwell", "12.0", "professional"),
        ("NVIDIA GeForce RTX 4070 Ti SUP...", "RTX 4070 Ti", "8.9", CONSUMER),
        ("NVIDIA GeForce RTX 3080 Lapt...", "RTX 3080", "8.6", CONSUMER),
    ],
)
def test_names(asked: str, name: str, capability: str, kind: str) -> None:
    found = gpu(asked)
    assert (found.name, str(found.compute_capability), found.kind) == (name, capability, kind)
    assert found.data_center == (kind == DATA_CENTER)


def test_every_model_is_found_by_its_own_name_and_slug() -> None:
    for known in gpus():
        assert gpu(known.name) == known
        assert gpu(known.slug) == known


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("h10", "H100"),
        ("RTX A600", "RTX A6000"),
        # A number that its series does not have: only models of its family.
        ("rtx 3065", "RTX 30 series"),
        ("4000", "Quadro RTX 4000"),
        ("rtx 6000", "RTX 6000 Ada"),
    ],
)
def test_an_unknown_name_gives_the_nearest(asked: str, nearest: str) -> None:
    with pytest.raises(UnknownGpu) as caught:
        gpu(asked)
    assert nearest in caught.value.nearest
    assert all(gpu(name) for name in caught.value.nearest)
    assert "compute_cap" in (caught.value.hint or "")


def test_the_nearest_models_of_a_number_are_of_its_family() -> None:
    with pytest.raises(UnknownGpu) as caught:
        gpu("4000")
    assert caught.value.nearest == ("Quadro RTX 4000", "RTX A4000", "RTX 4000 Ada")


def test_a_part_of_a_gpu_without_its_model_is_no_model() -> None:
    with pytest.raises(UnknownGpu, match="names a part of a GPU, not its model"):
        gpu("MIG 1g.10gb")


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        # Digits that are wrong, swapped, missing or too many.
        ("RTX 4909", "RTX 4090"),
        ("GTX 1800", "GTX 1080"),
        ("GTX 1800 Ti", "GTX 1080"),
        ("RTX 4009", "RTX 4090"),
        ("RTX 409", "RTX 4090"),
        ("h10", "H100"),
        ("H1000", "H100"),
        ("RTX A600", "RTX A6000"),
        ("RTX PRO 6000 Blakwel", "RTX PRO 6000 Blackwell"),
        # A misspelled brand, and a series of another family.
        ("Gefroce RTX 4090", "RTX 4090"),
        ("Gefroce RTX 4909", "RTX 4090"),
        ("Nvida H100", "H100"),
        ("GTX 4090", "RTX 4090"),
    ],
)
def test_the_model_that_is_meant_is_suggested_first(asked: str, nearest: str) -> None:
    with pytest.raises(UnknownGpu) as caught:
        gpu(asked)
    assert caught.value.nearest[0] == nearest


def test_models_of_other_numbers_are_not_suggested_for_a_misspelled_one() -> None:
    with pytest.raises(UnknownGpu) as caught:
        gpu("RTX 4909")
    assert caught.value.nearest == ("RTX 4090",)


@pytest.mark.parametrize("asked", ["rtx9999", "banana", "banana 4", "GTX 9999 Ti"])
def test_a_model_that_is_far_off_is_not_suggested(asked: str) -> None:
    with pytest.raises(UnknownGpu) as caught:
        gpu(asked)
    assert caught.value.nearest == ()


@pytest.mark.parametrize("asked", ["", "banana", "NVIDIA", "Radeon", "RTX 509...", "MIG 1g.5gb"])
def test_other_text_is_not_a_gpu(asked: str) -> None:
    with pytest.raises(UnknownGpu):
        gpu(asked)
