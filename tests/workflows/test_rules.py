"""The rules for every workflow: pinned actions, the least permissions, limits, and secrets in one place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

from .support import ROOT, WORKFLOWS, Workflow, workflow

NAMES = sorted(path.name for path in WORKFLOWS.iterdir())
every_workflow = pytest.mark.parametrize("name", NAMES)

#: Who may write what. A job that is not here may write nothing.
WRITES = {
    ("nightly.yml", "build"): {"packages", "id-token"},
    ("nightly.yml", "certify"): {"packages", "id-token"},
    ("nightly.yml", "publish"): {"pages", "id-token"},
    ("nightly.yml", "regressions"): {"issues"},
    ("nightly.yml", "end"): {"actions"},
    ("refresh.yml", "propose"): {"contents", "pull-requests"},
    ("release.yml", "publish"): {"id-token", "attestations"},
}
#: The jobs that see secrets, and the protected environment that holds them.
SECRETS = {
    ("nightly.yml", "build"): "builder",
    ("nightly.yml", "merge"): "nightly",
    ("nightly.yml", "certify"): "release",
}
#: Debian's keys, in the job that resolves Debian's packages.
KEYS = ".ci/tools debian-archive-keyring"
scheduled_workflows = pytest.mark.parametrize(
    ("name", "directory"), [("nightly.yml", "scripts/nightly"), ("refresh.yml", "scripts/weekly")]
)


def test_the_workflows() -> None:
    assert NAMES == [
        "ci.yml", "kubernetes.yml", "nightly.yml", "refresh.yml", "release.yml", "validate.yml", "weekly.yml",
    ]  # fmt: skip


@every_workflow
def test_actions_are_pinned_by_commit_with_their_version(name: str) -> None:
    uses = re.findall(r"^\s*-?\s*uses:\s*(.*)$", workflow(name).text, re.M)
    assert uses
    for used in uses:
        # A workflow of this repository is that of the same commit.
        if used == f"$/{WORKFLOWS.relative_to(ROOT)}/validate.yml":
            continue
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used


def test_an_action_has_one_commit_everywhere() -> None:
    pins: dict[str, set[str]] = {}
    for name in NAMES:
        for action, pin in re.findall(r"uses:\s*([\w/-]+)@(.*)", workflow(name).text):
            pins.setdefault(action, set()).add(pin)
    assert {action: pin for action, pin in pins.items() if len(pin) > 1} == {}


@every_workflow
def test_permissions_are_minimal(name: str) -> None:
    found = workflow(name)
    assert found.content["permissions"] == {}
    for job, content in found.jobs.items():
        permissions = content["permissions"]
        assert isinstance(permissions, dict), f"{job}: read-all and write-all are no lists of needs"
        writing = {scope for scope, level in permissions.items() if level == "write"}
        assert writing == WRITES.get((name, job), set()), job


@every_workflow
def test_every_job_has_a_time_limit_and_no_run_waits_for_another(name: str) -> None:
    found = workflow(name)
    assert found.content["concurrency"]["group"]
    for job, content in found.jobs.items():
        # GitHub's own limit is six hours. A job that calls a workflow has the limits of the jobs in there.
        assert "uses" in content or 0 < content["timeout-minutes"] < 360, job


@every_workflow
def test_untrusted_code_never_runs_with_secrets(name: str) -> None:
    found = workflow(name)
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(found.triggers)
    if "pull_request" in found.triggers:
        assert "secrets." not in found.text
        assert "environment:" not in found.text
        assert all(content["runs-on"].startswith("ubuntu-") for content in found.jobs.values())


@every_workflow
def test_secrets_are_limited_to_steps_of_jobs_with_a_protected_environment(name: str) -> None:
    found = workflow(name)
    for job, content in found.jobs.items():
        parts = {key: value for key, value in content.items() if key != "steps"}
        assert "secrets." not in str(parts), f"{job}: a secret outside of a step is seen by all of them"
        steps = content.get("steps", [])
        if any("secrets." in str(step) for step in steps):
            assert content["environment"] == SECRETS[(name, job)]
        for step in steps:
            assert "secrets." not in str(step.get("with")), "a secret is for our own scripts, not for actions"


@every_workflow
def test_the_token_stays_out_of_the_working_tree(name: str) -> None:
    for job, step in workflow(name).steps:
        if str(step.get("uses")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, job


def steps_of(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a workflow and of those that it calls."""
    found = workflow(name)
    called = [Path(job["uses"]).name for job in found.jobs.values() if "uses" in job]
    return [*found.steps, *(step for inner in called for step in workflow(inner).steps)]


def test_a_called_workflow_gets_no_secret_and_every_input() -> None:
    [caller] = [job for job in workflow("nightly.yml").jobs.values() if "uses" in job]
    called = workflow("validate.yml")
    assert "secrets" not in caller and "secrets." not in called.text
    assert list(called.triggers) == ["workflow_call"]
    assert caller["with"].keys() == called.triggers["workflow_call"]["inputs"].keys()
    # It can only have less than its caller, and both name everything.
    for job in called.jobs.values():
        assert job["permissions"].items() <= caller["permissions"].items()


@scheduled_workflows
def test_each_step_of_a_scheduled_workflow_is_one_script(name: str, directory: str) -> None:
    for job, step in steps_of(name):
        if "run" in step and step["run"] != KEYS:
            assert re.fullmatch(rf"{directory}/[a-z-]+", step["run"]), f"{job}: {step['run']}"
            assert os.access(ROOT / step["run"], os.X_OK), step["run"]
            assert "shell" not in step and "working-directory" not in step


