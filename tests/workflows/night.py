"""Runs the steps of a workflow on this machine, in the order and with the values that its file gives.

Each job has a fresh copy of the working tree, as a runner has, so that nothing passes from one job to another
but outputs and artifacts. Actions that carry files are replaced by copying, and actions that install programs
are left out, since the programs are here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validator.answers.table import SYSTEMS, make_table
from validator.certify.trust import Challenge, new_challenge
from validator.model.codec import format_timestamp
from validator.model.record import Record
from validator.records import record_files
from validator.reports.page.answers import digest

from . import expressions
from .expressions import Scope
from .gh import State
from .support import ROOT, Workflow, workflow

#: Actions that install what the tests find on this machine.
_INSTALL = ("sigstore/cosign-installer",)
_STEP_WITHIN_S = 600
#: The host of a cell that is measured in another place.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Machine:
    """The surroundings of a night.

    environment: variables that the scripts get in addition to those of the workflow.
    offline: host classes whose runner is not there.
    elsewhere: what runners of other places deliver, by cell; called with the cell's challenge. These cells
        are in the plan as well, but no job of theirs runs here.
    files: text of files that are in every checkout, by name.
    before: called before a job of that name begins.
    """

    directory: Path
    variables: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    offline: frozenset[str] = frozenset()
    token: str = ""
    elsewhere: Mapping[str, Callable[[Challenge], Sequence[Record]]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Callable[[], None]] = field(default_factory=dict)


@dataclass
class Job:
    """The end of a job. result: of its whole matrix, as `needs` sees it. log: the output of its steps."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""


