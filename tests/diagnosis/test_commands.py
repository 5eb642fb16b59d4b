"""Commands that people ran, in all the places where they write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.diagnosis import commands, text
from validator.diagnosis.catalogue import COMMAND, catalogue
from validator.diagnosis.observations import Certainty
from validator.diagnosis.observe import observe

from .facts_read import facts_read


def read(line: str) -> list[tuple[str, dict[str, str]]]:
    return [(one.kind, dict(one.values)) for one in commands.read_commands(line)]


def run(gpus: str, image: str = "", engine: str = "docker") -> list[tuple[str, dict[str, str]]]:
    values = {"gpus": gpus, "engine": engine}
    return [("docker_run", {**values, "image": image} if image else values)]


TF = "tensorflow/tensorflow:2.15.0-gpu"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"docker run -it --rm {TF} bash", run("no", TF)),
        (f"$ sudo docker run --gpus all -it {TF} bash", run("yes", TF)),
        (f"docker run --gpus=all {TF}", run("yes", TF)),
        (f"docker run --gpus '\"device=0\"' {TF}", run("yes", TF)),
        (f"docker run --gpus 0 {TF}", run("no", TF)),
        (f"docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all {TF}", run("yes", TF)),
        (f"docker run --runtime=runc {TF}", run("no", TF)),
        (f"docker run -v /data:/data -p 8888:8888 --shm-size 1g {TF} python x.py --gpus all", run("no", TF)),
        ("podman run --device nvidia.com/gpu=all image", run("yes", "image", "podman")),
        ("docker run --device /dev/nvidia0 image", run("yes", "image")),
        ("nvidia-docker run -it image", run("yes", "image", "nvidia-docker")),
        (f"I ran `docker run -it {TF}` and it printed", run("no", TF)),
        (f"We start it with docker run --rm {TF} and see no GPU", run("no", TF)),
        ("docker run does not find the GPU", []),
        ("after docker run the GPU is gone", []),
        ("use docker run --gpus all", run("yes")),
        ("docker compose run trainer", []),
        ("apptainer exec --nv tf.sif python train.py", run("yes", "tf.sif", "apptainer")),
        ("singularity run -B /data tf.sif", run("no", "tf.sif", "singularity")),
        (
            "$ apptainer exec docker://tensorflow/tensorflow:2.15.0-gpu python x.py",
            run("no", "docker://tensorflow/tensorflow:2.15.0-gpu", "apptainer"),
        ),
        ("pip install tensorflow", [("pip_install", {"name": "tensorflow"})]),
        (
            '$ python3 -m pip install "tensorflow[and-cuda]==2.15.1"',
            [("pip_install", {"name": "tensorflow", "extra": "and-cuda", "version": "2.15.1"})],
        ),
        (
            "!pip install -q -U tensorflow_cpu==2.18.0 numpy",
            [
                ("pip_install", {"name": "tensorflow-cpu", "version": "2.18.0"}),
                ("pip_install", {"name": "numpy"}),
            ],
        ),
        (
            'RUN pip install --no-cache-dir "tensorflow<2.11" && rm -rf /tmp',
            [("pip_install", {"name": "tensorflow", "spec": "<2.11"})],
        ),
        (
            "uv pip install --index-url https://example.org/simple tensorflow==2.16.1",
            [("pip_install", {"name": "tensorflow", "version": "2.16.1"})],
        ),
        (
            "pip install 'tensorflow==2.16.1' 'numpy==2.0.0'",
            [
                ("pip_install", {"name": "tensorflow", "version": "2.16.1"}),
                ("pip_install", {"name": "numpy", "version": "2.0.0"}),
            ],
        ),
        ("uv add tensorflow", [("pip_install", {"name": "tensorflow"})]),
        ("I did pip install tensorflow and then torch failed", [("pip_install", {"name": "tensorflow"})]),
        ("conda install tensorflow", [("conda_install", {"name": "tensorflow"})]),
        (
            "(base) $ conda install -y -c conda-forge tensorflow-gpu=2.15.0=cuda120py311h5cbd639_0 cudnn",
            [
                (
                    "conda_install",
                    {
                        "name": "tensorflow-gpu",
                        "version": "2.15.0",
                        "build": "cuda120py311h5cbd639_0",
                        "channel": "conda-forge",
                    },
                ),
                ("conda_install", {"name": "cudnn", "channel": "conda-forge"}),
            ],
        ),
        (
            "mamba create -n tmp python=3.9 tensorflow=2.11",
            [
                ("conda_install", {"name": "python", "version": "3.9"}),
                ("conda_install", {"name": "tensorflow", "version": "2.11"}),
            ],
        ),
        ("it is a pipeline to install tensorflow", []),
    ],
)
def test_a_command(line: str, shown: list[tuple[str, dict[str, str]]]) -> None:
    assert read(line) == shown


@pytest.mark.parametrize(
    "form", ["{}", "$ {}", "user@host:~$ {}", "(tf) PS C:\\x> {}", "RUN {}", "!{}", "- {}", "`{}`"]
)
def test_a_command_is_the_same_wherever_it_stands(form: str) -> None:
    line = form.format("pip install tensorflow==2.16.1")
    (shown,) = commands.read_commands(line)
    assert shown.typed
    assert shown.values == {"name": "tensorflow", "version": "2.16.1"}
    assert COMMAND in {message.kind for message in catalogue().matches(line)}


def test_a_command_over_several_lines_is_read_as_one() -> None:
    pasted = (
        "What I did\ndocker run -it \\\n   --gpus all \\\n  tensorflow/tensorflow:2.15.0-gpu \\\n  bash\n"
    )
    (shown,) = observe(text.read_text(pasted), catalogue()).of("docker_run")
    assert (shown.values["gpus"], shown.where) == ("yes", "line 2")


def test_a_command_that_was_also_tried_is_only_mentioned() -> None:
    found = observe(
        text.read_text("No GPU.\nI also tried pip install tensorflow-cpu without luck\n"), catalogue()
    )
    assert not found.has("pip_install")
    (shown,) = found.mentioned("pip_install")
    assert shown.certainty is Certainty.MENTIONED


@pytest.mark.parametrize(
    ("command", "extra"),
    [("pip install tensorflow", False), ("pip install tensorflow[and-cuda]", True), ("ls", None)],
)
def test_the_extra_is_known_from_the_command(command: str, extra: bool | None) -> None:
    assert facts_read(observe(text.read_text(f"Hello\n{command}\n"), catalogue())).extra is extra


@given(st.text(alphabet="docker pip install run conda-['\"\\;&|`$<>=.:/", max_size=80))
def test_any_text_can_be_read(line: str) -> None:
    for prefix in ("docker run ", "pip install ", "conda install ", "apptainer exec "):
        for shown in commands.read_commands(prefix + line):
            assert set(shown.values) <= commands.KINDS[shown.kind]


# Compose files and Kubernetes manifests, whole and in the middle of other words.


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
    for one, _ in commands.read_manifests(list(text.read_text("\n".join(["x", *pasted])))):
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
