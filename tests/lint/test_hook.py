"""The pre-commit hook for other repositories: its manifest, the files that it takes, and what it runs.

`pre-commit try-repo . tensorflow-lint` runs it for real. The tests do without, because pre-commit first
installs this package with all that it needs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator import cli
from validator.lint.findings import reader_of
from validator.system.files import parse_toml

ROOT = Path(__file__).parents[2]
#: The keys of a hook (pre_commit.clientlib, MANIFEST_HOOK_DICT), with their types.
KEYS: dict[str, type] = {
    **dict.fromkeys(("id", "name", "entry", "language", "alias", "files", "exclude", "description"), str),
    **dict.fromkeys(("language_version", "log_file", "minimum_pre_commit_version"), str),
    **dict.fromkeys(
        ("types", "types_or", "exclude_types", "additional_dependencies", "args", "stages"), list
    ),
    **dict.fromkeys(("always_run", "fail_fast", "pass_filenames", "require_serial", "verbose"), bool),
}
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def test_the_manifest_is_one_that_pre_commit_accepts() -> None:
    hook: dict[str, Any] = HOOK
    assert {"id", "name", "entry", "language"} <= set(hook) <= set(KEYS)
    assert all(isinstance(value, KEYS[key]) for key, value in hook.items())
    assert hook["language"] == "python"
    program = shlex.split(hook["entry"])[0]
    project = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert program in project["project"]["scripts"]


@pytest.mark.parametrize(
    "name",
    [
        "Dockerfile",
        "docker/Dockerfile.gpu",
        "train.dockerfile",
        "Containerfile",
        "requirements.txt",
        "requirements-gpu.in",
        "requirements/base.txt",
        "dev_requirements.txt",
        "constraints.txt",
        "a/pyproject.toml",
        "environment.yml",
        "conda/environment.yaml",
        "conda-environment.yml",
        "conda-lock.yml",
        "compose.yaml",
        "deploy/docker-compose.gpu.yml",
        "uv.lock",
        "poetry.lock",
        "pylock.toml",
        "pylock.gpu.toml",
        "requirements.lock",
        "requirements-dev.lock",
        "Pipfile",
        "api/Pipfile.lock",
        "pixi.toml",
        "pixi.lock",
    ],
)
def test_the_files_that_the_hook_takes_are_read(name: str) -> None:
    assert re.search(HOOK["files"], name)
    assert reader_of(Path(name))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "docker.md",
            "notes.txt",
            "docker-compositor.yml",
            "environments.py",
            "Cargo.lock",
            "Dockerfile.md/x",
            "Pipfile.md",
            "pixi.md",
            "setup.py",
        ),
        # Files of other tools have such names, and lint refuses what is no environment of conda.
        *("environment.prod.yml", "deploy/environment-staging.yaml", "environment_variables.yml"),
    ],
)
def test_other_files_are_left_alone(name: str) -> None:
    assert not re.search(HOOK["files"], name)


def test_the_entry_reports_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("tensorflow==2.18.0\nnvidia-cudnn-cu12==8.9.7.29\n")
    assert cli.run([*shlex.split(HOOK["entry"])[1:], str(path)]) == 1
    assert f"{path}:2:1: cudnn_of_another_major" in capsys.readouterr().out
    path.write_text("tensorflow==2.18.0\nnvidia-cudnn-cu12==9.3.0.75\n")
    assert cli.run([*shlex.split(HOOK["entry"])[1:], str(path)]) == 0