class Night:
    """One run of a workflow. Earlier ones, and the issues, are in the state of the stand-in for gh."""

    def __init__(self, workflow: Workflow, machine: Machine, state: State, number: int = 1) -> None:
        self.workflow, self.machine, self.state, self.number = workflow, machine, state, number
        self.jobs: dict[str, Job] = {}
        self.ran: list[str] = []
        self.root = machine.directory / f"night-{number}"
        self.artifacts = self.root / "artifacts"
        self.artifacts.mkdir(parents=True)
        self.published: Path | None = None

    def run(self) -> Night:
        """Run the jobs in the order of the file, in which each job comes after those that it needs."""
        this = {"databaseId": self.number, "event": "schedule", "headBranch": "main"}
        self.state.runs.insert(0, this | {"artifacts": str(self.artifacts)})
        self.state.jobs = []
        self.state.write()
        for name, job in self.workflow.jobs.items():
            self.jobs[name] = self._job(name, job, _Calling(self.workflow, self.jobs))
            if name == "plan":
                self._measure_elsewhere(self.jobs[name])
        return self

    def _measure_elsewhere(self, plan: Job) -> None:
        """Add cells to the plan, and deliver the artifacts of the runners that measure them."""
        directory = self.artifacts / "plan"
        cells = json.loads((directory / "cells.json").read_text())
        for cell, deliver in self.machine.elsewhere.items():
            made = new_challenge(cell)
            row = {"id": cell, "image": cell.partition("@")[0], "host": ELSEWHERE, "runner": [ELSEWHERE]}
            cells["include"].append(row | {"challenge": made.value, "issued": format_timestamp(made.issued)})
            artifact = self.artifacts / f"records-{cell}"
            artifact.mkdir()
            with open(artifact / "records.jsonl", "w", encoding="utf-8") as stream:
                record_files.write(deliver(made), stream)
        for name in ("cells", "part-1"):
            (directory / f"{name}.json").write_text(json.dumps(cells))
        sums = subprocess.run(["sha256sum", "cells.json", "part-1.json"], cwd=directory, capture_output=True)
        (directory / "SHA256SUMS").write_bytes(sums.stdout)
        plan.outputs["plan"] = hashlib.sha256(sums.stdout).hexdigest()

    def _job(self, name: str, job: dict[str, Any], calling: _Calling) -> Job:
        jobs = calling.jobs
        failed = any(jobs[ancestor].result != "success" for ancestor in _ancestors(name, calling.workflow))
        contexts: dict[str, Any] = {
            "needs": {
                one: {"outputs": jobs[one].outputs, "result": jobs[one].result}
                for one in _needed(name, calling.workflow)
            },
            "inputs": calling.inputs,
            "vars": self.machine.variables,
            "github": {
                "actor": "nobody",
                "token": self.machine.token,
                "repository": "Owner/Repo",
                "ref_name": "main",
            },
        }
        scope = Scope(contexts, expressions.standard_functions(failed=failed, cancelled=False))
        if not expressions.condition(job.get("if", "success()"), scope):
            return Job("skipped")
        found = Job("success")
        matrix = expressions.value(job.get("strategy", {}).get("matrix"), scope)
        for row in matrix["include"] if matrix else [None]:
            # Secrets belong to the environment that a job names.
            contexts["secrets"] = self.machine.secrets if "environment" in job else {}
            contexts["matrix"] = row or {}
            inner = Scope(contexts, scope.functions)
            if "uses" in job:
                self._call(job, inner, found)
            else:
                self._one(name, job, inner, found, calling.title)
        return found

    def _call(self, job: dict[str, Any], scope: Scope, found: Job) -> None:
        """Run the jobs of a workflow of this repository, with the inputs that its caller gives."""
        inputs = {name: expressions.value(value, scope) for name, value in job["with"].items()}
        title = f"{expressions.text(job['name'], scope)} / "
        calling = _Calling(workflow(Path(job["uses"]).name), {}, inputs, title)
        for name, inner in calling.workflow.jobs.items():
            ended = calling.jobs[name] = self._job(name, inner, calling)
            found.log += ended.log
            if ended.result != "success":
                found.result = "failure"

    def _one(self, name: str, job: dict[str, Any], scope: Scope, found: Job, prefix: str) -> None:
        title = prefix + expressions.text(job["name"], scope)
        if scope.contexts["matrix"].get("host") in {*self.machine.offline, ELSEWHERE}:
            self._tell_of(title, "queued")
            return
        assert expressions.value(job["runs-on"], scope)
        place = self.root / f"{len(self.ran)}-{name}"
        self.ran.append(title)
        workspace, temporary = place / "workspace", place / "temp"
        workspace.mkdir(parents=True)
        temporary.mkdir()
        if name in self.machine.before:
            self.machine.before[name]()
        steps: dict[str, Any] = {}
        failed = False
        exported: dict[str, str] = {}
        for step in job["steps"]:
            functions = expressions.standard_functions(failed=failed, cancelled=False)
            inner = Scope({**scope.contexts, "steps": steps}, functions)
            if not expressions.condition(step.get("if", "success()"), inner):
                continue
            if "uses" in step:
                ok = self._action(step, inner, workspace)
            else:
                ok, outputs = self._script(step, inner, workspace, temporary, exported, found)
                steps[step.get("id", step["name"])] = {"outputs": outputs}
            failed = failed or not ok
        for output, template in job.get("outputs", {}).items():
            found.outputs[output] = expressions.text(template, Scope({"steps": steps}, {}))
        if failed:
            found.result = "failure"
        self._tell_of(title, "completed")

    def _tell_of(self, title: str, status: str) -> None:
        self.state = State.read(self.state.path)
        self.state.jobs.append({"name": title, "status": status})
        self.state.write()

    def _script(
        self,
        step: dict[str, Any],
        scope: Scope,
        workspace: Path,
        temporary: Path,
        exported: dict[str, str],
        job: Job,
    ) -> tuple[bool, dict[str, str]]:
        files = {name: temporary / name for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.write_text("")
        given = {name: expressions.text(str(value), scope) for name, value in step.get("env", {}).items()}
        environment = {
            **outside(),
            **self.machine.environment,
            **{name: str(path) for name, path in files.items()},
            "CI": "true",
            "GITHUB_REPOSITORY": "Owner/Repo",
            "GITHUB_REF_NAME": "main",
            "GITHUB_RUN_ID": str(self.number),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_WORKFLOW_REF": "Owner/Repo/.github/workflows/nightly.yml@refs/heads/main",
            "RUNNER_TEMP": str(temporary),
            "FAKE_GH": str(self.state.path),
            **exported,
            **given,
        }
        script = temporary / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "-e", str(script)],
            cwd=workspace, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_STEP_WITHIN_S,
        )  # fmt: skip
        job.log += f"--- {step['name']} (exit {done.returncode})\n{done.stdout}"
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        exported.update(_assignments(files["GITHUB_ENV"]))
        return done.returncode == 0, _assignments(files["GITHUB_OUTPUT"])

    def _action(self, step: dict[str, Any], scope: Scope, workspace: Path) -> bool:
        given = {name: expressions.text(str(value), scope) for name, value in step.get("with", {}).items()}
        action = step["uses"].split("@")[0]
        if action == "actions/checkout":
            check_out(workspace)
            for name, content in self.machine.files.items():
                (workspace / name).write_text(content, encoding="utf-8")
        elif action == "actions/upload-artifact":
            return self._upload(workspace / given["path"], given)
        elif action == "actions/upload-pages-artifact":
            return self._upload(workspace / given["path"], {"name": "github-pages"})
        elif action == "actions/download-artifact":
            return self._download(workspace / given["path"], given)
        elif action == "actions/deploy-pages":
            self.published = self.artifacts / "github-pages"
        elif action not in _INSTALL:
            raise AssertionError(f"{action} is not known here")
        return True

    def _upload(self, source: Path, given: Mapping[str, str]) -> bool:
        if not source.exists():
            return given.get("if-no-files-found", "warn") != "error"
        target = self.artifacts / given["name"]
        assert not target.exists(), f"an artifact {given['name']} already exists"
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.mkdir()
            shutil.copy2(source, target)
        return True

    def _download(self, target: Path, given: Mapping[str, str]) -> bool:
        if "name" in given:
            source = self.artifacts / given["name"]
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            return source.is_dir()
        for source in self.artifacts.glob(given["pattern"]):
            shutil.copytree(source, target / source.name, dirs_exist_ok=True)
        return True


