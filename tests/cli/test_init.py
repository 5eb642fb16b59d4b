"""`init`: the files that it writes load, plan and pass the checks of our own workflows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from validator.certify.trust_file import read_trust_file
from validator.cli import project
from validator.delivery.choose import Gpu, Host
from validator.errors import MissingError
from validator.locks import lock_files
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
from validator.model.prediction import Outcome
from validator.model.spec import Variant
from validator.registry.names import Repository
from validator.system import files as system
from validator.system import processes
from validator.versions import ComputeCapability, DriverRelease

from ..commands import ROOT, Done, run
from ..workflows.support import WORKFLOWS

WORKFLOW = Path(".github/workflows/gpu-images.yml")


def host(driver: str, *gpus: tuple[str | None, str]) -> Host:
    return Host(
        DriverRelease.parse(driver),
        tuple(Gpu(ComputeCapability.parse(capability), name) for name, capability in gpus),
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def nothing() -> Host:
        raise MissingError("this machine has no NVIDIA driver")

    monkeypatch.setattr("validator.delivery.choose.this_host", nothing)
    return monkeypatch


def started(directory: Path, *arguments: str) -> Done:
    return run("init", *arguments, cwd=directory)


@pytest.mark.parametrize(
    ("found", "cells", "release"),
    [
        (host("580.95.05", ("NVIDIA H100 80GB HBM3", "9.0")), ["r580-h100"], "2.21.0"),
        (
            host("535.183.01", ("Tesla T4", "7.5"), ("NVIDIA A100-SXM4-40GB", "8.0")),
            ["r535-t4", "r535-a100"],
            "2.21.0",
        ),
        # XLA of 2.21 needs a cuDNN without kernels for Volta.
        (host("580.95.05", ("Tesla V100-SXM2-16GB", "7.0")), ["r580-v100"], "2.20.0"),
        (host("580.95.05", ("Of another maker", "8.6")), ["r580-sm86"], "2.21.0"),
    ],
)
def test_the_matrix_plans_and_its_image_works_on_this_machine(
    found: Host, cells: list[str], release: str, tmp_path: Path, here: pytest.MonkeyPatch
) -> None:
    here.setattr("validator.delivery.choose.this_host", lambda: found)
    done = started(tmp_path)
    assert done.returncode == 0, done.stderr
    matrix = load_matrix(tmp_path / "matrix.yaml")
    planned = plan(matrix, "quick").cells
    assert sorted(cell.cell.host.identifier for cell in planned) == sorted(cells)
    assert {cell.prediction.outcome for cell in planned} == {Outcome.WORKS}
    assert {cell.cell.image.tensorflow for cell in planned} == {release}
    assert [cell.cell.image.variant for cell in plan(matrix, "cpu").cells] == [Variant.CPU]
    # The locks of the tool's own matrix fit.
    ready = {image.identifier for image in matrix.images}
    if release == "2.20.0":
        assert "1 lock still to resolve" in done.stderr
        ready = {image for image in ready if "cpu" not in image}
    else:
        assert run("lock", "--check", "--profile", "full", cwd=tmp_path).returncode == 0
    assert {path.stem for path in (tmp_path / lock_files.DIRECTORY).iterdir()} == ready


def test_without_a_gpu_the_matrix_has_an_example(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    assert started(tmp_path).returncode == 0
    [cell] = plan(load_matrix(tmp_path / "matrix.yaml"), "quick").cells
    assert (cell.cell.host.identifier, cell.prediction.outcome) == ("r580-h100", Outcome.WORKS)


def test_where_only_eager_operations_work_the_image_is_one_of_those(
    tmp_path: Path, here: pytest.MonkeyPatch
) -> None:
    blackwell = host("580.95.05", ("NVIDIA GeForce RTX 5090", "12.0"))
    here.setattr("validator.delivery.choose.this_host", lambda: blackwell)
    assert started(tmp_path).returncode == 0
    [cell] = plan(load_matrix(tmp_path / "matrix.yaml"), "quick").cells
    assert cell.prediction.eager is Outcome.WORKS


def test_a_lock_that_is_not_shipped_is_left_to_lock(
    tmp_path: Path, here: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.assemble.wheels.stale", lambda locks, image: ["it is another"])
    done = started(tmp_path)
    assert "2 locks still to resolve: run `validator lock --profile full`" in done.stderr
    assert not (tmp_path / lock_files.DIRECTORY).exists()


@pytest.mark.service
@pytest.mark.parametrize(
    ("remote", "registry"),
    [
        ("https://github.com/Team/Our-Images.git", "ghcr.io/team/our-images"),
        ("git@github.com:Team/Our-Images.git", "ghcr.io/team/our-images"),
        ("ssh://git@github.com/team/our.images", "ghcr.io/team/our.images"),
        ("https://token@github.com/team/images/", "ghcr.io/team/images"),
        ("https://example.org/team/images.git", None),
        ("https://github.com.example.org/team/images.git", None),
        ("https://github.com/team/images/$(id)", None),
        ("https://github.com/team/images/more", None),
    ],
)
def test_the_registry_is_that_of_the_remote(
    remote: str, registry: str | None, tmp_path: Path, here: pytest.MonkeyPatch
) -> None:
    for command in (("init", "--quiet", "--initial-branch", "trunk"), ("remote", "add", "origin", remote)):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = started(tmp_path)
    content = yaml.safe_load((tmp_path / WORKFLOW).read_text())
    assert content["env"]["REGISTRY"] == (registry or "ghcr.io/OWNER/REPOSITORY")
    if registry is None:
        assert "in place of OWNER/REPOSITORY" in done.stderr
        assert "No trust.yaml was written" in done.stderr and "reference/trust-file.md" in done.stderr
        assert not (tmp_path / "trust.yaml").exists()
        return
    assert content[True]["push"]["branches"] == ["trunk"]
    assert "No trust.yaml" not in done.stderr
    [builder] = read_trust_file(tmp_path / "trust.yaml").builders
    assert builder.signatory.signer.endswith(f"/{WORKFLOW}@refs/heads/trunk")


@pytest.mark.service
@pytest.mark.parametrize(
    ("remote", "registry"),
    [
        ("https://gitlab.com/Team/Our-Images.git", "registry.gitlab.com/team/our-images"),
        ("git@gitlab.com:team/gpu/training/images.git", "registry.gitlab.com/team/gpu/training/images"),
        ("https://oauth2:token@gitlab.com/team/images/", "registry.gitlab.com/team/images"),
    ],
)
def test_on_gitlab_the_command_that_pushes_is_printed(
    remote: str, registry: str, tmp_path: Path, here: pytest.MonkeyPatch
) -> None:
    for command in (("init", "--quiet"), ("remote", "add", "origin", remote)):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = started(tmp_path)
    assert done.returncode == 0, done.stderr
    *_, advice = done.stderr.splitlines()
    assert advice.endswith(f"then validator build-matrix --profile cpu --push {registry}")
    assert "No workflow was written" in done.stderr and "token" not in done.stderr
    assert str(Repository.parse(registry)) == registry
    assert load_matrix(tmp_path / "matrix.yaml").images
    assert not (tmp_path / WORKFLOW).exists() and not (tmp_path / "trust.yaml").exists()


def test_nothing_is_replaced_without_force(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    (tmp_path / "matrix.yaml").write_text("mine")
    done = started(tmp_path)
    assert (done.returncode, "these files exist: matrix.yaml" in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.yaml"]
    assert (tmp_path / "matrix.yaml").read_text() == "mine"
    assert started(tmp_path, "--force").returncode == 0
    assert load_matrix(tmp_path / "matrix.yaml").images


@pytest.mark.parametrize("force", [False, True])
def test_all_is_written_or_nothing(force: bool, tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    if force:
        (tmp_path / WORKFLOW).parent.mkdir(parents=True)
        (tmp_path / WORKFLOW).write_text("mine")

    def failing(path: Path, content: bytes) -> None:
        if path.name == "matrix.yaml":
            raise MissingError("no space left on the disk")
        system.write_atomically(path, content)

    here.setattr(project, "write_atomically", failing)
    assert started(tmp_path, *(["--force"] if force else [])).returncode == 3
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ([tmp_path / WORKFLOW] if force else [])
    assert not force or (tmp_path / WORKFLOW).read_text() == "mine"


def test_another_directory(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    done = started(tmp_path, "--directory", "deeper/project")
    assert "Next: cd deeper/project && " in done.stderr
    assert load_matrix(tmp_path / "deeper" / "project" / "matrix.yaml").images


@pytest.mark.service
def test_the_workflow_follows_the_rules_of_ours(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    started(tmp_path)
    text = (tmp_path / WORKFLOW).read_text()
    content = yaml.safe_load(text)
    assert content["permissions"] == {} and content["concurrency"]["group"]
    ours = "\n".join(path.read_text() for path in WORKFLOWS.iterdir())
    used = re.findall(r"uses:\s*(.*)$", text, re.M)
    assert used and all(f"uses: {action}\n" in ours for action in used), "pinned as in our own workflows"
    writing = {
        name: {scope for scope, level in job["permissions"].items() if level == "write"}
        for name, job in content["jobs"].items()
    }
    assert writing == {"build": {"packages", "id-token"}, "measure": set()}
    for job in content["jobs"].values():
        assert 0 < job["timeout-minutes"] < 360
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "values reach a command by its environment"
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
    assert "secrets." not in text and "@" not in re.sub(r"@[0-9a-f]{40}\b|@main' validator", "", text)
    zizmor = str(Path(sys.executable).with_name("zizmor"))
    found = subprocess.run(
        [zizmor, "--offline", "--quiet", "--persona", "auditor", tmp_path / ".github"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout


#: Stand for pipx, which gets the tool from this checkout, and for the login.
PIPX = """#!/bin/sh
[ "$1 $2 $4" = "run --spec validator" ] || exit 99
echo "installed $3" >>"$INSTALLED"
shift 4
exec {python} -m validator "$@"
"""
DOCKER = """#!/bin/sh
[ "$1 $2 $3 $4" = "login --username octocat --password-stdin" ] && [ "$(cat)" = secret ] || exit 99
echo "logged in to $5"
"""


@pytest.mark.service
def test_the_steps_of_the_workflow_run_the_day_it_is_written(
    tmp_path: Path, here: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    monkeypatch.setattr("validator.certify.provenance.source_commit", lambda: commit)
    git = processes.git
    monkeypatch.setattr(
        project, "git", lambda where, *words: "main" if words[0] == "branch" else git(where, *words)
    )
    place = tmp_path / "project"
    place.mkdir()
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=place, check=True)
    subprocess.run(["git", "remote", "add", "origin", "git@github.com:Team/Ours.git"], cwd=place, check=True)
    told = started(place).stderr
    assert f"tensorflow-gpu-matrix@{commit}, because this version of the tool is not released." in told
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, text in (("pipx", PIPX), ("docker", DOCKER), ("podman", "#!/bin/sh\nexit 125\n")):
        (bin_ / name).write_text(text.replace("{python}", sys.executable))
        (bin_ / name).chmod(0o755)
    content = yaml.safe_load((place / WORKFLOW).read_text())
    environment = {
        "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path),
        "INSTALLED": str(tmp_path / "installed"),
        # Nothing answers there: what the real ones do with it is tested elsewhere.
        **content["env"], "REGISTRY": "127.0.0.1:1/team/ours", "DOCKER_HOST": "unix:///nonexistent",
        "REGISTRY_USER": "octocat", "REGISTRY_TOKEN": "secret", "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_WORKFLOW_REF": f"Team/Ours/{WORKFLOW}@refs/heads/main",
    }  # fmt: skip
    ends = {
        "Log in to the registry": (0, "logged in to 127.0.0.1:1"),
        "Check the locks": (0, "1 of 1 lock up to date"),
        "Build and push": (3, "1 image: "),
        "Pull and measure": (3, "no Docker Engine found"),
        "Export the records": (0, "0 records exported"),
    }
    ran = 0
    for job in content["jobs"].values():
        for step in job["steps"]:
            if "run" not in step:
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                cwd=place, env=environment, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            code, says = ends[step["name"]]
            assert (done.returncode, says in done.stdout + done.stderr) == (code, True), (step, done)
            ran += 1
    assert ran == 6
    installed = (tmp_path / "installed").read_text().splitlines()
    tool = f"git+https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix@{commit}"
    assert installed == [f"installed {tool}"] * 4


def test_what_the_written_files_link_is_there(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    started(tmp_path)
    text = "".join(path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".yaml", ".yml"))
    links = re.findall(r"tensorflow-gpu-matrix/(?:blob/)?main/([\w/.-]+)", text)
    assert len(links) == 2 and all((ROOT / link).is_file() for link in links)
    assert "/v0" not in text and "@main' validator" in text


def test_the_commands_of_the_workflow_have_the_options(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    started(tmp_path)
    text = (tmp_path / WORKFLOW).read_text()
    commands = re.findall(r"validator ([a-z-]+(?: export)?)((?:\s+--[a-z-]+(?:\s+\S+)?)*)", text)
    seen = {name: set(re.findall(r"--[a-z-]+", options)) for name, options in commands if name != "init"}
    assert {"lock", "build-matrix", "records export"} <= seen.keys()
    for name, options in seen.items():
        told = run(*name.split(), "--help", cwd=tmp_path).stdout
        assert options <= set(re.findall(r"--[a-z-]+", told)), name
