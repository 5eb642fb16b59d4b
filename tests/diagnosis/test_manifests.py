"""Compose files and Kubernetes manifests, whole and in the middle of other words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.diagnosis import manifests, text
from validator.diagnosis.messages import catalogue
from validator.diagnosis.read_log import observe

COMPOSE = """\
services:
  train:
    image: tensorflow/tensorflow:2.15.0-gpu
    command: python train.py
"""
GPU_OF_COMPOSE = """\
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 1
              capabilities: [gpu]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
  - name: train
    image: "tensorflow/tensorflow:2.15.0-gpu"  # the newest
"""
GPU_OF_POD = """\
    resources:
      limits:
        nvidia.com/gpu: 1
"""


def shown(pasted: str) -> list[tuple[str, str, str]]:
    found = observe(text.read_text(pasted), catalogue())
    return [
        (one.values["engine"], one.values["gpus"], one.where)
        for one in found.of("docker_run")
        if one.values["engine"] in ("compose", "kubernetes")
    ]


@pytest.mark.parametrize(
    "gpu",
    [
        GPU_OF_COMPOSE,
        "    gpus: all\n",
        "    runtime: nvidia\n",
        "    devices:\n      - nvidia.com/gpu=all\n",
    ],
)
def test_a_service_with_a_gpu(gpu: str) -> None:
    assert shown(COMPOSE) == [("compose", "no", "line 2")]
    assert shown(COMPOSE + gpu) == [("compose", "yes", "line 2")]


def test_a_service_that_needs_no_gpu_is_not_counted() -> None:
    database = "  db:\n    image: postgres:16\n"
    assert shown(COMPOSE + database) == [("compose", "no", "line 2")]
    assert shown(COMPOSE + GPU_OF_COMPOSE + database) == [("compose", "yes", "line 2")]


def test_a_pod_with_a_gpu_and_its_runtime_class() -> None:
    assert shown(POD) == [("kubernetes", "no", "line 1")]
    assert shown(POD + GPU_OF_POD) == [("kubernetes", "yes", "line 1")]
    pod = POD.replace("spec:\n", "spec:\n  runtimeClassName: nvidia\n")
    found = observe(text.read_text(pod), catalogue())
    assert found.value("docker_run", "runtime_class") == "nvidia"
    assert found.value("docker_run", "image") == "tensorflow/tensorflow:2.15.0-gpu"
    assert found.with_value("container", "kind", "kubernetes")


def test_a_piece_of_a_manifest() -> None:
    piece = POD.partition("metadata:")[2]
    assert shown(f"Here it is\n{piece}") == [("kubernetes", "no", "line 2")]
    assert [gpus for _, gpus, _ in shown(f"Here it is\n{piece}{GPU_OF_POD}")] == ["yes"]


def test_two_manifests_are_kept_apart() -> None:
    assert [gpus for _, gpus, _ in shown(POD + "---\n" + POD + GPU_OF_POD)] == ["no", "yes"]


@pytest.mark.parametrize("content", [COMPOSE, POD])
def test_a_file_among_words(content: str) -> None:
    pasted = f"This is my file:\n```yaml\n{content}```\nIt has no nvidia.com/gpu: 1 in it.\n"
    assert [gpus for _, gpus, _ in shown(pasted)] == ["no"]


def test_other_yaml_shows_nothing() -> None:
    assert shown("kind: Service\nspec:\n  ports: []\nservices: none\n") == []


@given(st.lists(st.sampled_from([*COMPOSE.splitlines(), *POD.splitlines(), "```", "", "---", "x", " - a:"])))
def test_any_order_of_lines_can_be_read(pasted: list[str]) -> None:
    for one, _ in manifests.read_manifests(list(text.read_text("\n".join(["x", *pasted])))):
        assert one.kind in ("docker_run", "container")


SLURM = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --cpus-per-task=8
{gpus}
module load cuda
srun python train.py
"""


@pytest.mark.parametrize(
    ("gpus", "asked"),
    [
        ("#SBATCH --mem=8G", False),
        ("#SBATCH --gres=gpu:1", True),
        ("#SBATCH -G 1", True),
        ("#SBATCH --gpus=2", True),
    ],
)
def test_a_slurm_script_with_and_without_a_gpu(gpus: str, asked: bool) -> None:
    found = observe(text.read_text(SLURM.format(gpus=gpus)), catalogue())
    assert found.has("slurm_request")
    assert found.has("slurm_gpu_asked") is asked


def test_a_dockerfile_shows_its_base_its_packages_and_its_variables() -> None:
    pasted = "My Dockerfile\nFROM nvidia/cuda:12.3.2-runtime-ubuntu22.04\nENV CUDA_VISIBLE_DEVICES=-1\n"
    pasted += "RUN apt-get update && \\\n    pip install --no-cache-dir \\\n    tensorflow-cpu==2.16.1\n"
    found = observe(text.read_text(pasted), catalogue())
    assert found.value("image", "name") == "nvidia/cuda:12.3.2-runtime-ubuntu22.04"
    assert found.value("cuda", "version") == "12.3.2"
    assert found.value("variable", "value") == "-1"
    (package,) = found.of("pip_install")
    assert (package.values["name"], package.where) == ("tensorflow-cpu", "line 4")
