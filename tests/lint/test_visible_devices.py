"""CUDA_VISIBLE_DEVICES in Dockerfiles and compose files: values that hide every GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support import found, short, write

HIDDEN = ["devices_hidden"]
TENSORFLOW = "FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.20.0'\n"
CUDA = "FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04\n"


def codes(directory: Path, text: str, name: str = "Dockerfile") -> list[str]:
    return [one.code for one in found(write(directory, name, text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=\n", HIDDEN),
        (f'{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=""\n', HIDDEN),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=-1\n", HIDDEN),
        (f"{TENSORFLOW}env CUDA_VISIBLE_DEVICES '-1'\n", HIDDEN),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=all\n", HIDDEN),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=-1,0\n", HIDDEN),
        (f'{TENSORFLOW}ENV A="x y" \\\n    CUDA_VISIBLE_DEVICES=-1 \\\n    B=1\n', HIDDEN),
        (f"{CUDA}ENV CUDA_VISIBLE_DEVICES=-1\n", HIDDEN),
        ("FROM tensorflow/tensorflow:latest-gpu\nENV CUDA_VISIBLE_DEVICES=-1\n", HIDDEN),
        # These values show a GPU on some machine.
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=0\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=0,-1\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=GPU-8932f937\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=MIG-5c89852c\n", []),
        # Variables of other programs.
        (f"{TENSORFLOW}ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute\n", []),
        (f"{TENSORFLOW}ENV MY_CUDA_VISIBLE_DEVICES=-1\n", []),
        (f'{TENSORFLOW}ENV NOTE="CUDA_VISIBLE_DEVICES=-1"\n', []),
        # Only the variables of the final image count.
        (f"{TENSORFLOW}RUN CUDA_VISIBLE_DEVICES=-1 python -m pytest\n", []),
        (f"{TENSORFLOW}ARG CUDA_VISIBLE_DEVICES=-1\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=-1\nENV CUDA_VISIBLE_DEVICES=0\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=-1\nFROM 0\nENV CUDA_VISIBLE_DEVICES=0\n", []),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=-1\nFROM 0\nRUN true\n", HIDDEN),
        # A build without --build-arg uses the default of an argument.
        (f"{TENSORFLOW}ARG GPUS=-1\nENV CUDA_VISIBLE_DEVICES=$GPUS\n", HIDDEN),
        (f"ARG GPUS=-1\n{TENSORFLOW}ARG GPUS\nENV CUDA_VISIBLE_DEVICES=${{GPUS}}\n", HIDDEN),
        (f"{TENSORFLOW}ENV CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES:-}}\n", HIDDEN),
        (f"{TENSORFLOW}ARG GPUS=0\nENV CUDA_VISIBLE_DEVICES=$GPUS\n", []),
        (f"{TENSORFLOW}ARG GPUS\nENV CUDA_VISIBLE_DEVICES=$GPUS\n", []),
        # The file is meant for the CPU, or does not say that it is meant for a GPU.
        ("FROM python:3.12\nRUN pip install tensorflow-cpu\nENV CUDA_VISIBLE_DEVICES=-1\n", []),
        ("FROM python:3.12\nRUN pip install flask\nENV CUDA_VISIBLE_DEVICES=-1\n", []),
        ("FROM python:3.12\nENV CUDA_VISIBLE_DEVICES=-1\n", []),
    ],
)
def test_dockerfiles(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert codes(tmp_path, text) == expected


def test_the_finding_names_the_place_the_fact_and_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, "Dockerfile", f"{TENSORFLOW}ENV A=$CUDA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES=\n")
    [finding] = found(path)
    assert (finding.place.line, finding.place.column) == (3, 29)
    assert finding.message == (
        "CUDA_VISIBLE_DEVICES= hides every GPU from TensorFlow: an empty value shows no GPU"
    )
    assert finding.fix.startswith("Leave the variable out.") and "docker run --gpus" in finding.fix
    assert finding.fact == "cuda-visible-devices" and "CUDA Environment Variables" in finding.source
    silenced = path.read_text().replace("ENV", "# validator: ignore[devices_hidden]\nENV")
    assert codes(tmp_path, silenced) == []


COMPOSE = """
services:
  train:
    build: .
    {gpu}
    environment: {variables}
