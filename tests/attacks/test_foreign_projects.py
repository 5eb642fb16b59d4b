"""Attacks by a directory that somebody else wrote: nothing of it runs, and nothing outside of it is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from validator.locks import lock_files

from ..commands import run

HOSTS = "hosts:\n  - {driver: '580', gpu: h100}\nprofiles:\n  quick: {}\n"
PROJECT = '[project]\nname = "proj"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
LOCK = 'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "proj"\nversion = "1.0"\n'
METADATA = "Metadata-Version: 2.1\nName: proj\nVersion: 1.0\n"
BACKEND = """\
import os
open({mark!r}, "a").write("ran")
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(to, settings=None):
    os.makedirs(to + "/proj-1.0.dist-info")
    open(to + "/proj-1.0.dist-info/METADATA", "w").write({metadata!r})
    return "proj-1.0.dist-info"
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel
"""


def matrix(directory: Path, entry: str) -> Path:
    path = directory / "matrix.yaml"
    path.write_text(f"images:\n  - {{tensorflow: '2.21.0', python: '3.11', name: x, {entry}}}\n{HOSTS}")
    return path


def program(path: Path, mark: Path) -> None:
    """Write a program that leaves a mark, and then behaves as a Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$*" >>{mark}\nexec /usr/bin/python3 "$@"\n')
    path.chmod(0o755)


def build_backend(directory: Path, mark: Path, source: str, dynamic: str) -> None:
    (directory / "evil.py").write_text(BACKEND.format(mark=str(mark), metadata=METADATA))
    build = '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
    (directory / "pyproject.toml").write_text(f"{PROJECT}dynamic = {dynamic}\n{build}")
    (directory / "uv.lock").write_text(f"{LOCK}source = {{ {source} }}\n")


def python_of_the_project(directory: Path, mark: Path, *, version_file: bool) -> None:
    for name in ("python", "python3", "python3.11"):
        program(directory / ".venv" / "bin" / name, mark)
    (directory / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if version_file:
        (directory / ".python-version").write_text(f"{directory}/.venv/bin/python\n")
    (directory / "pyproject.toml").write_text(PROJECT + '[tool.uv]\npython-preference = "only-system"\n')
    (directory / "uv.lock").write_text(LOCK + 'source = { virtual = "." }\n')


PROJECTS: dict[str, Callable[[Path, Path], None]] = {
    "editable": lambda place, mark: build_backend(place, mark, 'editable = "."', '["dependencies"]'),
    "directory": lambda place, mark: build_backend(place, mark, 'directory = "."', '["dependencies"]'),
    "readme": lambda place, mark: build_backend(place, mark, 'editable = "."', '["readme"]'),
    "environment": lambda place, mark: python_of_the_project(place, mark, version_file=False),
    "version file": lambda place, mark: python_of_the_project(place, mark, version_file=True),
}


@pytest.mark.engine
@pytest.mark.parametrize("make", PROJECTS.values(), ids=PROJECTS.keys())
@pytest.mark.parametrize("below", [".", "deep/er"])
def test_nothing_of_a_project_runs(tmp_path: Path, make: Callable[[Path, Path], None], below: str) -> None:
    mark, project = tmp_path / "mark", tmp_path / below
    project.mkdir(parents=True, exist_ok=True)
    make(project, mark)
    path = matrix(tmp_path, f"requirements: {{project: {below}}}")
    for command in ("plan", "validate", "lock"):
        words = [command, "--matrix", path] + (["--check"] if command == "lock" else [])
        run(*words, cwd=project)
        assert not mark.exists(), command
    for name in ("pyproject.toml", "uv.lock"):
        run("lint", project / name, cwd=project)
        run("predict", "--host", "h100:580", "--requirements", project / name, cwd=project)
    assert not mark.exists()


@pytest.mark.parametrize(
    "entry",
    [
        "requirements: ../secret.txt",
        "requirements: /secret.txt",
        "requirements: link.txt",
        "requirements: include.txt",
        "requirements: constrain.txt",
        "requirements: link.toml",
        "requirements: {project: ../outside}",
        "requirements: {project: linked}",
        "packages: [../six-1.0-py3-none-any.whl]",
        "packages: [./six-1.0-py3-none-any.whl]",
        "checks: [../our_check.py]",
        "checks: [our_check.py]",
    ],
)
def test_a_matrix_reads_nothing_outside_of_its_directory(tmp_path: Path, entry: str) -> None:
    place, outside = tmp_path / "matrix", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("root:$y$hunter2hunter2:19000:0\n")
    for name in ("link.txt", "link.toml", "six-1.0-py3-none-any.whl", "our_check.py"):
        (place / name).symlink_to(secret)
        (tmp_path / name).write_bytes(secret.read_bytes())
    (place / "linked").symlink_to(outside)
    (place / "include.txt").write_text("-r ../secret.txt\n")
    (place / "constrain.txt").write_text("-c link.txt\n")
    (outside / "pyproject.toml").write_text(PROJECT)
    (outside / "uv.lock").write_text(LOCK + 'source = { virtual = "." }\n')
    done = run("plan", "--matrix", matrix(place, entry.replace(": /", f": {tmp_path}/")))
    assert done.returncode == 2
    assert "it is outside of" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "root:$y$j9T$hunter2/abc:19000:0:99999:7:::",
        "API_KEY=hunter2",
        "machine example.com login me password hunter2",
        'token: "hunter2"',
        "-----BEGIN KEY----- hunter2",
        "--index-url https://me:hunter2@index.example/simple",
        "git+https://hunter2@git.example/x",
        "six --hash hunter2",
    ],
)
def test_an_error_does_not_quote_a_secret(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    (tmp_path / "r.toml").write_text(f"{line}\n")
    for entry in ("requirements: r.txt", "requirements: r.toml"):
        done = run("plan", "--matrix", matrix(tmp_path, entry))
        assert done.returncode == 2
        assert "hunter2" not in done.stdout + done.stderr
    done = run("sbom", tmp_path / "r.txt")
    assert done.returncode == 2
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.service
def test_the_history_of_a_foreign_repository_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program(tmp_path / "evil", mark)
    lock = tmp_path / "x.txt"

    def git(*words: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *person, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for text in ("# one\n", "# two\n"):
        lock.write_text(text)
        git("add", "x.txt")
        git("commit", "--quiet", "-m", "x")
    (tmp_path / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    for name in (
        "diff.evil.textconv", "diff.evil.command", "filter.evil.smudge", "core.fsmonitor", "gpg.program",
        "core.pager", "core.sshCommand", "diff.external",
    ):  # fmt: skip
        git("config", name, os.fspath(tmp_path / "evil"))
    git("config", "log.showSignature", "true")
    lock.write_text("")
    lock.unlink()
    assert lock_files.previous(tmp_path, "x") is None
    assert not mark.exists()
