"""Texts written after real ones name the cause that their writers would name, in `readers/`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml

from validator.diagnosis import causes, diagnose_file
from validator.model.diagnosis import Diagnosis

from .collection import HERE

READERS = HERE / "readers"
ROWS = yaml.safe_load((READERS / "index.yaml").read_text(encoding="utf-8"))
#: In the index for what claims no cause: nothing is wrong, and lines that no cause fits.
NO_CAUSE = ("benign_only", "unknown")
#: Text to the reason why the diagnosis doesn't name its cause first.
KNOWN_MISSES: Mapping[str, str] = {}


def diagnosed(file: str) -> Diagnosis:
    with (READERS / file).open("rb") as stream:
        return diagnose_file(stream, file)


def answer(diagnosis: Diagnosis) -> str:
    if diagnosis.causes:
        return diagnosis.causes[0].code
    return "unknown" if diagnosis.unknown else "benign_only"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_the_cause_comes_first(row: dict[str, str]) -> None:
    got = answer(diagnosed(row["file"]))
    if row["file"] in KNOWN_MISSES:
        assert got != row["cause"], f"{row['file']} is right now: take it off the known misses"
    else:
        assert got == row["cause"]


def test_the_index_and_the_texts_are_the_same() -> None:
    assert [row["file"] for row in ROWS] == sorted(path.name for path in READERS.glob("*.txt"))
    assert {row["cause"] for row in ROWS} <= {entry.code for entry in causes()} | set(NO_CAUSE)
    assert set(KNOWN_MISSES) <= {row["file"] for row in ROWS}


def remedies(file: str) -> str:
    """What the remedies of the first cause say and do."""
    first = diagnosed(file).causes[0]
    return "\n".join(line for remedy in first.remedies for line in (remedy.says, *remedy.commands))


@pytest.mark.parametrize(
    ("file", "there", "not_there"),
    [
        ("tf24-cudart-win.txt", ["CUDA 11.2 and cuDNN 8.1", "wsl --install"], ["ldconfig", "Or install"]),
        ("cudnn-initialize-oom-24.txt", ["# in the program"], ["python -c"]),
        ("docker-no-driver.txt", ["apt-get install -y nvidia-container-toolkit"], ["Kubernetes"]),
        ("wsl-libcuda.txt", ["export LD_LIBRARY_PATH="], ["cudatoolkit="]),
        ("blackwell-5090.txt", ["25.02-tf2-py3"], ["newer release", "cudnn-cu12"]),
        ("sm-35-old.txt", ["take TensorFlow 2.14.1"], ["Blackwell", "25.02"]),
        ("colab-no-runtime.txt", ["Change runtime type"], ["apt-get", "mokutil"]),
        ("cuda-too-new.txt", ["is no cure"], ["-e NVIDIA_DISABLE_REQUIRE"]),
        ("nvml-unknown-cgroup.txt", ["docker restart"], ["modprobe"]),
        ("tf-keras-patch.txt", ["tf_keras~=2.18.0"], ["keras~=2.18.1", "Before TensorFlow 2.16"]),
        ("glibc.txt", ["docker run"], ["uv venv"]),
        ("shadow-file.txt", ['mv "/home/u/proj/tensorflow.py"'], ["uninstall"]),
        ("held-memory.txt", ["kill 3141"], []),
        ("tensorflow-not-installed-420.txt", ['pip install "tensorflow"'], ["and-cuda"]),
        ("visible-devices-misset-416.txt", ["--gres=gpu:1"], ["unset CUDA_VISIBLE_DEVICES"]),
        ("libcuda-wrong-or-not-found-418.txt", ["none for Linux inside"], ["ubuntu-drivers"]),
        ("container-no-gpu-access-421.txt", ["nvidia.com/gpu: 1"], ["apt-get", "docker run"]),
        ("compat-geforce.txt", ["LD_LIBRARY_PATH"], ["rmmod"]),
    ],
)
def test_the_remedies_fit_what_was_read(file: str, there: list[str], not_there: list[str]) -> None:
    said = remedies(file)
    assert [words for words in there if words not in said] == []
    assert [words for words in not_there if words in said] == []


def test_what_is_likely_is_called_so() -> None:
    assert diagnosed("negation.txt").causes[0].headline.startswith("Likely: ")
    assert diagnosed("tf-works-slow.txt").causes[0].headline.startswith("Possibly: ")
    assert diagnosed("oom.txt").causes[0].headline == diagnosed("oom.txt").causes[0].title


def test_a_line_counts_once() -> None:
    factories = next(
        each for each in diagnosed("harmless-only.txt").harmless if each.code == "factory_notice"
    )
    assert [(each.where, each.count) for each in factories.evidence] == [
        ("line 2", 1),
        ("line 3", 1),
        ("line 4", 1),
    ]
    assert all(each.count == 1 for each in diagnosed("numpy2.txt").causes[0].evidence)
