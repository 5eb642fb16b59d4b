"""Test the script for Apptainer, with a program in its place that parses its options.

Debian 12 has no Apptainer, and that of Debian sid needs a newer glibc than Debian 12 has. The options were
tried by hand with Apptainer 1.4.5: it accepts them, and those of a Slurm job; with --no-eval, the hostile
values below arrive as they are, and without it a shell evaluates them.
"""

from __future__ import annotations

import csv
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given

from validator.delivery.start import Place, write_apptainer

from . import starts
from .fake_apptainer import Called, install, read_call
from .starts import HOSTILE, IMAGE, start


def call(script: str, directory: Path) -> Called:
    """Run a script with the fake program, and return how that was called."""
    programs = install(directory)
    file = directory / "start.sh"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["sh", str(file)],
        env={"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": "leak"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return read_call(done.stdout)


@pytest.mark.service
def test_a_shell_gives_apptainer_every_value(tmp_path: Path) -> None:
    directory = Path("/tmp", "a 'b' \"c\" $d:e,f\n`id`")
    environment = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    made = start(directory=directory, command=tuple(HOSTILE), environment=environment)
    found = call(write_apptainer(made), tmp_path)
    assert found.image == f"docker://{IMAGE.reference}"
    assert found.command == HOSTILE
    assert found.environment.items() >= environment.items()
    assert found.environment["KERAS_HOME"] == "/workspace/.cache/keras"
    assert found.options["pwd"] == "/workspace"
    assert found.flags == {"nv", "no-eval", "cleanenv"}
    assert list(csv.reader(StringIO(found.options["mount"], newline=""), strict=True)) == [
        ["type=bind", f"source={directory}", "destination=/workspace"]
    ]


@pytest.mark.service
def test_an_image_without_cuda_and_a_registry_without_tls(tmp_path: Path) -> None:
    made = start(host=None, devices=None, image=starts.with_image(plain_http=True, port=8888))
    text = write_apptainer(made)
    found = call(text, tmp_path)
    assert found.flags == {"no-eval", "cleanenv", "no-https"}
    assert (found.command, found.environment, found.options) == ([], {}, {})
    assert "JupyterLab answers on port 8888 of this machine" in text


@pytest.mark.service
def test_an_image_of_an_oci_layout(tmp_path: Path) -> None:
    image = starts.with_image(place=Place.LAYOUT, reference="/a 'b' $c/d:1", digest="sha256:1")
    text = write_apptainer(start(image=image, command=("python",)))
    found = call(text, tmp_path)
    assert (found.image, found.command) == ("oci:/a 'b' $c/d@sha256:1", ["python"])
    assert "# oci: Apptainer converts the image in this directory" in text


def test_the_script_says_what_is_not_needed() -> None:
    assert "Nothing is needed for your user" in write_apptainer(start())


@given(starts.directories, starts.commands, starts.variables)
def test_every_value_survives(directory: Path, command: tuple[str, ...], variables: dict[str, str]) -> None:
    made = start(directory=directory, command=command, environment=variables)
    found = starts.shell_words(write_apptainer(made))
    assert tuple(found[len(found) - len(command) :]) == command
    for name, value in variables.items():
        assert f"APPTAINERENV_{name}={value}" in found
