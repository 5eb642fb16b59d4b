"""The bake file, which is the input of buildx."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from validator.assemble import names
from validator.assemble.host_requirements import host_requirements, tables
from validator.compat import drivers
from validator.compat.kernels import fit, kernels
from validator.engines.docker.bake import TARGET, Base, Compression, bake_document, labels, recipe_digest
from validator.model.prediction import Outcome
from validator.model.spec import Choice, ImageSpec, Variant
from validator.resources import images_directory
from validator.versions import ComputeCapability, CudaVersion, DriverRelease

from .orders import CPU, GPU, REGISTRY, lock_of, order_of


@pytest.mark.parametrize(
    ("cuda", "constraint"),
    [("12.5", "cuda>=12.0"), ("12.9", "cuda>=12.0"), ("11.8", "cuda>=11.0"), ("13.0", "cuda>=13.0")],
)
def test_every_driver_of_the_cuda_major_is_admitted(cuda: str, constraint: str) -> None:
    found = host_requirements(dataclasses.replace(GPU, cuda=Choice("pin", cuda)))
    assert found is not None and found.constraint == constraint


@pytest.mark.parametrize("driver", [f"{branch.number}" for branch in drivers.branches()])
@pytest.mark.parametrize("cuda", ["11.8", "12.5", "12.9", "13.0"])
def test_the_constraint_admits_the_drivers_that_the_rules_do_not_reject(cuda: str, driver: str) -> None:
    found = host_requirements(dataclasses.replace(GPU, cuda=Choice("pin", cuda)))
    branch = drivers.branch_of(int(driver))
    assert found is not None and branch is not None
    reason = drivers.runs_toolkit(CudaVersion.parse(cuda), DriverRelease.parse(driver), None)
    assert (branch.cuda >= found.cuda) is (reason.outcome is not Outcome.FAILS), reason.text


def test_the_minimum_compute_capability_is_the_lowest_that_the_rules_allow() -> None:
    found = host_requirements(GPU)
    assert found is not None and found.compute_capability is not None
    known = kernels(GPU.tensorflow)
    assert known is not None
    least = found.compute_capability
    below = ComputeCapability(least.major - 1, 9)
    assert fit(known, CudaVersion(12, 5), below, 999).outcome is Outcome.FAILS
    assert fit(known, CudaVersion(12, 5), least, 999).outcome is Outcome.WORKS


def test_nothing_is_claimed_about_gpus_for_an_unknown_release() -> None:
    spec = dataclasses.replace(GPU, tensorflow="2.99.0")
    document = bake_document(order_of(spec, lock=lock_of(spec, "tensorflow==2.99.0")))["target"][TARGET]
    assert "VALIDATOR_COMPUTE_CAPABILITY" not in document["args"]
    assert names.LABEL_SASS not in document["labels"]


def test_no_image_sets_a_plain_cuda_version() -> None:
    """With CUDA_VERSION, the toolkit could treat the image as one that uses its old scheme."""
    dockerfile = (images_directory() / "Dockerfile").read_text(encoding="utf-8")
    instructions = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in instructions if re.search(r"(?<![A-Z_])CUDA_VERSION", line)]
    assert bake_document(order_of(GPU))["target"][TARGET]["args"]["NVIDIA_REQUIRE_CUDA"]


def test_the_tables_of_the_entry_point_are_made_from_the_facts() -> None:
    lines = tables().splitlines()
    assert "branch 525 12.0" in lines and "branch 580 13.0" in lines
    assert "gpu 5.2 M60" in lines and "gpu 8.0 A100" in lines
    # The shell reads three words per line, and uses the last branch that is not newer than the driver.
    assert all(len(line.split()) == 3 for line in lines)
    numbers = [int(line.split()[1]) for line in lines if line.startswith("branch ")]
    assert numbers == sorted(numbers)


def test_a_gpu_image_requires_its_cuda_and_a_cpu_image_nothing() -> None:
    gpu = bake_document(order_of(GPU))["target"][TARGET]
    cpu = bake_document(order_of(CPU))["target"][TARGET]
    assert gpu["target"] == "gpu"
    assert gpu["args"]["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.0"
    assert gpu["args"]["VALIDATOR_COMPUTE_CAPABILITY"] == "6.0"
    assert cpu["target"] == "cpu"
    assert not [name for name in cpu["args"] if name.startswith(("NVIDIA", "CUDA", "VALIDATOR"))]


def test_the_document_names_the_image_and_its_contexts() -> None:
    target = bake_document(order_of(GPU))["target"][TARGET]
    assert target["tags"] == ["tensorflow-gpu-matrix:tf2.21.0-cuda12.5-cudnn9.3-py312"]
    assert target["contexts"] == {
        "requirements": "/build/requirements",
        "uv": "/build/uv",
        "facts": "/build/facts",
    }
    assert target["args"]["BASE"] == REGISTRY.reference
    assert target["args"]["PYTHON"] == "3.12"
    assert target["secret"] == ["id=sources,src=/build/secrets/sources"]
    json.dumps(target)


def test_layers_have_the_requested_compression() -> None:
    outputs = {
        compression: bake_document(order_of(GPU, compression=compression))["target"][TARGET]["output"]
        for compression in Compression
    }
    assert "compression=zstd,compression-level=1" in outputs[Compression.ZSTD][0]
    assert "compression=gzip,force-compression=true" in outputs[Compression.GZIP][0]
    assert outputs[Compression.NONE] == ["type=docker"]


def test_labels_describe_the_image() -> None:
    found = labels(order_of(GPU))
    assert found["org.opencontainers.image.title"] == GPU.identifier
    assert (
        found["org.opencontainers.image.description"]
        == "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.12"
    )
    assert found["org.opencontainers.image.base.digest"] == "sha256:ba5e"
    assert found[names.LABEL_SPEC] == GPU.identifier
    assert found[names.LABEL_LOCK] == lock_of(GPU, "tensorflow==2.21.0").digest
    assert found[names.LABEL_BASE].startswith("registry:")
    assert found[names.LABEL_TENSORFLOW] == "2.21.0"
    assert found[names.LABEL_PYTHON] == "3.12"
    assert (found[names.LABEL_CUDA], found[names.LABEL_CUDNN]) == ("12.5", "9.3")
    assert found[names.LABEL_DRIVER] == "525.60.13"
    assert found[names.LABEL_SASS] == "6.0 7.0 8.0 8.9 9.0"
    assert found[names.LABEL_PTX] == "9.0"


def test_a_cpu_image_has_no_label_about_gpus() -> None:
    assert (
        not {
            names.LABEL_CUDA,
            names.LABEL_CUDNN,
            names.LABEL_DRIVER,
            names.LABEL_SASS,
            names.LABEL_PTX,
        }
        & labels(order_of(CPU)).keys()
    )


def test_a_bootstrapped_base_has_no_digest_label() -> None:
    base = Base("tensorflow-gpu-matrix-base:bookworm-1", "bootstrap:bookworm", "debian:bookworm")
    found = labels(order_of(CPU, base=base))
    assert "org.opencontainers.image.base.digest" not in found
    assert found[names.LABEL_BASE] == "bootstrap:bookworm"


def test_equal_orders_give_equal_documents() -> None:
    assert bake_document(order_of(GPU)) == bake_document(order_of(GPU))


def test_a_long_identifier_gives_a_valid_tag() -> None:
    spec = ImageSpec("2.21.0", "3.12", Variant.CPU, base="registry.example/" + "a/" * 90 + "image:1")
    other = dataclasses.replace(spec, base=f"{spec.base}1")
    tags = [names.image_reference(each.identifier).partition(":")[2] for each in (spec, other)]
    assert [len(tag) for tag in tags] == [128, 128]
    assert tags[0] != tags[1]


def test_a_changed_script_changes_the_recipe(tmp_path: Path) -> None:
    for name in ("build", "entrypoint"):
        shutil.copytree(images_directory() / name, tmp_path / name)
    for name in ("Dockerfile", "uv.txt"):
        shutil.copy(images_directory() / name, tmp_path)
    seen = {recipe_digest(tmp_path)}
    assert seen == {recipe_digest()}
    for number, path in enumerate(("build/install-wheels", "entrypoint/start", "Dockerfile", "uv.txt"), 2):
        with open(tmp_path / path, "a", encoding="utf-8") as script:
            script.write("# changed\n")
        seen.add(recipe_digest(tmp_path))
        assert len(seen) == number


@pytest.mark.service
def test_the_dockerfile_satisfies_hadolint() -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [hadolint, images_directory() / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.service
@pytest.mark.parametrize(
    "script",
    sorted(
        path for name in ("build", "base", "entrypoint") for path in (images_directory() / name).iterdir()
    ),
)
def test_build_scripts_are_executable_posix_shell(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


def test_layers_are_cached_only_in_the_given_repository() -> None:
    plain = bake_document(order_of(GPU))["target"][TARGET]
    assert not [key for key in plain if key.startswith("cache")]
    where = names.cache_reference("localhost:5000/team/tf", GPU.identifier)
    assert where == "localhost:5000/team/tf:cache-tf2.21.0-cuda12.5-cudnn9.3-py312"
    document = bake_document(order_of(GPU, cache=where))["target"][TARGET]
    assert document["cache-from"] == [f"type=registry,ref={where}"]
    [target] = document["cache-to"]
    assert target.startswith(f"type=registry,ref={where},") and "ignore-error=true" in target
    assert {key for key in document if document[key] != plain.get(key)} == {"cache-from", "cache-to"}
