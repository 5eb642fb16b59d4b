"""The text around the relevant lines: the tracker's form, and lines without information."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from .console import Console, Facts
from .wording_tools import plain

# The fields of TensorFlow's issue form: as a list up to mid 2022, as headings since.
LABELS = {
    "os": "OS platform and distribution",
    "tensorflow": "TensorFlow version",
    "python": "Python version",
    "cuda": "CUDA version",
    "cudnn": "cuDNN version",
    "gpu": "GPU model and memory",
    "driver": "NVIDIA driver version",
    "docker": "Docker version",
    "image": "Docker image",
    "installer": "Installed using",
    "torch": "PyTorch version",
    "transformers": "transformers version",
    "keras": "Keras version",
    "protobuf": "protobuf version",
    "framework": "Framework",
    "nvidia_settings": "nvidia-settings version",
    "target": "XLA_TARGET",
    "batch": "Batch size",
    "mode": "Mode",
    "model": "Model",
    "place": "Where",
    "packages": "Installed nvidia packages",
}  # fmt: skip
SENTENCES = {
    "event": "It began after this: {}.",
    "symptom": "What happens: {}.",
    "call": "I get it in {}.",
    "note": "By the way: {}.",
}


def form(facts: Facts) -> list[str]:
    """Return the person's description of the environment, in the form that the tracker had then."""
    told = [(LABELS[key], plain(value)) for key, value in facts.context.items() if key in LABELS]
    if facts.reported >= "2022-06" and facts.source.startswith("tensorflow/tensorflow"):
        return [line for label, value in told for line in (f"### {label}", "", value, "")]
    if facts.source.startswith("tensorflow/"):
        head = ["**System information**"]
        return [*head, *(f"- {label}: {value}" for label, value in told), ""] if told else []
    return [*(f"{label}: {value}" for label, value in told), ""] if told else []


def sentences(facts: Facts) -> list[str]:
    return [text.format(plain(facts.context[key])) for key, text in SENTENCES.items() if key in facts.context]


def commands(facts: Facts) -> list[str]:
    """Return the commands that the person tells of, as typed."""
    lines = []
    command, image = facts.context.get("command", ""), plain(facts.context.get("image", ""))
    if "docker run" in command:
        flags = " --gpus all" if "--gpus all" in command else ""
        lines.append(f"$ docker run{flags} -it --rm {image}")
    if "mpirun" in command:
        lines.append("# mpirun --allow-run-as-root -np 4 -x NCCL_DEBUG=INFO python tensorflow_mnist.py")
    if "venv" in command:
        lines.append(
            "(venv) $ python3 -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\""
        )
    env = facts.context.get("env", "")
    if env.startswith("TF_XLA_FLAGS"):
        flag = next(str(seen["flag"]) for seen in facts.observed if "flag" in seen)
        path = "/home/user/lib/python2.7/site-packages/tensorflow/compiler/xla"
        lines.append(f"$ export TF_XLA_FLAGS=--{flag}={path}")
    elif env:
        lines.append(f"$ {env} python src/train.py")
    if "conda environment" in facts.context.get("tensorflow", ""):
        version = facts.context["tensorflow"].split()[0]
        lines += [
            "$ conda create -n tf python=3.8",
            "$ conda activate tf",
            f"(tf) $ pip install tensorflow=={version}",
        ]
    installer = facts.context.get("installer", "")
    if installer.startswith("conda install"):
        package, version = installer.split()[-2:]
        lines.append(f"$ conda install {package}={version}")
    return lines


def pip_lines(c: Console, count: int) -> list[str]:
    names = [
        "requests",
        "pillow",
        "tqdm",
        "matplotlib",
        "cycler",
        "kiwisolver",
        "joblib",
        "pyyaml",
        "idna",
        "six",
    ]
    return [
        f"Requirement already satisfied: {c.random.choice(names)} in {c.packages.rstrip('/')} (from -r"
        " requirements.txt"
        f" (line {line}))"
        for line in range(1, count + 1)
    ]


def apt_lines(c: Console, count: int) -> list[str]:
    names = ["libglib2.0-0", "libsm6", "git-lfs", "ffmpeg", "libxext6", "tmux", "unzip", "htop"]
    return [
        f"Get:{line} http://archive.ubuntu.com/ubuntu jammy/main amd64 {c.random.choice(names)} amd64"
        f" {c.random.randint(1, 9)}.{c.random.randint(0, 40)}-1ubuntu{c.random.randint(1, 4)}"
        f" [{c.random.randint(8, 900)} kB]"
        for line in range(1, count + 1)
    ]


def loading_lines(c: Console, count: int) -> list[str]:
    return [
        f"{c.tick():%Y-%m-%d %H:%M:%S},{c.random.randint(100, 999)} - INFO - dataset - read shard"
        f" {shard:05d}-of-{count:05d}:"
        f" {c.random.randint(900, 9000)} examples"
        for shard in range(count)
    ]


def argument_lines(c: Console, count: int) -> list[str]:
    names = [
        "learning_rate",
        "num_layers",
        "hidden_size",
        "warmup_steps",
        "seed",
        "save_every",
        "clip_norm",
        "vocab_size",
    ]
    return [
        f"  {c.random.choice(names)}_{line}: {c.random.choice([0.1, 0.9, 12, 64, 1000])}"
        for line in range(count)
    ]


def summary_lines(c: Console, count: int) -> list[str]:
    lines = ['Model: "model"', "_" * 65, f"{'Layer (type)':<29}{'Output Shape':<26}Param #", "=" * 65]
    for layer in range(count // 2):
        width = c.random.choice([16, 32, 64])
        lines += [f"{f'block_{layer} (Dense)':<29}{f'(None, {width})':<26}{width * 33}", "_" * 65]
    return lines


NOISE: Mapping[str, Callable[[Console, int], list[str]]] = {
    "pip": pip_lines,
    "apt": apt_lines,
    "loading": loading_lines,
    "arguments": argument_lines,
    "summary": summary_lines,
}


def noise(c: Console, chance: random.Random) -> list[str]:
    """None, some twenty, or up to two hundred lines that tell nothing."""
    count = chance.choice([0, 0, 12, 30, 90])
    if not count:
        return []
    return NOISE[chance.choice(sorted(NOISE))](c, count)
