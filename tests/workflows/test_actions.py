"""The actions for other repositories: their steps are run as a runner does, with hostile inputs as well."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..docs.console import SHIM, run_answering
from . import expressions
from .support import ROOT, WORKFLOWS

pytestmark = pytest.mark.service

ACTIONS = ROOT / "actions"
NAMES = sorted(path.parent.name for path in ACTIONS.glob("*/action.yml"))
every_action = pytest.mark.parametrize("name", NAMES)
FAILING = "2026-11-23T10:00:00.1234567Z failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error\n"
CLEAN = "2026-11-23T10:00:00.1234567Z Epoch 1/2\n2026-11-23T10:00:01.1234567Z all is well\n"
#: A GitHub that answers `gh api` from a file: path -> answer. Without one, a permission is missing.
#: A number is the status of an error.
GH = """\
#!{python}
import json, os, sys
answers = json.load(open(os.environ["ANSWERS"]))
path = next(word for word in sys.argv[2:] if word.startswith("repos/"))
answer = answers.get(path.partition("?")[0])
if answer is None:
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
if isinstance(answer, int):
    sys.stdout.write('{{"message": "..."}}')
    sys.exit(f"gh: ... (HTTP {{answer}})")
if isinstance(answer, dict):
    import jq
    program = sys.argv[sys.argv.index("--jq") + 1]
    answer = "".join(f"{{line}}\\n" for line in jq.compile(program).input_value(answer))
sys.stdout.write(answer)
"""


def action(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ACTIONS / name / "action.yml").read_text(encoding="utf-8"))
    return found


class Runner:
    """A workspace, and the directories and files that a runner gives to a step.

    Until `start_pythons` is called, this process answers the calls of the tool, which saves their starts.
    """

    def __init__(self, directory: Path) -> None:
        self.workspace = directory / "workspace"
        self.temporary = directory / "temporary"
        self.summary, self.output = directory / "summary.md", directory / "output"
        self.answers: dict[str, Any] = {}
        bin_directory = directory / "bin"
        environment = self.temporary / "tensorflow-gpu-matrix"
        for made in (self.workspace, bin_directory, environment / "bin"):
            made.mkdir(parents=True)
        # What `install` makes, with the packages that are here.
        self._python = environment / "bin" / "python"
        self._python.write_text(SHIM)
        shutil.copy(ROOT / "requirements" / "runtime.txt", environment / ".installed")
        gh = bin_directory / "gh"
        gh.write_text(GH.format(python=sys.executable))
        for program in (self._python, gh):
            program.chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "GH_"))}
        self.environment = kept | {
            "PATH": f"{bin_directory}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_REPOSITORY": "owner/repo",
            "GITHUB_RUN_ID": "7",
            "GITHUB_RUN_ATTEMPT": "1",
            "ANSWERS": str(directory / "answers.json"),
        }

    def start_pythons(self) -> None:
        """Give the tool a Python of its own, as a runner does."""
        self._python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the steps of an action until one fails. Dashes of inputs are underscores here."""
        (Path(self.environment["ANSWERS"])).write_text(json.dumps(self.answers))
        self.summary.write_text("")
        self.output.write_text("")
        found = action(name)
        declared = {key: str(value.get("default", "")) for key, value in found["inputs"].items()}
        given = {key.replace("_", "-"): value for key, value in inputs.items()}
        assert given.keys() <= declared.keys()
        steps = {"python": {"outputs": {"python-path": sys.executable}}}
        contexts: dict[str, Any] = {"github": {"token": "token"}, "steps": steps}
        defaults = {key: self._text(value, contexts) for key, value in declared.items()}
        contexts["inputs"] = defaults | given
        done = subprocess.CompletedProcess[str]([], 0, "", "")
        for step in found["runs"]["steps"]:
            if "run" not in step:
                continue
            assert step["shell"] == "bash"
            values = {key: self._text(value, contexts) for key, value in step.get("env", {}).items()}
            done = run_answering(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                self.workspace,
                self.environment | values | {"GITHUB_ACTION_PATH": str(ACTIONS / name)},
            )
            if done.returncode:
                break
        return done

    @staticmethod
    def _text(template: str, contexts: Mapping[str, Any]) -> str:
        return expressions.text(template, expressions.Scope(contexts, {}))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@every_action
def test_everything_is_pinned_and_no_input_is_part_of_a_command(name: str) -> None:
    text = (ACTIONS / name / "action.yml").read_text(encoding="utf-8")
    steps = action(name)["runs"]["steps"]
    pins = dict(
        pin for path in WORKFLOWS.iterdir() for pin in re.findall(r"uses: ([^@\s]+)@(\S+)", path.read_text())
    )
    for step in steps:
        assert "${{" not in step.get("run", "")
        used, _, commit = step.get("uses", "").partition("@")
        # No workflow here uploads findings.
        assert pins.get(used, commit) == commit
        assert used in ("", "github/codeql-action/upload-sarif") or used in pins
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", text)) == text.count("uses:")


