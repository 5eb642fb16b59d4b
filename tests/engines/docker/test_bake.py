"""What buildx is asked to build."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.engines.docker.orders import CPU, GPU, REGISTRY, lock_of, order_of
from validator.engines.docker import names
from validator.engines.docker.bake import TARGET, Base, bake_document, labels, require_cuda
from validator.model.spec import Choice, ImageSpec, Variant


@pytest.mark.parametrize(
    ("cuda", "constraint"),
    [("12.5", "cuda>=12.0"), ("12.9", "cuda>=12.0"), ("11.8", "cuda>=11.0"), ("13.0", "cuda>=13.0")],
)
def test_every_driver_of_the_cuda_major_is_admitted(cuda: str, constraint: str) -> None:
    spec = dataclasses.replace(GPU, cuda=Choice("pin", cuda))
    assert require_cuda(spec) == constraint


def test_a_gpu_image_requires_its_cuda_and_a_cpu_image_nothing() -> None:
    gpu = bake_document(order_of(GPU))["target"][TARGET]
    cpu = bake_document(order_of(CPU))["target"][TARGET]
    assert gpu["target"] == "gpu"
    assert gpu["args"]["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.0"
    assert cpu["target"] == "cpu"
    assert not [name for name in cpu["args"] if "NVIDIA" in name or "CUDA" in name]


def test_the_document_names_the_image_and_its_contexts() -> None:
    target = bake_document(order_of(GPU))["target"][TARGET]
    assert target["tags"] == ["tensorflow-gpu-matrix:tf2.21.0-cuda12.5-cudnn9.3-py312"]
    assert target["contexts"] == {"requirements": "/build/requirements", "uv": "/build/uv"}
    assert target["args"]["BASE"] == REGISTRY.reference
    assert target["args"]["PYTHON"] == "3.12"
    assert target["secret"] == ["id=sources,src=/build/secrets/sources"]
    json.dumps(target)


def test_zstd_only_where_the_image_store_knows_it() -> None:
    new = bake_document(order_of(GPU, image_store=True))["target"][TARGET]["output"]
    old = bake_document(order_of(GPU, image_store=False))["target"][TARGET]["output"]
    assert "compression=zstd,compression-level=1" in new[0]
    assert old == ["type=docker"]


def test_labels_say_what_the_image_is() -> None:
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


def test_a_bootstrapped_base_has_no_digest_to_label() -> None:
    base = Base("tensorflow-gpu-matrix-base:bookworm-1", "bootstrap:bookworm", "debian:bookworm")
    found = labels(order_of(CPU, base=base))
    assert "org.opencontainers.image.base.digest" not in found
    assert found[names.LABEL_BASE] == "bootstrap:bookworm"


def test_equal_orders_give_equal_documents() -> None:
    assert bake_document(order_of(GPU)) == bake_document(order_of(GPU))


def test_long_identifiers_still_make_a_tag() -> None:
    spec = ImageSpec("2.21.0", "3.12", Variant.CPU, base="registry.example/" + "a/" * 90 + "image:1")
    other = dataclasses.replace(spec, base=f"{spec.base}1")
    tags = [names.image_reference(each.identifier).partition(":")[2] for each in (spec, other)]
    assert [len(tag) for tag in tags] == [128, 128]
    assert tags[0] != tags[1]


def test_a_changed_script_is_a_changed_recipe(tmp_path: Path) -> None:
    shutil.copytree(names.IMAGES / "build", tmp_path / "build")
    shutil.copy(names.IMAGES / "Dockerfile", tmp_path)
    before = names.recipe_digest(tmp_path)
    assert before == names.recipe_digest()
    with open(tmp_path / "build" / "install-wheels", "a", encoding="utf-8") as script:
        script.write("# changed\n")
    assert names.recipe_digest(tmp_path) != before


def test_the_dockerfile_satisfies_hadolint() -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [hadolint, names.IMAGES / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "script", sorted([*(names.IMAGES / "build").iterdir(), names.IMAGES / "base" / "clean-rootfs"])
)
def test_build_scripts_are_executable_posix_shell(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
