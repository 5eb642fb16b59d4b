"""The weekly workflow, step by step as its file gives them: what is pinned changes only by a pull request."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..loop import tiers
from .gh import State
from .night import check_out, outside
from .support import workflow

TITLE = "refresh: update facts and what is pinned by hash"
LOCK = "requirements/test.txt"
#: Stands in for scripts/refresh, whose own tests are in tests/supply: one package has a newer version.
REFRESH = f"""#!/bin/sh
sed -i 's/^uv==.*/uv==99.0.0 \\\\/' {LOCK}
printf '{LOCK}:\\n  uv 0.13.8 -> 99.0.0\\n'
"""
#: A release brings facts, new locks with their layers, and other answers in the documentation.
RELEASE = """#!/bin/sh
echo '# 2.99.0' >>validator/compat/data/tensorflow.yaml
echo ' ' >>validator/compat/data/compiled.json
echo ' ' >>validator/probe/data/kernels.json
echo '# a lock' >images/locks/tf2.99.0-cuda12.5-cudnn9.3-py312.txt
echo ' ' >>images/layers.json
echo 'A row.' >>docs/reference/commands.md
echo 'TensorFlow 2.99.0: new on the package index'
echo 'Predictions of the profile full: 3 of 4,431 cells change.'
"""


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *arguments],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture(scope="module")
@tiers.service
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository whose only commit is this working tree."""
    tree = tmp_path_factory.mktemp("tree")
    check_out(tree)
    git(tree, "init", "--quiet", "--initial-branch=main")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message=all")
    # Each test clones this several times: one file instead of a thousand.
    git(tree, "repack", "-a", "-d", "--quiet")
    return tree


class Week:
    """One run of the workflow. remote: what the jobs clone and push to."""

    def __init__(self, origin: Path, directory: Path) -> None:
        self.directory = directory
        self.remote = directory / "remote.git"
        git(directory, "clone", "--quiet", "--bare", str(origin), str(self.remote))
        self.environment = origin / ".venv"
        self.state = State(directory / "github.json")
        self.state.write()
        self.number = 0
        self.log = ""

    def run(self, refresh: str = REFRESH) -> int:
        """Run the jobs; return the exit code of the first step that failed, or 0."""
        self.number += 1
        artifact = self.directory / f"artifact-{self.number}"
        for name, job in workflow("refresh.yml").jobs.items():
            workspace = self.directory / f"{self.number}-{name}"
            for step in job["steps"]:
                action = step.get("uses", "").partition("@")[0]
                if action == "actions/checkout":
                    self.check_out(workspace, refresh)
                elif action == "actions/upload-artifact":
                    shutil.copytree(workspace / step["with"]["path"], artifact)
                elif action == "actions/download-artifact":
                    shutil.copytree(artifact, workspace / step["with"]["path"])
                elif code := self.step(workspace, step["run"], name):
                    return code
        return 0

    def check_out(self, workspace: Path, refresh: str) -> None:
        git(self.directory, "clone", "--quiet", str(self.remote), str(workspace))
        (workspace / ".venv").symlink_to(self.environment)
        # The stand-in is not a change of the working tree.
        git(workspace, "update-index", "--skip-worktree", "scripts/refresh")
        (workspace / "scripts/refresh").write_text(refresh)

    def step(self, workspace: Path, script: str, job: str) -> int:
        self.state.write()
        given = {"FAKE_GH": str(self.state.path), "GITHUB_REF_NAME": "main", "CI": "true"}
        if job == "propose":
            given["GH_TOKEN"] = "token"
        done = subprocess.run(
            script.split(), cwd=workspace, env=outside() | given, capture_output=True, text=True, timeout=60
        )
        self.log += done.stdout + done.stderr
        self.state = State.read(self.state.path)
        return done.returncode

    def pushed(self, path: str) -> str:
        return git(self.remote, "show", f"refresh:{path}")


@pytest.fixture
def week(origin: Path, tmp_path: Path) -> Week:
    return Week(origin, tmp_path)


