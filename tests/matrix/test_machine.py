"""The image that `build-matrix` takes for a machine, and the one for most machines."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from validator.answers.ways import BOTH
from validator.answers.what_works import what_works
from validator.compat import policies, releases
from validator.compat.predict import predict
from validator.delivery.choose import Gpu, Host, parse_driver, parse_gpus
from validator.matrix.load import DEFAULT_PROFILE, Matrix, load_matrix, parse_matrix
from validator.matrix.plan import Chosen, choose_image, expand, for_machine
from validator.model.prediction import EAGER_ONLY
from validator.model.spec import RECOMMENDED, Cell, HostClass, ImageSpec, Variant
from validator.versions import ComputeCapability, Version

from .support import FILE

OWN = """
images:
  - {tensorflow: ["2.21.0", "2.15.1"], python: "3.11", policy: recommended, packages: ["rich"], name: ours}
  - {tensorflow: "2.20.0", python: "3.11"}
hosts:
  - {driver: "580", gpu: [t4, v100]}
profiles:
  quick: {select: [tensorflow=newest, variant=gpu]}
  others: {}
"""


@functools.cache
def shipped() -> Matrix:
    return load_matrix(FILE)


@functools.cache
def usual() -> ImageSpec:
    [image] = {cell.image for cell in expand(shipped(), DEFAULT_PROFILE).cells}
    return image


def here(driver: str, *gpus: str) -> tuple[tuple[HostClass, ...], str]:
    host = Host(parse_driver(driver), parse_gpus(gpus))
    return host.classes, str(host)


def chosen(driver: str, *gpus: str, matrix: Matrix | None = None) -> Chosen:
    found = for_machine(matrix or shipped(), *here(driver, *gpus))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "driver", "word"),
    [
        ("t4", "535.183.01", "works"),
        ("a10g", "525.147.05", "works"),
        ("h200", "580.159.04", "works"),
        ("h100", "570.124.06", "works"),
        ("rtx 5090", "570.124.06", EAGER_ONLY),
        ("b200", "580.65.06", EAGER_ONLY),
    ],
)
def test_the_default_image_is_built_where_nothing_works_better(gpu: str, driver: str, word: str) -> None:
    found = chosen(driver, gpu)
    assert (found.image, found.profile) == (usual(), DEFAULT_PROFILE)
    assert found.why.startswith(f"This builds {usual()} for this machine (driver {driver} with ")
    predicted = predict(Cell(usual(), here(driver, gpu)[0][0]))
    assert predicted.word == word
    assert (EAGER_ONLY in found.why) == (word == EAGER_ONLY)
    assert word == "works" or predicted.reasons[0].text in found.why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "driver", "because"),
    [
        ("v100", "580.65.06", "has kernels for compute capability 7.5 and newer, not for 7.0"),
        ("p100", "580.65.06", "has kernels for compute capability 7.5 and newer, not for 6.0"),
        ("gtx 1080", "535.183.01", "has kernels for compute capability 7.5 and newer, not for 6.1"),
        ("h100", "535.183.01", "only PTX"),
        ("a100", "470.82.01", "needs driver 525.60.13 or newer"),
    ],
)
def test_another_image_is_built_where_the_default_does_not_work(gpu: str, driver: str, because: str) -> None:
    found, hosts = chosen(driver, gpu), here(driver, gpu)[0]
    assert found.image != usual() and predict(Cell(found.image, hosts[0])).word == "works"
    assert f"because {usual()}, the default, does not work there: " in found.why and because in found.why
    assert found.image.identifier in found.why and found.why.count("\n") == 0
    # `build-matrix --profile … --select image=…` finds it again.
    assert found.profile is not None
    assert found.image in {cell.image for cell in expand(shipped(), found.profile).cells}
    # It is the release that the page and `predict` name for this machine.
    asked = {"gpu": gpu, "driver": driver, "python": "", "system": "linux", "machine": "x86_64"}
    answer = what_works({**asked, "registry": None, "images": None, "verdicts": None})
    images = [way["release"] for way in answer["ways"] if way["way"] == "image" and way["modes"] == BOTH]
    assert found.image.tensorflow == max(images, key=Version)


def test_volta_and_pascal_get_the_newest_cudnn_that_has_kernels_for_them() -> None:
    for gpu in ("v100", "p100"):
        image = chosen("580.65.06", gpu).image
        assert image.cudnn is not None and Version(image.cudnn.version) <= Version("9.10")
        release = releases.release(image.tensorflow)
        same = [one for one in shipped().images if one.tensorflow == release.version and one.cudnn]
        works = [one for one in same if predict(Cell(one, here("580.65.06", gpu)[0][0])).word == "works"]
        assert Version(image.cudnn.version) == max(Version(one.cudnn.version) for one in works if one.cudnn)


@pytest.mark.slow
def test_an_image_has_to_work_on_each_kind_of_gpu() -> None:
    assert chosen("580.65.06", "t4", "h100").image == usual()
    both = chosen("580.65.06", "t4", "v100")
    assert both.image == chosen("580.65.06", "v100").image
    assert "T4 (7.5)" in both.why and "V100 (7.0)" in both.why


@pytest.mark.slow
def test_with_mixed_gpus_the_reason_is_that_of_the_gpu_that_decides() -> None:
    for gpus in (("rtx 5090", "gtx 1080"), ("gtx 1080", "rtx 5090")):
        mixed = chosen("580.65.06", *gpus)
        assert mixed.image.cudnn is not None and mixed.image.cudnn.version == "9.10"
        because, on_blackwell, on_pascal = mixed.why.split("; on ")
        assert f"because {usual()}, the default, does not work there: cuDNN 9.28" in because
        assert because.endswith("has kernels for compute capability 7.5 and newer, not for 6.1")
        assert on_blackwell.startswith(f"rtx-5090 it is {EAGER_ONLY}: XLA: ")
        assert on_pascal.startswith(f"gtx-1080 it may be {EAGER_ONLY}: XLA: not measured with this cuDNN")
    served = chosen("580.65.06", "h100", "rtx 5090")
    assert served.image == usual()
    assert f", where on rtx-5090 it is {EAGER_ONLY}: XLA: " in served.why


def test_where_no_image_works_the_default_is_built_all_the_same() -> None:
    matrix = parse_matrix(OWN.encode())
    found = chosen("470.82.01", "v100", matrix=matrix)
    assert found.image.tensorflow == "2.21.0" and found.profile == DEFAULT_PROFILE
    assert "although no image of matrix.yaml is expected to work there: " in found.why


def test_only_what_differs_in_release_and_libraries_is_taken_instead() -> None:
    matrix = parse_matrix(OWN.encode())
    found = chosen("580.65.06", "v100", matrix=matrix)
    # 2.20.0 has other packages.
    assert found.image.identifier.startswith("tf2.15.1-cuda12.2-cudnn8.9-py311_")
    assert found.profile == "others"


@pytest.mark.slow
def test_without_a_gpu_the_image_is_for_most_of_them_and_the_others_are_named() -> None:
    found = for_machine(shipped(), (), "there is no driver")
    assert found is not None and (found.image, found.profile) == (usual(), DEFAULT_PROFILE)
    assert found.why.startswith(
        f"No GPU was found: there is no driver. This builds {usual()}, for data-center "
    )
    served, *others = found.why.removesuffix(".").split("; not for ")
    assert "GPUs from T4 to H" in served and f"({EAGER_ONLY}: B100 to " in served
    # Newer releases with an older cuDNN work there too, but not with XLA.
    assert others[0].startswith("P100, P4, P40 and V100, which need TensorFlow 2.20.0 for XLA: ")
    assert others[1].startswith("M10, M40 and M60, which need TensorFlow 2.16.2: ")
    named = {image.identifier: image for image in shipped().images}
    for other in others:
        options = other.partition(": ")[2].split()
        *profile, select, image = options
        assert select == "--select" and named[image.removeprefix("image=")] != usual()
        taken = expand(shipped(), profile[1] if profile else DEFAULT_PROFILE)
        assert image.removeprefix("image=") in {cell.image.identifier for cell in taken.cells}
        model = other.partition(" and ")[0].split(", ")[0]
        capability = parse_gpus([model])[0].capability
        host = Host(
            parse_driver("470" if capability < ComputeCapability(5, 0) else "580"), (Gpu(capability),)
        )
        assert predict(Cell(named[image.removeprefix("image=")], host.classes[0])).word == "works"


def test_a_python_that_can_not_be_provided_is_not_taken() -> None:
    asked: list[str] = []

    def available(python: str) -> str | None:
        asked.append(python)
        return python if python == "3.11" else None

    found = for_machine(shipped(), *here("535.183.01", "h100"), available)
    assert found is not None and found.image.python == "3.11"
    # An engine may have to ask a registry: once for the default image, and once for all others.
    assert len(asked) <= 2 * len(set(asked))


@pytest.mark.parametrize("select", ["variant=cpu", "tensorflow=2.20"])
def test_a_default_profile_without_a_single_image_for_gpus_stays_as_it_is(select: str) -> None:
    images = '  - {tensorflow: ["2.21.0", "2.20.0"], python: ["3.11", "3.12"], variant: [gpu, cpu]}\n'
    hosts = 'hosts:\n  - {driver: "580", gpu: t4}\n  - {gpu: none}\n'
    text = f"images:\n{images}{hosts}profiles:\n  quick: {{select: [{select}]}}\n"
    assert for_machine(parse_matrix(text.encode()), *here("580.65.06", "v100")) is None


@pytest.mark.slow
def test_a_new_project_gets_the_recommended_image_or_one_that_works_on_its_machine() -> None:
    images = shipped().images
    newest = releases.newest()
    image = choose_image(images, ())
    assert (image.tensorflow, image.python, image.variant) == (newest.version, "3.12", Variant.GPU)
    assert (image.cuda, image.cudnn) == policies.choose(newest, RECOMMENDED, RECOMMENDED)
    for driver, gpu in (("580", "v100"), ("535", "h100"), ("570", "rtx-5090")):
        hosts = here(driver, gpu)[0]
        assert choose_image(images, hosts) == chosen(driver, gpu).image
    # An image whose CUDA changes from lock to lock is never taken.
    floating = [one for one in images if one.cuda and one.cuda.floats]
    assert floating and choose_image([*floating, image], here("580", "v100")[0]) == image
    assert dataclasses.replace(image, python="3.11") in images
