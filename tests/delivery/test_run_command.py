"""Run the run command: check the line that it prints and the container that it starts."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK

from ..emulation import cdi
from .commands import HERE, run
from .shelf import H100, Shelf
from .values import TAG

#: Prints its directory, user and arguments, leaves a file behind, and exits with 7.
PROGRAM = """
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words)
{
    char here[4096];
    FILE *file = fopen("left", "w");
    printf("%s\\n%d:%d\\n", getcwd(here, sizeof here), getuid(), getgid());
    printf("%s\\n", access("/gpu", R_OK) ? "no GPU" : "GPU");
    for (int i = 1; i < count; i++) printf("%s\\n", words[i]);
    if (file) fclose(file);
    return 7;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    (directory / "program.c").write_text(PROGRAM, encoding="ascii")
    subprocess.run(["gcc", "-O1", "-static", "-o", "program", "program.c"], cwd=directory, check=True)
    return directory / "program"


def test_run_prints_the_line_and_the_reason_for_each_flag(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    done = run(
        shelf,
        "run",
        "--fixtures",
        *HERE,
        "--gpu",
        "h200",
        "--devices",
        "gpus",
        "--no-xla-cache",
        "--",
        "python",
        "-c",
        "print('a b')",
    )
    assert done.code == EXIT_OK, done.err
    assert shlex.split(done.out, comments=True) == [
        "docker", "run", "--rm", "--gpus", "all", "--shm-size", "1g", "--ulimit", "memlock=-1",
        f"{shelf.registry.repository}@{digest}", "python", "-c", "print('a b')",
    ]  # fmt: skip
    for flag in ("--rm", "--gpus all", "--shm-size 1g", "--ulimit memlock=-1"):
        assert f"\n# {flag}: " in done.out
    assert f"# {shelf.registry.repository}:{TAG}\n" in done.out
    covered = "The certificate covers hosts with driver branch 580 and GPUs of compute capability 9.0"
    assert covered in " ".join(done.out.replace("\n#", "").split())


def test_run_publishes_the_port_of_jupyterlab(shelf: Shelf) -> None:
    """Only if the image's own command is started, and no other port that an image names."""
    shelf.certify(shelf.push(ports=["22/tcp", "8888/tcp"]), H100)
    options = ("run", "--fixtures", *HERE, "--devices", "gpus")
    done = run(shelf, *options)
    line = shlex.split(done.out, comments=True)
    assert [line[at + 1] for at, word in enumerate(line) if word == "--publish"] == ["127.0.0.1:8888:8888"]
    assert "JupyterLab answers at http://127.0.0.1:8888/lab" in done.err
    done = run(shelf, *options, "--", "python")
    assert "--publish" not in done.out and "8888" not in done.err
    shelf.certify(shelf.push(ports=["22/tcp"], content="other"), H100)
    assert "--publish" not in run(shelf, *options).out


def test_run_prints_no_line_for_a_rejected_image(shelf: Shelf) -> None:
    shelf.push()
    done = run(shelf, "run", "--fixtures", "--devices", "gpus", *HERE)
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "it is not signed" in done.err


@pytest.fixture
def without_gpus(engine: Endpoint) -> docker.DockerClient:
    if os.geteuid() != 0:
        pytest.skip("CDI specifications can only be written by root")
    if cdi.offers_gpus(engine.quick) or "nvidia" in engine.info["Runtimes"]:
        pytest.skip("this engine has GPUs of its own")
    return engine.quick


def test_run_explains_how_to_give_containers_gpus(shelf: Shelf, without_gpus: docker.DockerClient) -> None:
    shelf.push_certified(H100)
    done = run(shelf, "run", "--fixtures", *HERE)
    assert (done.code, done.out) == (EXIT_MISSING, "")
    assert "offers no GPUs" in done.err and "nvidia-ctk" in done.err


def test_run_pulls_and_runs(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    stored: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    digest = shelf.push(program=program)
    shelf.certify(digest, H100)
    directory = tmp_path / 'a "strange", name'
    directory.mkdir()
    os.chown(directory, 1234, 1234)
    offer = cdi.Offer({"/gpu": program})
    with cdi.offered(without_gpus, offer):
        done = run(
            shelf, "run", "--exec", "--mount", "--fixtures", *HERE, "--", "--epochs", "two words", "$HOME",
            cwd=directory,
        )  # fmt: skip
    # docker passes on the program's exit code.
    assert done.code == 7, done.err
    where, user, gpu, *words = done.out.splitlines()
    assert (where, user, gpu) == ("/workspace", f"{os.getuid()}:{os.getgid()}", "GPU")
    assert words == ["--epochs", "two words", "$HOME"]
    assert (directory / "left").stat().st_uid == os.getuid()
    assert shelf.registry.repository.tagged(TAG) in stored()


def test_run_does_not_start_a_rejected_image(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    stored: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    shelf.push(program=program)
    with cdi.offered(without_gpus, cdi.Offer({"/gpu": program})):
        done = run(shelf, "run", "--exec", "--mount", "--fixtures", *HERE, cwd=tmp_path)
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert not (tmp_path / "left").exists()
    assert stored() == []


def test_run_writes_a_file_and_replaces_none(shelf: Shelf, tmp_path: Path) -> None:
    digest = shelf.push_certified(H100)
    options = (
        "run",
        "--fixtures",
        *HERE,
        "--devices",
        "cdi",
        "--format",
        "compose",
        "--output",
        "new/compose.yaml",
    )
    done = run(shelf, *options, cwd=tmp_path)
    assert (done.code, done.out) == (EXIT_OK, ""), done.err
    assert done.err.endswith("Wrote new/compose.yaml\n")
    file = tmp_path / "new" / "compose.yaml"
    assert f'image: "{shelf.registry.repository}@{digest}"' in file.read_text(encoding="utf-8")
    assert os.listdir(file.parent) == ["compose.yaml"]
    file.write_text("mine", encoding="utf-8")
    done = run(shelf, *options, cwd=tmp_path)
    assert (done.code, file.read_text(encoding="utf-8")) == (EXIT_INPUT, "mine")
    assert "already exists; nothing was written" in done.err and "--force" in done.err
    assert run(shelf, *options, "--force", cwd=tmp_path).code == EXIT_OK
    assert file.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--exec", "--format", "compose"), "not with --format compose"),
        (("--exec", "--output", "f"), "leave out --output"),
        (("--force",), "no effect without --output"),
        (("--format", "podman", "--devices", "gpus"), "--devices is about a Docker Engine"),
        (("--env", "A"), "'A' has no value"),
    ],
)
def test_options_that_do_not_fit_are_rejected(options: tuple[str, ...], message: str, shelf: Shelf) -> None:
    devices = () if "--devices" in options or "--format" in options else ("--devices", "gpus")
    done = run(shelf, "run", "--fixtures", *HERE, *devices, *options)
    assert (done.code, done.out) == (EXIT_INPUT, "")
    assert message in done.err