"""
GPUS = "gpus: all"
DEPLOY = "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}"


@pytest.mark.parametrize(
    ("gpu", "variables", "expected"),
    [
        (GPUS, "{CUDA_VISIBLE_DEVICES: -1}", ["5:41 devices_hidden"]),
        (GPUS, '{CUDA_VISIBLE_DEVICES: ""}', ["5:41 devices_hidden"]),
        (GPUS, "[CUDA_VISIBLE_DEVICES=]", ["5:19 devices_hidden"]),
        (GPUS, '[A=1, "CUDA_VISIBLE_DEVICES=-1"]', ["5:24 devices_hidden"]),
        (DEPLOY, "[CUDA_VISIBLE_DEVICES=-1]", ["5:19 devices_hidden"]),
        ("runtime: nvidia", "[CUDA_VISIBLE_DEVICES=-1]", ["5:19 devices_hidden"]),
        ("image: tensorflow/tensorflow:2.14.0-gpu", "[CUDA_VISIBLE_DEVICES=-1]", ["5:19 devices_hidden"]),
        ("image: x", "[NVIDIA_VISIBLE_DEVICES=all, CUDA_VISIBLE_DEVICES=-1]", ["5:47 devices_hidden"]),
        (GPUS, "['CUDA_VISIBLE_DEVICES=${GPUS:--1}']", ["5:19 devices_hidden"]),
        (GPUS, "!override [CUDA_VISIBLE_DEVICES=-1]", ["5:29 devices_hidden"]),
        (GPUS, "{CUDA_VISIBLE_DEVICES: 0}", []),
        # The shell decides.
        (GPUS, "{CUDA_VISIBLE_DEVICES: }", []),
        (GPUS, "[CUDA_VISIBLE_DEVICES]", []),
        (GPUS, "['CUDA_VISIBLE_DEVICES=${GPUS}']", []),
        (GPUS, "['CUDA_VISIBLE_DEVICES=${GPUS:-0}']", []),
        (GPUS, "[NVIDIA_VISIBLE_DEVICES=all]", []),
        (GPUS, "!reset null", []),
        # Nothing says that the service uses a GPU.
        ("tty: true", "[CUDA_VISIBLE_DEVICES=-1]", []),
        (DEPLOY.replace("[gpu]", "[tpu]"), "[CUDA_VISIBLE_DEVICES=-1]", []),
    ],
)
def test_compose_files(tmp_path: Path, gpu: str, variables: str, expected: list[str]) -> None:
    path = write(tmp_path, "docker-compose.yml", COMPOSE.format(gpu=gpu, variables=variables))
    assert short(path) == expected
    assert short(path, for_gpu=True) == expected or "tty" in gpu or "tpu" in gpu


def test_what_a_compose_file_merges(tmp_path: Path) -> None:
    text = """
        x-cpu: &cpu {CUDA_VISIBLE_DEVICES: -1}
        x-gpu: &gpu {gpus: all}
        services:
          one:
            <<: *gpu
            environment:
              <<: [{A: 1}, *cpu]
          two:
            <<: *gpu
            environment: {<<: *cpu, CUDA_VISIBLE_DEVICES: 0}
          three: *gpu
    """
    assert short(write(tmp_path, "compose.yaml", text)) == ["1:36 devices_hidden"]


@pytest.mark.parametrize(
    "text", ["services: {}\n", "services: [a]\n", "name: x\n", "services: {a: b, c: [d]}\n"]
)
def test_a_compose_file_without_anything_to_report(tmp_path: Path, text: str) -> None:
    assert short(write(tmp_path, "compose.yaml", text), for_gpu=True) == []