def test_lint_finds_nothing_in_the_actions() -> None:
    tools = Path(sys.executable).parent
    scripts = [path for path in ACTIONS.rglob("*") if path.is_file() and path.suffix != ".yml"]
    for command in (
        [tools / "zizmor", "--offline", "--quiet", "--persona", "auditor", ACTIONS],
        [tools / "shellcheck", "--external-sources", *scripts],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_tool_is_installed_from_the_lock_once(runner: Runner, tmp_path: Path) -> None:
    environment = runner.temporary / "tensorflow-gpu-matrix"
    shutil.rmtree(environment)
    said = tmp_path / "said"
    fake = tmp_path / "python"
    fake.write_text(
        f'#!/bin/sh\necho "$@" >>{said}\n'
        'case $2 in venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python";; esac\n'
    )
    fake.chmod(0o755)
    for _ in range(2):
        subprocess.run(
            [ACTIONS / "install"], env=runner.environment | {"PYTHON": str(fake)}, check=True, timeout=60
        )
    venv, pip = said.read_text().splitlines()
    assert venv == f"-m venv {environment}"
    assert {"--require-hashes", "--only-binary", str(ROOT / "requirements/runtime.txt")} < set(pip.split())


@pytest.mark.engine
def test_what_is_installed_from_the_package_index_runs_the_tool(runner: Runner) -> None:
    environment = runner.temporary / "tensorflow-gpu-matrix"
    shutil.rmtree(environment)
    variables = runner.environment | {"PYTHON": sys.executable}
    done = subprocess.run([ACTIONS / "install"], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (runner.workspace / "train.log").write_text(FAILING)
    done = runner.run("doctor", log="train.log")
    assert done.returncode == 0, done.stderr
    assert "cuInit" in runner.summary.read_text()
    (runner.workspace / "r.txt").write_text("tensorflow==2.18.1\nnvidia-cudnn-cu12==9.3.0.75\n")
    done = runner.run("predict", requirements="r.txt", hosts="t4:570")
    assert done.returncode == 0, done.stderr


def test_doctor_writes_the_cause_of_a_failing_log_to_the_summary(runner: Runner) -> None:
    runner.start_pythons()
    (runner.workspace / "train.log").write_text(FAILING)
    done = runner.run("doctor", log="train.log\n")
    assert done.returncode == 0, done.stderr
    assert runner.output.read_text() == "found=true\n"
    summary = runner.summary.read_text()
    assert summary.startswith("## doctor: `train.log`\n\n### ")
    assert "cuInit" in summary
    assert runner.run("doctor", log="train.log", fail_on_cause="true").returncode == 1
    assert "cuInit" in runner.summary.read_text()


def test_doctor_finds_nothing_in_a_clean_log(runner: Runner) -> None:
    (runner.workspace / "a.log").write_text(CLEAN)
    done = runner.run("doctor", log="a.log", fail_on_cause="true")
    assert done.returncode == 0, done.stderr
    assert runner.output.read_text() == "found=false\n"


def test_doctor_reads_a_log_whose_name_starts_with_a_dash(runner: Runner) -> None:
    for name in ("-f", "--format=json"):
        (runner.workspace / name).write_text(FAILING)
        done = runner.run("doctor", log=name)
        assert done.returncode == 0, done.stderr
        assert runner.output.read_text() == "found=true\n"
        assert runner.summary.read_text().startswith(f"## doctor: `./{name}`\n")


def test_doctor_fetches_the_logs_of_failed_jobs(runner: Runner) -> None:
    jobs = [
        {"id": 1, "name": "lint", "conclusion": "success", "status": "completed"},
        {"id": 2, "name": "train `x` | y\n", "conclusion": "failure", "status": "completed"},
        {"id": 3, "name": "report", "conclusion": None, "status": "in_progress"},
    ]
    runner.answers = {
        "repos/owner/repo/actions/runs/7/attempts/1/jobs": {"jobs": jobs},
        "repos/owner/repo/actions/jobs/2/logs": FAILING,
        "repos/owner/repo/actions/jobs/1/logs": CLEAN,
    }
    done = runner.run("doctor")
    assert done.returncode == 0, done.stderr
    assert runner.summary.read_text().startswith("## doctor: `train 'x' | y`\n")
    assert runner.run("doctor", job="lint").returncode == 0
    assert runner.summary.read_text().startswith("## doctor: `lint`\n")
    done = runner.run("doctor", job="report")
    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert "::error title=doctor::no job of this run that has ended is named report" in done.stdout
    jobs.pop(1)
    assert runner.run("doctor").returncode == 0
    assert runner.output.read_text() == "found=false\n"


def test_doctor_names_the_permission_that_is_missing(runner: Runner) -> None:
    done = runner.run("doctor")
    assert done.returncode == 3
    assert "the job needs the permission actions: read" in done.stdout


@pytest.mark.parametrize("without", [404, 410, "", "\n"])
def test_doctor_leaves_out_a_failed_job_that_has_no_log(runner: Runner, without: int | str) -> None:
    """GitHub has no log of a job that never got a runner, and keeps logs for a limited time."""
    jobs = [
        {"id": number, "name": name, "conclusion": "failure", "status": "completed"}
        for number, name in ((1, "gpu"), (2, "train"))
    ]
    runner.answers = {
        "repos/owner/repo/actions/runs/7/attempts/1/jobs": {"jobs": jobs},
        "repos/owner/repo/actions/jobs/1/logs": without,
        "repos/owner/repo/actions/jobs/2/logs": FAILING,
    }
    done = runner.run("doctor")
    assert (done.returncode, done.stderr) == (
        0,
        "The job gpu has no log that can be fetched, so it is left out.\n",
    )
    assert runner.summary.read_text().startswith("## doctor: `train`\n")
    assert runner.output.read_text() == "found=true\n"
    jobs.pop()
    for inputs in ({}, {"job": "gpu"}):
        done = runner.run("doctor", **inputs)
        assert (done.returncode, done.stdout.count("\n")) == (3, 1)
        assert done.stdout.startswith("::error title=doctor::no failed job has a log that can be fetched")
        assert "permission" not in done.stdout


@pytest.mark.parametrize(("status", "says"), [(403, "needs the permission actions: read"), (502, "again")])
def test_doctor_says_why_a_log_is_not_fetched(runner: Runner, status: int, says: str) -> None:
    jobs = [{"id": 1, "name": "gpu", "conclusion": "failure", "status": "completed"}]
    runner.answers = {
        "repos/owner/repo/actions/runs/7/attempts/1/jobs": {"jobs": jobs},
        "repos/owner/repo/actions/jobs/1/logs": status,
    }
    done = runner.run("doctor")
    assert done.returncode == 3
    assert done.stdout.startswith("::error title=doctor::the log of the job gpu can't be fetched")
    assert says in done.stdout
    assert ("permission" in done.stdout) == (status == 403)
    assert f"HTTP {status}" in done.stderr


HOSTILE = (
    "$(touch owned)",
    "`touch owned`",
    "'; touch owned; '",
    '"; touch owned; "',
    "a\n::error::b",
    "-n",
    "%0A::error::x",
    "${{ github.token }}",
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_inputs_of_doctor_are_only_text(runner: Runner, hostile: str) -> None:
    runner.answers = {"repos/owner/repo/actions/runs/7/attempts/1/jobs": {"jobs": []}}
    for inputs in ({"log": hostile}, {"job": hostile}):
        done = runner.run("doctor", **inputs)
        assert done.returncode == 2
        assert done.stdout.startswith("::error title=doctor::")
        assert done.stdout.count("\n") == 1
    assert list(runner.workspace.iterdir()) == []


@pytest.mark.parametrize("hostile", ["\n".join(HOSTILE), "--help"])
@pytest.mark.parametrize("which", ["requirements", "hosts"])
def test_hostile_inputs_of_predict_are_only_text(runner: Runner, hostile: str, which: str) -> None:
    (runner.workspace / "r.txt").write_text("tensorflow==2.18.1\n")
    inputs = {"requirements": "r.txt", "hosts": "t4:570", "lint": "false"} | {which: hostile}
    done = runner.run("predict", **inputs)
    assert (done.returncode, done.stdout) == (2, "")
    assert [path.name for path in runner.workspace.iterdir()] == ["r.txt"]


def test_a_hostile_log_is_no_markup_in_the_summary(runner: Runner) -> None:
    hostile = FAILING.replace("unknown error", "</details><script>alert(1)</script> ``` @team ::error::x")
    (runner.workspace / "a.log").write_text(hostile)
    done = runner.run("doctor", log="a.log")
    assert done.returncode == 0, done.stderr
    outside = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", runner.summary.read_text())
    assert "<script" not in outside.replace("\\<", "")
    assert "@team" not in outside
    assert outside.count("<details>") == outside.count("</details>")
    assert "::error" not in done.stdout


def test_a_module_of_the_workspace_does_not_run(runner: Runner) -> None:
    runner.start_pythons()
    for name in ("validator", "click", "json"):
        (runner.workspace / f"{name}.py").write_text("open('owned', 'w')\n")
    (runner.workspace / "a.log").write_text(CLEAN)
    assert runner.run("doctor", log="a.log").returncode == 0
    assert not (runner.workspace / "owned").exists()


def test_predict_fails_with_annotations_and_a_table(runner: Runner) -> None:
    runner.start_pythons()
    (runner.workspace / "requirements.txt").write_text("tensorflow==2.18.1\nnvidia-cudnn-cu12==9.3.0.75\n")
    done = runner.run("predict", requirements="requirements.txt\n\n", hosts="t4:570\nh100:470\r\n")
    assert done.returncode == 1, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("::error file=requirements.txt,line=1,col=1,title=driver_older_than_gpu::")
    head, empty, *table = runner.summary.read_text().splitlines()
    assert (head, empty) == ("## Predictions", "")
    assert [row.split(" | ")[2] for row in table[2:4]] == ["r470-h100", "r570-t4"]


def test_predict_passes_where_nothing_speaks_against_it(runner: Runner) -> None:
    (runner.workspace / "requirements.txt").write_text("tensorflow==2.18.1\nnvidia-cudnn-cu12==9.3.0.75\n")
    done = runner.run("predict", requirements="requirements.txt", hosts="t4:570")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_predict_reports_what_lint_finds(runner: Runner) -> None:
    (runner.workspace / "Dockerfile").write_text(
        "FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\nRUN pip install tensorflow==2.18.1\n"
    )
    done = runner.run("predict", requirements="Dockerfile", hosts="t4:570")
    assert done.returncode == 1
    assert "title=cuda_of_another_version::" in done.stdout.splitlines()[0]


def test_predict_uploads_what_lint_finds_even_if_it_fails(runner: Runner) -> None:
    (runner.workspace / "r.txt").write_text("tensorflow==2.18.1\nnvidia-cudnn-cu12==8.9.7.29\n")
    upload = action("predict")["runs"]["steps"][-1]
    for wanted in ("false", "true"):
        done = runner.run("predict", requirements="r.txt", hosts="t4:570", sarif=wanted)
        assert (done.returncode, done.stderr) == (1, "")
        path = runner.output.read_text().removeprefix("sarif=").rstrip()
        functions = expressions.standard_functions(failed=True, cancelled=False)
        scope = expressions.Scope({"steps": {"predict": {"outputs": {"sarif": path}}}}, functions)
        assert expressions.condition(upload["if"], scope) == (wanted == "true")
    (result,) = json.loads(Path(path).read_text())["runs"][0]["results"]
    assert result["ruleId"] == "cudnn_of_another_major"


def test_predict_says_what_is_wrong_with_its_inputs(runner: Runner) -> None:
    done = runner.run("predict", requirements="gone.txt", hosts="t4:570")
    assert (done.returncode, done.stdout) == (2, "")
    assert "gone.txt does not exist" in done.stderr


# -- the page --------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/how-to/use-in-ci.md").read_text(encoding="utf-8")
#: How the page names an action of this repository.
USES = re.compile(r"tensorflow-gpu-matrix/tensorflow-gpu-matrix/actions/(\w+)@[0-9a-f]{40}")


def steps_of_the_page() -> list[dict[str, Any]]:
    """Return the steps in all workflows that the page shows."""
    steps = []
    for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        shown = yaml.safe_load(text)
        jobs = [{"steps": shown}] if isinstance(shown, list) else shown["jobs"].values()
        steps += [step for job in jobs for step in job["steps"]]
    return steps


def test_the_page_gives_each_action_the_inputs_that_it_has() -> None:
    used = [
        (USES.fullmatch(step["uses"]), step.get("with", {})) for step in steps_of_the_page() if "uses" in step
    ]
    ours = [(match[1], given) for match, given in used if match]
    assert {name for name, _ in ours} == set(NAMES)
    for name, given in ours:
        inputs = action(name)["inputs"]
        required = {key for key, value in inputs.items() if value["required"]}
        assert required <= given.keys() <= inputs.keys(), name


@every_action
def test_the_page_lists_every_input_and_output_of_an_action(name: str) -> None:
    [section] = [part for part in PAGE.split("\n## ")[1:] if f"The action `{name}` " in part]
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == list(action(name)["inputs"])
    assert set(re.findall(r"[Oo]utput `([\w-]+)`", section)) == set(action(name).get("outputs", {}))


def test_the_other_actions_of_the_page_are_pinned_as_in_this_repository() -> None:
    pinned = set(
        re.findall(
            r"uses: (\S+@[0-9a-f]{40} # \S+)", "".join(path.read_text() for path in WORKFLOWS.glob("*.yml"))
        )
    )
    others = [found for found in re.findall(r"uses: (\S+@\S+ # .*)", PAGE) if not USES.match(found)]
    assert others and set(others) <= pinned
