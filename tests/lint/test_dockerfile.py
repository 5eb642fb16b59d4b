"""Dockerfiles: the base image, its stages and variables, and what commands install."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support import found, short, write

OLD = "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
NEW = "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04"
CUDA = "cuda_of_another_version"
BOTH = [CUDA, "cudnn_of_another_major"]


def codes(directory: Path, text: str, name: str = "Dockerfile") -> list[str]:
    return [one.code for one in found(write(directory, name, text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"FROM {OLD}\nRUN pip install tensorflow==2.18.0\n", BOTH),
        (f"FROM {NEW}\nRUN pip install tensorflow==2.18.0\n", []),
        (f"FROM {NEW}\nRUN pip install tensorflow==2.10.1\n", BOTH),
        (
            "FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04\nRUN pip install tensorflow==2.18.0\n",
            ["cudnn_older_than_built"],
        ),
        # The tag states only the major version of cuDNN, and nothing else is known about it.
        (
            "FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04\nRUN pip install tensorflow==2.18.0\n",
            ["cudnn_of_another_major"],
        ),
        (
            "FROM nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04\nRUN pip install tensorflow==2.19.0\n",
            ["cudnn_of_another_major"],
        ),
        ("FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04\nRUN pip install tensorflow==2.15.1\n", []),
        ("FROM nvidia/cuda:12.9.9-cudnn-runtime-ubuntu22.04\nRUN pip install tensorflow==2.18.0\n", []),
        (
            "FROM python:3.12\nRUN pip install tensorflow==2.18.0 nvidia-cudnn-cu12==9.x\n",
            ["invalid_version"],
        ),
        # The wheels bring CUDA themselves.
        (f"FROM {OLD}\nRUN pip install 'tensorflow[and-cuda]==2.18.0'\n", []),
        (f"FROM {OLD}\nRUN pip install tensorflow==2.18.0 torch\n", []),
        (f"FROM {OLD}\nRUN pip install tensorflow==2.18.0 nvidia-cudnn-cu12 nvidia-cublas-cu12\n", []),
        # What is not pinned is not guessed.
        (f"FROM {OLD}\nRUN pip install tensorflow\n", []),
        ("FROM nvidia/cuda:latest\nRUN pip install tensorflow==2.18.0\n", []),
        ("ARG BASE\nFROM $BASE\nRUN pip install tensorflow==2.18.0\n", []),
        (f"FROM {OLD}\nARG TF\nRUN pip install tensorflow==$TF\n", []),
        ("FROM ghcr.io/team/base:1\nRUN pip install tensorflow==2.18.0\n", []),
        # Variables.
        (
            "ARG CUDA=11.8.0\nARG OS=ubuntu22.04\nFROM nvidia/cuda:${CUDA}-runtime-$OS\n"
            "RUN pip install tensorflow==2.18.0\n",
            [CUDA],
        ),
        (f"ARG TF=2.18.0\nFROM {OLD}\nRUN pip install tensorflow==$TF\n", []),
        (f"ARG TF=2.18.0\nFROM {OLD}\nARG TF\nRUN pip install tensorflow==${{TF}}\n", BOTH),
        (f"FROM {OLD}\nENV TF 2.18.0\nRUN pip install tensorflow==${{TF:-2.10.1}}\n", BOTH),
        (f"FROM {OLD}\nRUN pip install tensorflow==${{TF:-2.18.0}}\n", BOTH),
        # Spellings.
        (
            f"from {OLD.replace('nvidia', 'nvcr.io/nvidia')}@sha256:{'0' * 64}\n"
            f"run python3 -m pip install -U pip && \\\n"
            "  # a comment\n\n  pip3 install --no-cache-dir numpy \\\n    Tensorflow==2.18.0\n",
            BOTH,
        ),
        (f'FROM {OLD}\nRUN ["python3", "-m", "pip", "install", "tensorflow==2.18.0"]\n', BOTH),
        (f'FROM {OLD}\nRUN ["bash", "-c", "apt-get update && pip install tensorflow==2.18.0"]\n', BOTH),
        (f"FROM {OLD}\nRUN <<EOF\nset -e\npip install tensorflow==2.18.0\nEOF\n", BOTH),
        (f"# escape=`\nFROM {OLD}\nRUN pip install `\n  tensorflow==2.18.0\n", BOTH),
        (
            f"FROM {OLD}\n"
            f"RUN --mount=type=cache,target=/root/.cache uv pip install --system tensorflow==2.18.0\n",
            BOTH,
        ),
        (f"FROM {OLD}\nRUN /opt/venv/bin/pip install tensorflow==2.18.0\n", BOTH),
        # A later command replaces an earlier one, and environments have their own packages.
        (f"FROM {OLD}\nRUN pip install tensorflow==2.18.0\nRUN pip install tensorflow==2.14.1\n", []),
        (f"FROM {NEW}\nRUN /a/bin/pip install tensorflow==2.18.0\nRUN /b/bin/pip install torch==2.4.1\n", []),
        # When pip installs TensorFlow later, it replaces a NumPy that TensorFlow does not accept.
        (
            "FROM python:3.10\nRUN pip install tensorflow==2.15.1\nRUN pip install numpy==2.0.0\n",
            ["known_issue"],
        ),
        ("FROM python:3.10\nRUN pip install numpy==2.0.0\nRUN pip install tensorflow==2.15.1\n", []),
        ("FROM python:3.10\nRUN pip install numpy==2.0.0 tensorflow==2.15.1\n", ["known_issue"]),
        # Stages.
        (f"FROM {OLD} AS base\nFROM base AS app\nRUN pip install tensorflow==2.18.0\n", BOTH),
        (
            f"FROM {OLD} AS build\nRUN python -m venv /venv && /venv/bin/pip install tensorflow==2.18.0\n"
            f"FROM {NEW}\nCOPY --from=build /venv /venv\n",
            [],
        ),
        (
            f"FROM {NEW} AS build\nRUN python -m venv /venv && /venv/bin/pip install tensorflow==2.18.0\n"
            f"FROM {OLD}\nCOPY --from=build /venv /venv\n",
            BOTH,
        ),
        (
            f"FROM {NEW} AS build\nRUN pip install tensorflow==2.18.0\nFROM {OLD}\n"
            f"COPY --from=build /model /model\n",
            [],
        ),
        # The system's own packages.
        (
            f"FROM {OLD.replace('-cudnn8', '')}\nRUN apt-get install -y libcudnn8=8.1.0.77-1+cuda11.2\n"
            "RUN pip install tensorflow==2.14.1\n",
            ["cudnn_older_than_built"],
        ),
        (
            f"FROM {OLD}\nRUN apt-get install -y cuda-toolkit-12-5 libcudnn9-cuda-12\n"
            f"RUN pip install tensorflow==2.18.0\n",
            [],
        ),
        (f"FROM {OLD}\nRUN conda install cudatoolkit=12 cudnn\nRUN pip install tensorflow==2.18.0\n", []),
        # Python.
        ("FROM python:3.13-slim\nRUN pip install tensorflow==2.15.1\n", ["python_without_wheel"]),
        ("FROM python:3.11-slim\nRUN pip install tensorflow==2.15.1\n", []),
        ("FROM python:3\nRUN pip install tensorflow==2.15.1\n", []),
        # Images of TensorFlow.
        ("FROM tensorflow/tensorflow:2.15.0-gpu\n", [CUDA, "cudnn_older_than_built"]),
        ("FROM tensorflow/tensorflow:2.18.0-gpu-jupyter\n", ["cudnn_of_another_major"]),
        ("FROM tensorflow/tensorflow:2.17.0-gpu\n", []),
        ("FROM tensorflow/tensorflow:2.18.0\n", []),
        ("FROM tensorflow/tensorflow:2.18.0\nENV CUDA_VISIBLE_DEVICES=-1\n", []),
        (
            "FROM tensorflow/tensorflow:2.18.0-jupyter\nENV NVIDIA_VISIBLE_DEVICES=all\n",
            ["cuda_libraries_not_installed"],
        ),
        (
            "FROM tensorflow/tensorflow:2.18.0\nENV NVIDIA_VISIBLE_DEVICES=all\n"
            "RUN pip install 'tensorflow[and-cuda]==2.18.0'\n",
            [],
        ),
        ("FROM tensorflow/tensorflow:latest-gpu\n", []),
        ("FROM nvcr.io/nvidia/tensorflow:25.02-tf2-py3\n", []),
        ("FROM tensorflow/tensorflow:2.18.0-gpu\nRUN pip install 'tensorflow[and-cuda]==2.18.0'\n", []),
        (
            "FROM tensorflow/tensorflow:2.15.0-gpu\nRUN pip install tensorflow==2.10.1\n",
            ["python_without_wheel"],
        ),
        (
            "FROM tensorflow/tensorflow:2.15.0-gpu-jupyter\nRUN pip install tensorflow==2.15.1\n",
            [CUDA, "cudnn_older_than_built"],
        ),
        # The flavor `base` has no libraries.
        (
            "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nRUN pip install tensorflow==2.18.0\n",
            ["cuda_libraries_not_installed"],
        ),
        ("FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nRUN pip install 'tensorflow[and-cuda]==2.18.0'\n", []),
        # Wheels that don't find all of NVIDIA's: nothing in the file tells the loader about them.
        ("FROM python:3.12-slim\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\n", ["library_path_not_set"]),
        ("FROM python:3.11\nRUN pip install 'tensorflow[and-cuda]==2.16.1'\n", ["library_path_not_set"]),
        ("FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.20.0'\n", []),
        (
            "FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\nENV LD_LIBRARY_PATH=/opt\n",
            [],
        ),
        (
            "FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\nRUN ldconfig\n",
            [],
        ),
        (
            "FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\nENTRYPOINT ['/start.sh']\n",
            [],
        ),
        # Only on the CPU: a fault where the file speaks of a GPU.
        (f"FROM {OLD}\nRUN pip install tensorflow-cpu==2.14.1\n", ["cpu_package"]),
        (f"FROM {OLD}\nRUN pip install tensorflow-cpu\n", ["cpu_package"]),
        ("FROM python:3.11\nRUN pip install tensorflow-cpu==2.14.1\n", []),
        ("FROM python:3.11\nRUN pip install tensorflow==2.18.0\n", []),
        (
            "FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install tensorflow==2.18.0\n",
            ["cuda_libraries_not_installed"],
        ),
        # Every release that one of these pins allows has no extra, and needs CUDA on the system.
        *(
            (f"FROM python:3.8-slim\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install '{pin}'\n", expected)
            for pin, expected in (
                ("tensorflow==2.13.1", ["cuda_libraries_not_installed"]),
                ("tensorflow-gpu==2.4.0", ["cuda_libraries_not_installed"]),
                ("tensorflow>=2.10,<2.13", ["cuda_libraries_not_installed"]),
                # Before 2.1, `tensorflow` may be the build without CUDA, which no base image helps.
                ("tensorflow==1.14.0", ["python_without_wheel"]),
            )
        ),
        ("FROM python:3.8-slim\nRUN pip install tensorflow==2.13.1\n", []),
        # The runtime adds no GPU.
        ("FROM python:3.8-slim\nENV NVIDIA_VISIBLE_DEVICES=void\nRUN pip install tensorflow==2.13.1\n", []),
        (
            "FROM python:3.8-slim\nENV NVIDIA_REQUIRE_CUDA=cuda>=11.8\nRUN apt-get install -y libcurl4\n"
            "RUN pip install tensorflow==2.13.1\n",
            ["cuda_libraries_not_installed"],
        ),
        # These fail whichever release pip chooses.
        (
            "FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install tensorflow\n",
            ["cuda_libraries_not_installed"],
        ),
        (
            "FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install 'tensorflow>=2.16'\n",
            ["cuda_libraries_not_installed"],
        ),
        ("FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install 'tensorflow[and-cuda]'\n", []),
        ("FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install tensorflow torch\n", []),
        (
            "FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install tensorflow\n"
            "RUN pip install 'tensorflow[and-cuda]'\n",
            [],
        ),
        ("FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install ./tensorflow.whl\n", []),
        (f"FROM {OLD}\nRUN pip install tensorflow\n", []),
        ("FROM python:3.11\nRUN pip install tensorflow\n", []),
        (
            "FROM python:3.11\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN apt-get install -y nvidia-cuda-toolkit\n"
            "RUN pip install tensorflow==2.18.0\n",
            [],
        ),
        ("FROM python:3.8\nRUN pip install tensorflow-gpu\n", ["package_removed"]),
        # Nothing to read.
        ("", []),
        ("RUN pip install tensorflow==2.18.0\n", []),
        ("FROM\nFROM a b c d\nRUN\nRUN [1]\nENV\n", []),
    ],
)
def test_a_dockerfile(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert codes(tmp_path, text) == expected


@pytest.mark.parametrize(
    "more",
    [
        "RUN apt-get install -y nvidia-cuda-toolkit",
        "COPY cuda_11.8.0_520.61.05_linux.run /tmp/\nRUN sh /tmp/*.run --silent --toolkit",
        "ADD cudnn-linux-x86_64-8.6.0.163_cuda11-archive.tar.xz /usr/local/",
        "RUN bash install_cuda.sh",
        "RUN --mount=type=bind,from=nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04,target=/m cp -r /m /",
        "RUN xargs apt-get install -y < cuda-packages.txt",
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64",
        "RUN pip install 'jax[cuda11_pip]==0.4.13'",
        "RUN pip install nvidia-cudnn-cu11==8.6.0.163",
    ],
)
def test_an_image_may_have_cuda_that_its_base_lacks(tmp_path: Path, more: str) -> None:
    text = "FROM python:3.8-slim\nENV NVIDIA_VISIBLE_DEVICES=all\n{}RUN pip install tensorflow==2.13.1\n"
    assert codes(tmp_path, text.format("")) == ["cuda_libraries_not_installed"]
    assert codes(tmp_path, text.format(f"{more}\n")) == []


@pytest.mark.parametrize(
    ("base", "instead"),
    [
        ("python:3.8-slim", ""),
        ("python:3.11-slim", ", or require tensorflow[and-cuda]==2.20.0, which brings its own"),
        # Its Python is not known.
        ("ubuntu:20.04", ""),
    ],
)
def test_a_release_without_the_extra_needs_another_base_image(
    tmp_path: Path, base: str, instead: str
) -> None:
    text = f"FROM {base}\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install tensorflow==2.13.1\n"
    [finding] = found(write(tmp_path, "Dockerfile", text))
    assert "so CUDA 11.8 and cuDNN 8.6 must be on the system" in finding.message
    such = "or newer ones of the same major versions, such as nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
    assert finding.fix == f"Use a base image with CUDA 11.8 and cuDNN 8.6, {such}{instead}."


def test_a_fix_names_an_image_that_exists_and_is_new_enough(tmp_path: Path) -> None:
    text = "FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04\nRUN pip install tensorflow==2.18.0\n"
    fixes = {finding.fix for finding in found(write(tmp_path, "Dockerfile", text))}
    # The image of CUDA 12.5 has cuDNN 9.2, which TensorFlow 2.18 rejects.
    assert fixes == {
        "Use a base image with CUDA 12.5 and cuDNN 9.3.0, or newer ones of the same major versions, such as"
        " nvidia/cuda:12.6.1-cudnn-runtime-ubuntu22.04."
        " tensorflow[and-cuda]==2.18.0 brings the libraries itself."
    }
    mended = text.replace("11.8.0-cudnn8", "12.6.1-cudnn")
    assert found(write(tmp_path, "Dockerfile", mended)) == []


def test_the_line_that_tells_the_loader_is_a_fix(tmp_path: Path) -> None:
    text = "FROM python:3.12\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\n"
    [finding] = found(write(tmp_path, "Dockerfile", text))
    line = finding.fix.partition(": ")[2]
    assert line.startswith("RUN ls -d ") and line.endswith("&& ldconfig")
    assert found(write(tmp_path, "Dockerfile", f"{text}{line}\n")) == []


def test_a_name_or_an_option_says_that_it_is_for_a_gpu(tmp_path: Path) -> None:
    text = "FROM python:3.11\nRUN pip install tensorflow==2.18.0\n"
    assert codes(tmp_path, text, "gpu.Dockerfile") == ["cuda_libraries_not_installed"]
    path = write(tmp_path, "Dockerfile.app", text)
    assert short(path) == []
    assert short(path, for_gpu=True) == ["2:17 cuda_libraries_not_installed"]


def test_places(tmp_path: Path) -> None:
    text = (
        f"ARG V=1\nFROM {OLD} AS x\nRUN true \\\n  # torch==2.4.1\n  && pip install \\\n"
        "    tensorflow==2.15.1 torch==2.4.1\n"
    )
    path = write(tmp_path, "Dockerfile", text.replace(OLD, NEW).replace("2.15.1", "2.18.0"))
    assert short(path) == ["6:24 mixed_frameworks"]
    path = write(tmp_path, "Dockerfile", text.replace(" torch==2.4.1\n", "\n"))
    assert short(path) == ["2:6 cuda_of_another_version"]


def test_requirements_of_the_build_context_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "requirements.txt", "tensorflow==2.18.0\n")
    dockerfile = f"FROM {OLD}\nCOPY requirements.txt /app/\nRUN pip install -r /app/requirements.txt\n"
    write(tmp_path, "docker/Dockerfile", dockerfile)
    monkeypatch.chdir(tmp_path)
    assert short(Path("docker/Dockerfile")) == ["1:6 cuda_of_another_version", "1:6 cudnn_of_another_major"]


def test_files_outside_of_the_build_context_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "secret.txt", "tensorflow==2.18.0\n")
    path = write(
        tmp_path,
        "project/Dockerfile",
        f"FROM {OLD}\nCOPY ../secret.txt .\nRUN pip install -r ../secret.txt\n",
    )
    monkeypatch.chdir(path.parent)
    assert short(Path("Dockerfile")) == []


def test_a_comment_above_an_instruction_silences(tmp_path: Path) -> None:
    text = f"FROM {OLD}\nRUN pip install tensorflow==2.18.0\n"
    assert codes(tmp_path, f"# validator: ignore[{CUDA},cudnn_of_another_major]\n{text}") == []


LOCK = """\
[[package]]
name = "tensorflow"
version = "2.18.0"

