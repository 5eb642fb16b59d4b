"""Test the batch script for Slurm: what it requests, and how a shell parses it.

`tests/fleet/slurm/test_batch_script.py` submits one to a real cluster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from validator.delivery.start import Place, write_slurm
from validator.errors import InputError

from . import starts
from .starts import start

TRAIN = ("python", "train.py")


def requests(script: str) -> list[str]:
    """Return the options that sbatch reads: those before the first line that is no comment."""
    lines = script.splitlines()
    end = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[end:] if line.startswith("#SBATCH")]
    return [line.removeprefix("#SBATCH ") for line in lines[:end] if line.startswith("#SBATCH")]


def test_the_gpus_of_the_host_are_requested() -> None:
    text = write_slurm(start("h100", "h100", command=TRAIN))
    assert "--gres=gpu:2" in requests(text)
    assert "GPUs of compute capability 9.0 with driver branch 580" in " ".join(
        text.replace("\n#", "").split()
    )
    assert "--cpus-per-task=4" in requests(text)
    without = write_slurm(start(host=None, devices=None, command=TRAIN))
    assert not [line for line in requests(without) if "gres" in line]
    assert "CUDA_VISIBLE_DEVICES" not in without and "--nv" not in without


def test_the_gpus_of_the_job_reach_the_container() -> None:
    """Apptainer removes all variables of the host, also the one with which Slurm says the GPUs."""
    assert 'export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"' in write_slurm(
        start(command=TRAIN)
    )


def test_a_job_needs_a_command() -> None:
    with pytest.raises(InputError, match="a batch job needs a command"):
        write_slurm(start())
    jupyter = write_slurm(start(image=starts.with_image(port=8888)))
    assert jupyter.splitlines()[-1].endswith(starts.IMAGE.reference)


def test_the_directory_of_an_image_has_to_be_on_the_node() -> None:
    image = starts.with_image(place=Place.LAYOUT, reference="/shared/images:1", digest="sha256:1")
    text = write_slurm(start(image=image, command=TRAIN))
    assert text.splitlines()[-1].endswith(" oci:/shared/images@sha256:1 python train.py")
    assert "# The directory of the image has to be there on the node as well.\n" in text


@given(starts.directories, starts.commands.filter(bool), starts.variables)
def test_every_value_survives(directory: Path, command: tuple[str, ...], variables: dict[str, str]) -> None:
    text = write_slurm(start(directory=directory, command=command, environment=variables))
    assert len(requests(text)) == 7
    words = starts.shell_words(text)
    assert tuple(words[-len(command) :]) == command
    assert words[words.index("cd") + 2] == str(directory)
    for name, value in variables.items():
        assert f"APPTAINERENV_{name}={value}" in words


@pytest.mark.service
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    made = start(
        directory=Path("/a 'b'\n$c"), command=tuple(starts.HOSTILE), environment={"A": "x 'y' \"z\""}
    )
    file.write_text(write_slurm(made), encoding="utf-8")
    program = Path(sys.executable).with_name("shellcheck")
    # What looks like a variable or an escape in single quotes is a value of the user.
    done = subprocess.run([program, "--exclude=SC2016,SC1003", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