def test_a_difference_becomes_a_pull_request(week: Week) -> None:
    assert week.run() == 0, week.log
    [pull] = week.state.pulls
    assert (pull["head"], pull["base"], pull["title"]) == ("refresh", "main", TITLE)
    assert "  uv 0.13.8 -> 99.0.0\n" in pull["body"]
    assert "uv==99.0.0" in week.pushed(LOCK)
    assert git(week.remote, "log", "--format=%s", "main..refresh") == f"{TITLE}\n"
    assert git(week.remote, "diff", "--name-only", "main", "refresh") == f"{LOCK}\n"


def test_a_new_release_is_proposed_with_its_new_locks_and_the_predictions_that_change(week: Week) -> None:
    assert week.run(RELEASE) == 0, week.log
    [pull] = week.state.pulls
    assert (
        "TensorFlow 2.99.0: new on the package index\nPredictions of the profile full: 3 of" in pull["body"]
    )
    assert week.pushed("images/locks/tf2.99.0-cuda12.5-cudnn9.3-py312.txt") == "# a lock\n"
    assert week.pushed("validator/compat/data/tensorflow.yaml").endswith("# 2.99.0\n")
    assert len(git(week.remote, "diff", "--name-only", "main", "refresh").splitlines()) == 6


def test_a_long_difference_fits_into_a_pull_request(week: Week) -> None:
    assert week.run(REFRESH + "seq 100000\nseq 100000 >&2\nexit 3\n") == 0, week.log
    [pull] = week.state.pulls
    assert 50_000 < len(pull["body"]) < 65_536


def test_the_next_week_updates_the_same_pull_request(week: Week) -> None:
    assert week.run() == 0, week.log
    assert week.run(REFRESH.replace("99.0.0", "99.0.1")) == 0, week.log
    [pull] = week.state.pulls
    assert "-> 99.0.1" in pull["body"] and "-> 99.0.0" not in pull["body"]
    assert "uv==99.0.1" in week.pushed(LOCK)
    assert git(week.remote, "log", "--format=%s", "main..refresh") == f"{TITLE}\n"


def test_without_a_difference_nothing_is_proposed(week: Week) -> None:
    assert week.run("#!/bin/sh\necho everything is up to date\n") == 0, week.log
    assert week.state.pulls == [] and week.state.calls == []
    assert "refresh" not in git(week.remote, "branch")


def test_a_part_that_failed_is_named_in_the_pull_request(week: Week) -> None:
    assert week.run(REFRESH + 'echo "bases: the registry is down" >&2\nexit 3\n') == 0, week.log
    [pull] = week.state.pulls
    assert "could not be refreshed:\n\n```text\nbases: the registry is down\n```" in pull["body"]


def test_an_error_ends_the_run_before_anything_is_proposed(week: Week) -> None:
    assert week.run(REFRESH + "exit 2\n") == 2
    assert week.state.pulls == []


@pytest.mark.parametrize(
    "change",
    [
        "echo '# planted' >>images/system-packages/Dockerfile",
        "echo '# planted' >>images/system-packages/install-packages",
        f"chmod +x {LOCK}",
        f"ln -sf /etc/passwd {LOCK}",
        f"rm {LOCK}",
        "echo '# planted' >>validator/cli/project.py",
        "echo '# planted' >>validator/compat/data/planted.py",
        "echo '# planted' >>docs/checks.py",
        "echo '# planted' >validator/compat/data/planted.yaml",
        "echo '# planted' >images/locks/planted.sh",
        "echo '# a lock' >images/locks/planted.txt; chmod +x images/locks/planted.txt",
        "ln -s /etc/passwd images/locks/planted.txt",
        "rm images/locks/*py312.txt",
    ],
)
def test_a_patch_of_anything_else_is_refused(week: Week, change: str) -> None:
    """The job that resolves packages can change only what is pinned, even if it was taken over."""
    assert week.run(f"{REFRESH}{change}\n") == 2, week.log
    assert "the patch changes more than the contents of refreshed files" in week.log
    assert week.state.pulls == []
    assert "refresh" not in git(week.remote, "branch")