[[package]]
name = "tensorflow-cpu"
version = "2.18.0"

[[package]]
name = "ours"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "tensorflow" }]

[package.optional-dependencies]
cpu = [{ name = "tensorflow-cpu" }]
"""
PROJECT = """\
[project]
dependencies = ["numpy"]
[project.optional-dependencies]
gpu = ["tensorflow==2.18.0"]
[dependency-groups]
dev = ["tensorflow==2.18.0"]
"""


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("COPY uv.lock pyproject.toml ./\nRUN uv sync", BOTH),
        ("COPY pyproject.toml uv.lock* /app/\nRUN cd /app && uv --no-cache sync --frozen --no-dev", BOTH),
        ("WORKDIR /app\nRUN --mount=type=bind,source=uv.lock,target=uv.lock uv sync", BOTH),
        (
            "RUN --mount=type=cache,target=/c --mount=type=bind,target=/src uv sync --project /src",
            BOTH,
        ),
        ("ENV HOME_DIR=/app\nWORKDIR $HOME_DIR\nCOPY . .\nRUN uv sync --directory=/app", BOTH),
        # The lock is somewhere else, or nothing says that it is there.
        ("COPY uv.lock /app/\nRUN uv sync", []),
        ("RUN uv sync", []),
        ("WORKDIR $WHERE\nCOPY uv.lock /app/\nRUN uv sync", []),
        ("COPY --from=ghcr.io/team/base:1 /app/uv.lock ./\nRUN uv sync", []),
        # Only a part of it is installed.
        ("COPY . .\nRUN uv sync --only-group docs", []),
        ("COPY . .\nRUN uv sync --no-install-package tensorflow", []),
        ("COPY . .\nRUN uv lock --check", []),
        ("COPY . .\nRUN uv run sync", []),
        # A project without a lock: its extras and groups count where a command names them.
        ("COPY pyproject.toml .\nRUN uv sync --no-dev", []),
        ("COPY pyproject.toml .\nRUN uv sync", BOTH),
        ("COPY pyproject.toml .\nRUN uv sync --no-dev --extra gpu", BOTH),
        ("COPY pyproject.toml .\nRUN uv sync --no-dev --extra=cpu", []),
        ("COPY pyproject.toml .\nRUN poetry install --extras 'gpu cpu'", BOTH),
        ("COPY pyproject.toml .\nRUN pdm install --prod -G gpu", BOTH),
        ("COPY . /app\nRUN pip install -e /app[gpu]", BOTH),
        ("COPY . /app\nRUN pip install --target /app '/app[gpu]'", BOTH),
        ("COPY . /app\nRUN pip install --target /app numpy", []),
        ("COPY . .\nRUN pip install .", []),
        ("COPY pyproject.toml .\nRUN uv pip install -r pyproject.toml", []),
        # Packages that are added to a project.
        ("RUN uv add tensorflow==2.18.0", BOTH),
        ("RUN poetry add tensorflow@2.18.0", BOTH),
        ("RUN poetry add tensorflow@^2.10", []),
        ("RUN uv add --group tensorflow==2.18.0 numpy", []),
        ("COPY pyproject.toml .\nRUN uv sync --no-dev && uv add 'tensorflow==2.18.0'", BOTH),
        # A stage that takes what another one installed.
        (f"WORKDIR /app\nCOPY . .\nRUN uv sync\nFROM {NEW}\nCOPY --from=0 /app/.venv /app/.venv", []),
        (f"WORKDIR /app\nCOPY . .\nRUN uv sync\nFROM {OLD}\nCOPY --from=0 /app /app", BOTH),
        (f"WORKDIR /app\nCOPY . .\nRUN uv sync\nFROM {OLD}\nCOPY --from=0 /app/models /app", []),
        (
            f"ENV UV_PROJECT_ENVIRONMENT=/env\nCOPY . .\nRUN uv sync\nFROM {OLD}\nCOPY --from=0 /env /env",
            BOTH,
        ),
        (f"WORKDIR /app\nCOPY . .\nRUN uv sync\nFROM {OLD}\nRUN pip install numpy", BOTH),
    ],
)
def test_what_the_files_of_a_project_install(tmp_path: Path, commands: str, expected: list[str]) -> None:
    write(tmp_path, "pyproject.toml", PROJECT)
    write(tmp_path, "uv.lock", LOCK)
    assert codes(tmp_path, f"FROM {OLD}\n{commands}\n") == expected


def test_an_environment_of_conda_in_an_image(tmp_path: Path) -> None:
    text = "dependencies:\n- python=3.10\n{}- pip:\n  - tensorflow==2.18.0\n"
    dockerfile = (
        f"FROM {OLD}\nCOPY environment.yml /tmp/\nRUN mamba env create -n tf -f /tmp/environment.yml\n"
    )
    write(tmp_path, "environment.yml", text.format(""))
    assert codes(tmp_path, dockerfile) == BOTH
    # Its own CUDA comes first.
    write(tmp_path, "environment.yml", text.format("- cudatoolkit=12.5\n"))
    assert codes(tmp_path, dockerfile) == []


def test_the_nearest_build_context_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "uv.lock", LOCK.replace("2.18.0", "2.14.1"))
    write(tmp_path, "api/uv.lock", LOCK)
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "api/Dockerfile", f"FROM {OLD}\nCOPY uv.lock .\nRUN uv sync\n").relative_to(
        tmp_path
    )
    assert [one.code for one in found(path)] == BOTH
    path.write_text(f"FROM {OLD}\nCOPY api/uv.lock .\nRUN uv sync\n")
    assert [one.code for one in found(path)] == BOTH
    (tmp_path / "api/uv.lock").unlink()
    assert found(path) == []