@scheduled_workflows
def test_every_script_of_a_scheduled_workflow_is_a_step(name: str, directory: str) -> None:
    used = {step.get("run") for _, step in steps_of(name)}
    there = {f"{directory}/{path.name}" for path in (ROOT / directory).iterdir()}
    assert there == used - {None, KEYS}


@every_workflow
def test_no_shell_command_contains_an_expression(name: str) -> None:
    for job, step in workflow(name).steps:
        assert "${{" not in step.get("run", ""), f"{job}: values reach a script by its environment"


def test_the_unit_tests_run_on_every_supported_python() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert workflow("ci.yml").jobs["unit"]["strategy"]["matrix"]["python"] == pythons
    assert project["requires-python"] == f">={pythons[0]}"


def _needed(found: Workflow, job: str) -> set[str]:
    needs = found.jobs[job].get("needs", [])
    return {needs} if isinstance(needs, str) else set(needs)


def test_layers_whose_rows_are_new_are_made_again() -> None:
    checkout, check = workflow("ci.yml").jobs["layers"]["steps"]
    # All commits: the table before the change is in one of them.
    assert checkout["with"]["fetch-depth"] == 0
    assert check["env"]["BEFORE"] == "${{ github.event.pull_request.base.sha || github.event.before }}"
    assert check["run"] == 'scripts/check-layers "$BEFORE"'


def test_only_the_step_with_a_limit_waits_for_the_validations() -> None:
    found = workflow("nightly.yml")
    assert [job for job in found.jobs if "validate" in _needed(found, job)] == []
    runs = [step["run"] for step in found.jobs["merge"]["steps"] if "run" in step]
    assert runs[:2] == ["scripts/nightly/received", "scripts/nightly/wait"]


def test_only_jobs_with_a_gpu_use_our_machines() -> None:
    jobs = {**workflow("nightly.yml").jobs, **workflow("validate.yml").jobs}
    runners = {job: content["runs-on"] for job, content in jobs.items()}
    assert runners.pop("validate") == "${{ matrix.runner }}"
    assert set(runners.values()) == {"ubuntu-24.04"}


@pytest.mark.service
def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("zizmor")), "--offline", "--quiet", "--persona", "auditor",
         str(WORKFLOWS)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.service
@pytest.mark.parametrize("injected", ["${{ github.head_ref }}", "${{ github.event.issue.title }}"])
def test_zizmor_finds_a_planted_problem(tmp_path: Path, injected: str) -> None:
    text = workflow("nightly.yml").text.replace("run: scripts/nightly/plan", f"run: echo {injected}")
    changed = tmp_path / "nightly.yml"
    changed.write_text(text)
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run([str(zizmor), "--offline", "--quiet", str(changed)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "template-injection" in done.stdout


def test_the_control_plane_is_built_every_week_for_the_cache_that_the_tests_use() -> None:
    """GitHub deletes a cache that was not used for a week."""
    found = workflow("kubernetes.yml")
    assert re.fullmatch(r"\d+ \d+ \* \* \d", found.triggers["schedule"][0]["cron"])
    build, test = found.jobs["build"], found.jobs["test"]
    assert test["needs"] == "build"
    assert re.search(r"bookworm@sha256:[0-9a-f]{64}$", build["container"])
    assert build["steps"][-1]["run"].startswith(".ci/kubernetes ")
    directory = build["steps"][-1]["run"].partition(" ")[2]
    caches = [
        step["with"]
        for job in (build, test, workflow("ci.yml").jobs["test"])
        for step in job["steps"]
        if str(step.get("uses")).startswith("actions/cache@")
    ]
    assert caches == [caches[0]] * 3
    assert (
        caches[0]["path"]
        == directory
        == workflow("ci.yml").jobs["test"]["steps"][-1]["env"]["VALIDATOR_KUBERNETES"]
    )
    assert "hashFiles('.ci/kubernetes')" in caches[0]["key"]


def test_a_release_is_built_without_rights_and_published_from_a_protected_environment() -> None:
    found = workflow("release.yml")
    assert list(found.triggers) == ["push"]
    assert list(found.triggers["push"]) == ["tags"]
    build, publish = found.jobs["build"], found.jobs["publish"]
    assert set(build["permissions"].values()) == {"read"}
    assert (publish["needs"], publish["environment"]) == ("build", "pypi")
    used = [str(step.get("uses")).partition("@")[0] for step in publish["steps"]]
    # Attested before it is published, and nothing of the repository runs next to the identity.
    assert used == [
        "actions/download-artifact",
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]
    assert [step["run"] for step in build["steps"] if "run" in step] == ["scripts/release"]


def test_what_every_change_leaves_out_runs_every_week() -> None:
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    every_week, every_change = re.findall(r"^ *(?:exec )?scripts/test *(.*)$", text, re.MULTILINE)
    assert every_week == "", "everything"
    assert every_change.startswith('-m "not weekly" --hypothesis-profile=fast ')
    weekly, kubernetes = workflow("weekly.yml"), workflow("kubernetes.yml")
    for found in (weekly, kubernetes):
        assert re.fullmatch(r"\d+ \d+ \* \* \d", found.triggers["schedule"][0]["cron"])
    assert weekly.jobs["test"]["steps"][-1]["run"] == ".ci/run --weekly"
    assert weekly.jobs["release"]["steps"][-1]["run"] == "scripts/release --rehearse"
    assert kubernetes.jobs["test"]["steps"][-1]["run"] == "scripts/test -n 1 tests/fleet/kubernetes -m engine"
