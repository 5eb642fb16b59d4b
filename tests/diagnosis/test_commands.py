"""Commands that people ran, in all the places where they write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.diagnosis import commands, text
from validator.diagnosis.messages import COMMAND, catalogue
from validator.diagnosis.observations import Certainty
from validator.diagnosis.read_log import observe

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
