"""run as a person runs it: the line that it prints, and the container that it starts."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from validator.engines.docker.endpoint import Reached
from validator.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK

from ..emulation import cdi
from .commands import HERE, ask
from .shelf import H100, Shelf
from .values import TAG

pytestmark = pytest.mark.docker

#: Says where it is, who it is and what it was given; leaves a file; ends with 7.
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


def test_run_prints_a_line_with_the_reason_for_each_flag(shelf: Shelf) -> None:
    digest = shelf.put(H100)
    said = ask(
        shelf,
        "run",
        "--fixtures",
        *HERE,
        "--gpu",
        "h200",
        "--devices",
        "gpus",
        "--",
        "python",
        "-c",
        "print('a b')",
    )
    assert said.code == EXIT_OK, said.err
    assert shlex.split(said.out) == [
        "docker", "run", "--rm", "--gpus", "all", "--shm-size", "1g", "--ulimit", "memlock=-1",
        f"{shelf.registry.repository}@{digest}", "python", "-c", "print('a b')",
    ]  # fmt: skip
    for flag in ("--rm", "--gpus all", "--shm-size 1g", "--ulimit memlock=-1"):
        assert f"\n{flag}: " in said.err


def test_run_prints_nothing_for_an_image_that_is_refused(shelf: Shelf) -> None:
    shelf.push()
    said = ask(shelf, "run", "--fixtures", "--devices", "gpus", *HERE)
    assert (said.code, said.out) == (EXIT_FAILED, "")
    assert "it is not signed" in said.err


@pytest.fixture
def without_gpus(engine: Reached) -> docker.DockerClient:
    if os.geteuid() != 0:
        pytest.skip("CDI specifications can only be written by root")
    if cdi.offers_gpus(engine.quick) or "nvidia" in engine.info["Runtimes"]:
        pytest.skip("this engine has GPUs of its own")
    return engine.quick


def test_run_says_how_to_get_gpus_into_containers(shelf: Shelf, without_gpus: docker.DockerClient) -> None:
    shelf.put(H100)
    said = ask(shelf, "run", "--fixtures", *HERE)
    assert (said.code, said.out) == (EXIT_MISSING, "")
    assert "offers no GPUs" in said.err and "nvidia-ctk" in said.err


def test_run_pulls_and_runs(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    held: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    digest = shelf.push(program=program)
    shelf.certify(digest, H100)
    directory = tmp_path / 'a "strange", name'
    directory.mkdir()
    os.chown(directory, 1234, 1234)
    given = cdi.Offer({"/gpu": program})
    with cdi.offered(without_gpus, given):
        said = ask(
            shelf, "run", "--exec", "--mount", "--fixtures", *HERE, "--", "--epochs", "two words", "$HOME",
            cwd=directory,
        )  # fmt: skip
    # docker's own exit code, which is the program's.
    assert said.code == 7, said.err
    where, user, gpu, *words = said.out.splitlines()
    assert (where, user, gpu) == ("/workspace", f"{os.getuid()}:{os.getgid()}", "GPU")
    assert words == ["--epochs", "two words", "$HOME"]
    assert (directory / "left").stat().st_uid == os.getuid()
    assert shelf.registry.repository.tagged(TAG) in held()


def test_run_does_not_start_what_is_refused(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    held: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    shelf.push(program=program)
    with cdi.offered(without_gpus, cdi.Offer({"/gpu": program})):
        said = ask(shelf, "run", "--exec", "--mount", "--fixtures", *HERE, cwd=tmp_path)
    assert (said.code, said.out) == (EXIT_FAILED, "")
    assert not (tmp_path / "left").exists()
    assert held() == []