@dataclass(frozen=True)
class _Calling:
    """A workflow that runs. title: comes before the names of its jobs, if another one called it."""

    workflow: Workflow
    jobs: dict[str, Job]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


def _needed(name: str, workflow: Workflow) -> set[str]:
    needs = workflow.jobs[name].get("needs", [])
    return {needs} if isinstance(needs, str) else set(needs)


def _ancestors(name: str, workflow: Workflow) -> set[str]:
    direct = _needed(name, workflow)
    return direct.union(*(_ancestors(one, workflow) for one in direct))


def outside() -> dict[str, str]:
    """Return this process's environment without variables that change the scripts, and with gh's stand-in."""
    ours = ("VALIDATOR_", "GITHUB_", "GH_", "COSIGN_", "RUNNER_", "DOCKER_CONFIG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PATH": f"{Path(__file__).parent / 'bin'}:{kept['PATH']}", "GH_PYTHON": sys.executable}


def _assignments(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    assert all("=" in line for line in lines), lines
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@functools.cache
def _table() -> bytes:
    """Return a table of one answer, because making the whole one takes minutes."""
    one = json.dumps(make_table(SYSTEMS[:1], [""], [""], [""]))
    return digest().encode() + zlib.compress(one.encode())


def check_out(workspace: Path) -> None:
    """Copy the files of the working tree that a commit would contain, and link the environment.

    Leaves out the tests, which are three of four files, and which no step uses.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".", ":!tests"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, workspace / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    # The byte code too: each job would compile everything again. Copies keep the time of the sources.
    for directory in (ROOT / "validator").rglob("__pycache__"):
        # Python writes a file under another name first, such as `x.cpython-311.pyc.140`.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(directory, workspace / directory.relative_to(ROOT), ignore=unfinished)
    (workspace / "validator/answers/table.bin").write_bytes(_table())
    environment = workspace / ".venv"
    environment.mkdir()
    for entry in (ROOT / ".venv").iterdir():
        (environment / entry.name).symlink_to(entry)
    # Mark it as up to date, or the scripts would install the copy instead of the working tree.
    (environment / ".installed").unlink()
    files = ("pyproject.toml", "requirements/test.txt")
    digests = [hashlib.sha256((workspace / name).read_bytes()).hexdigest() for name in files]
    lines = ["extra: test", *(f"{digest}  {name}" for digest, name in zip(digests, files, strict=True))]
    (environment / ".installed").write_text("\n".join(lines) + "\n")
