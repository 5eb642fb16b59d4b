"""The scripts of the night that use GitHub: waiting, ending, earlier records, and the one issue."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from validator.model.codec import encode
from validator.model.record import Record, Verdict
from validator.records import record_files
from validator.records.record_files import RefusedArtifact

from ..commands import ROOT
from ..docs.console import SHIM, run_answering
from ..loop import tiers
from ..records.values import proven
from ..reports.test_regressions import decline
from .gh import State
from .night import check_out, outside

CELLS = ("tf1@r580-h100", "tf2@r580-h100", "tf2@r535-a100")
LABEL = "nightly-regression"


class Workspace:
    """A copy of the working tree as on a runner, and a GitHub. The copy is shared, except for its `night`.

    This process answers the calls of `validator`, so that no call has to start a Python.
    """

    def __init__(self, copy: Path, directory: Path) -> None:
        self.directory = copy
        shutil.rmtree(copy / "night", ignore_errors=True)
        self.state = State(directory / "github.json")
        self.summary = directory / "summary"
        self.artifacts = directory / "artifacts"

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.state.write()
        self.summary.write_text("")
        given = {
            "GH_TOKEN": "token", "FAKE_GH": str(self.state.path), "GITHUB_REPOSITORY": "owner/repo",
            "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_REF_NAME": "main",
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }  # fmt: skip
        done = run_answering([f"scripts/nightly/{script}"], self.directory, outside() | given | environment)
        self.state = State.read(self.state.path)
        return done

    def planned(self, *cells: str) -> None:
        """Put these cells where the plan of the night is."""
        path = self.directory / "night/plan/cells.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"include": [{"id": cell} for cell in cells]}))

    def records(self, place: str, *records: Record) -> None:
        path = self.directory / "night" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        record_files.write(records, text)
        path.write_text(text.getvalue())


@pytest.fixture(scope="module")
@tiers.service
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a copy of the working tree in whose environment `validator` calls this process."""
    directory = tmp_path_factory.mktemp("workspace")
    check_out(directory)
    programs = directory / ".venv" / "bin"
    originals = list(programs.iterdir())
    programs.unlink()
    programs.mkdir()
    for original in originals:
        (programs / original.name).symlink_to(ROOT / ".venv" / "bin" / original.name)
    (programs / "validator").unlink()
    (programs / "validator").write_text(SHIM)
    (programs / "validator").chmod(0o755)
    return directory


@pytest.fixture
def workspace(copy: Path, tmp_path: Path) -> Workspace:
    return Workspace(copy, tmp_path)


# -- planning --------------------------------------------------------------------------------------------


def cells_of(workspace: Workspace, name: str = "cells") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((workspace.directory / f"night/plan/{name}.json").read_text())[
        "include"
    ]
    return found


def planned(workspace: Workspace, **environment: str) -> tuple[int, dict[str, str], str]:
    outputs = workspace.summary.with_name("outputs")
    outputs.write_text("")
    given = {"PROFILE": "cpu", "GITHUB_REPOSITORY": "Owner/Repo", "GITHUB_OUTPUT": str(outputs)}
    done = workspace.run("plan", **given | environment)
    found = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, found, done.stderr


def test_without_runners_images_are_built_and_nothing_is_validated(workspace: Workspace) -> None:
    code, found, said = planned(workspace)
    assert code == 0, said
    assert found["registry"] == "ghcr.io/owner/repo"
    assert [row["image"] for row in json.loads(found["images"])["include"]] == ["tf2.21.0-cpu-py312"]
    assert (cells_of(workspace), json.loads(found["parts"])) == ([], {"include": []})
    assert found["validate"] == "false"


def test_only_host_classes_with_runners_are_planned(workspace: Workspace) -> None:
    given = {"PROFILE": "nightly", "SELECT": "python=3.12 tensorflow=2.21.0", "HOSTS": "r580-h100,r535-a100"}
    code, found, said = planned(workspace, **given)
    assert code == 0, said
    cells = cells_of(workspace)
    images = [row["image"] for row in json.loads(found["images"])["include"]]
    assert {row["host"] for row in cells} == {"r580-h100", "r535-a100"}
    assert len(cells) == 2 * len(images) and len(images) == len(set(images)) > 1
    assert cells[0]["runner"] == ["self-hosted", "linux", "x64", cells[0]["host"]]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"REGISTRY": "registry.evil.example/tf"}, "the workflow's token is only for ghcr.io"),
        ({"REGISTRY": "ghcr.io.evil.example/tf"}, "the workflow's token is only for ghcr.io"),
        ({"HOSTS": "r580-h101"}, "has no cell"),
        ({"SELECT": "tensorflow"}, "it has no operator"),
    ],
)
def test_a_wrong_plan_ends_the_night_before_it_begins(
    workspace: Workspace, environment: dict[str, str], says: str
) -> None:
    code, found, said = planned(workspace, **environment)
    assert (code, found) == (2, {})
    assert says in said


def received(workspace: Workspace, plan: str, part: str = "") -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code, the cells of the part and what was said."""
    outputs = workspace.summary.with_name("outputs")
    outputs.write_text("")
    done = workspace.run("received", PLAN=plan, PART=part, GITHUB_OUTPUT=str(outputs))
    written = outputs.read_text().removeprefix("cells=")
    return done.returncode, json.loads(written)["include"] if written else [], done.stderr


def test_more_cells_than_a_matrix_holds_are_validated_in_parts(workspace: Workspace) -> None:
    """Every cell is in exactly one part, and no part has more jobs than GitHub runs."""
    code, found, said = planned(workspace, PROFILE="nightly", SELECT="tensorflow=2.21", HOSTS="*")
    assert code == 0, said
    cells = cells_of(workspace)
    assert len(cells) > 256
    parts = [row["part"] for row in json.loads(found["parts"])["include"]]
    assert parts == list(range(1, -(-len(cells) // 256) + 1))
    rows = []
    for part in parts:
        code, of_part, said = received(workspace, found["plan"], str(part))
        assert code == 0 and 0 < len(of_part) <= 256, said
        rows += of_part
    assert rows == cells
    assert len({row["challenge"] for row in rows}) == len(rows)


def test_no_part_is_larger_than_it_may_be(workspace: Workspace) -> None:
    given = {"PROFILE": "nightly", "SELECT": "python=3.12 tensorflow=2.21.0", "HOSTS": "r580-h100,r535-a100"}
    _, found, _ = planned(workspace, PART="3", **given)
    parts = json.loads(found["parts"])["include"]
    sizes = [len(cells_of(workspace, f"part-{row['part']}")) for row in parts]
    assert len(sizes) > 1 and set(sizes[:-1]) == {3} and 0 < sizes[-1] <= 3
    assert sum(sizes) == len(cells_of(workspace))


def test_a_plan_that_another_job_changed_is_rejected(workspace: Workspace) -> None:
    """Protected: the challenges of the night. Each job of a run can replace the artifacts of the others."""
    given = {"PROFILE": "nightly", "SELECT": "python=3.12 tensorflow=2.21.0", "HOSTS": "r580-h100"}
    _, found, _ = planned(workspace, **given)
    assert received(workspace, found["plan"])[0] == 0
    for name in ("cells.json", "part-1.json", "SHA256SUMS"):
        path = workspace.directory / "night/plan" / name
        before = path.read_text()
        path.write_text(before.replace("0", "1", 1))
        code, cells, said = received(workspace, found["plan"], "1")
        assert (code, cells) == (2, []), name
        assert "night/plan is not the plan of this night" in said, name
        path.write_text(before)


# -- waiting ---------------------------------------------------------------------------------------------


def jobs(**statuses: str) -> list[dict[str, str]]:
    return [{"name": f"part 1 / validate {name}", "status": status} for name, status in statuses.items()]


def waited(workspace: Workspace, **environment: str) -> str:
    given = {"EVERY_S": "0", "IDLE_MINUTES": "0"} | environment
    if not (workspace.directory / "night/plan").exists():
        workspace.planned(*CELLS)
    done = workspace.run("wait", **given)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_waiting_ends_when_all_jobs_have_ended(workspace: Workspace) -> None:
    workspace.state.jobs = [
        *jobs(a="completed", b="completed", c="completed"),
        {"name": "end", "status": "queued"},
    ]
    assert waited(workspace, IDLE_MINUTES="999") == "wait: all 3 validations have finished\n"
    assert len(workspace.state.calls) == 1


def test_waiting_ends_if_a_runner_is_offline(workspace: Workspace) -> None:
    workspace.state.jobs = jobs(a="completed", b="queued", c="queued")
    said = waited(workspace)
    assert "continuing with 1 of 3 validations; 0 running, 2 waiting for a runner" in said


def test_running_jobs_are_waited_for_up_to_a_limit(workspace: Workspace) -> None:
    workspace.state.jobs = jobs(a="completed", b="in_progress", c="queued")
    said = waited(workspace, LONGEST_MINUTES="0")
    assert "continuing with 1 of 3 validations; 1 running, 1 waiting for a runner" in said


def test_running_jobs_are_waited_for_until_they_end(workspace: Workspace) -> None:
    workspace.state.jobs = jobs(a="in_progress", b="queued", c="queued")
    workspace.state.later = [
        jobs(a="in_progress", b="queued", c="queued"),
        jobs(a="completed", b="in_progress", c="queued"),
        jobs(a="completed", b="completed", c="in_progress"),
        jobs(a="completed", b="completed", c="completed"),
    ]
    assert "all 3 validations have finished" in waited(workspace)
    assert len(workspace.state.calls) == 5


def test_jobs_that_github_has_not_made_yet_are_waited_for(workspace: Workspace) -> None:
    assert "continuing with 0 of 3" in waited(workspace)


def test_without_cells_there_is_no_waiting(workspace: Workspace) -> None:
    workspace.planned()
    assert "all 0 validations" in waited(workspace, IDLE_MINUTES="999")


def test_requests_to_github_are_retried_and_then_given_up(workspace: Workspace) -> None:
    said = waited(workspace, GH_TOKEN="")
    assert "can't be listed; retrying" in said
    assert "continuing with none of 3" in said


def test_a_run_with_jobs_that_no_runner_started_is_cancelled(workspace: Workspace) -> None:
    workspace.state.jobs = [*jobs(a="completed", b="queued"), {"name": "end", "status": "in_progress"}]
    done = workspace.run("end")
    assert done.returncode == 0, done.stderr
    assert workspace.state.cancelled == ["7"]
    assert "validate b" in done.stderr and "validate a" not in done.stderr


def test_a_finished_run_is_not_cancelled(workspace: Workspace) -> None:
    workspace.state.jobs = [*jobs(a="completed"), {"name": "end", "status": "in_progress"}]
    assert workspace.run("end").returncode == 0
    assert workspace.state.cancelled == []


# -- earlier records -------------------------------------------------------------------------------------


def earlier(workspace: Workspace, number: int, *, records: str | None = "", **values: str) -> dict[str, Any]:
    directory = workspace.artifacts / str(number)
    if records is not None:
        (directory / "records").mkdir(parents=True)
        (directory / "records" / "records.jsonl").write_text(records)
    return {
        "databaseId": number,
        "event": "schedule",
        "headBranch": "main",
        "artifacts": str(directory),
    } | values


def test_the_records_of_the_newest_earlier_night_are_fetched(workspace: Workspace) -> None:
    workspace.state.runs = [
        earlier(workspace, 7, records="this run"),
        earlier(workspace, 6, records="a stranger's", event="pull_request"),
        earlier(workspace, 5, records=None),
        earlier(workspace, 4, records="wanted"),
        earlier(workspace, 3, records="too old"),
    ]
    done = workspace.run("history")
    assert done.returncode == 0, done.stderr
    assert (workspace.directory / "night/history/records.jsonl").read_text() == "wanted"


def test_the_first_night_has_no_history(workspace: Workspace) -> None:
    workspace.state.runs = [earlier(workspace, 7)]
    done = workspace.run("history")
    assert done.returncode == 0
    assert done.stderr == "history: no earlier night has records, so this is the first\n"


def test_a_failed_request_for_the_history_is_an_error(workspace: Workspace) -> None:
    assert workspace.run("history", GH_TOKEN="").returncode != 0


def test_nothing_is_fetched_if_records_are_in_a_database(workspace: Workspace) -> None:
    assert workspace.run("history", VALIDATOR_STORE="postgresql+psycopg://nowhere/x").returncode == 0
    assert workspace.state.calls == []


# -- merging ---------------------------------------------------------------------------------------------


def merged(workspace: Workspace) -> set[str]:
    with open(workspace.directory / "night/merged/records.jsonl", "rb") as stream:
        return {record.cell for record in record_files.read(stream, "records.jsonl")}


def test_old_and_new_records_are_merged_and_missing_ones_reported(workspace: Workspace) -> None:
    workspace.records("history/records.jsonl", decline("tf2@r535-a100").newest)
    workspace.records("tonight/records-tf1@r580-h100/records.jsonl", decline("tf1@r580-h100").newest)
    workspace.records("tonight/records-build-tf2/records.jsonl", decline("tf2@no-gpu").newest)
    workspace.planned(*CELLS)
    done = workspace.run("merge")
    assert done.returncode == 0, done.stderr
    assert merged(workspace) == {"tf2@r535-a100", "tf1@r580-h100", "tf2@no-gpu"}
    missing = workspace.summary.read_text()
    assert "- `tf2@r580-h100`\n- `tf2@r535-a100`\n" in missing
    assert "tf1" not in missing


def test_a_night_without_validations_is_merged_too(workspace: Workspace) -> None:
    workspace.records("tonight/records-build-tf2/records.jsonl", decline("tf2@no-gpu").newest)
    workspace.planned()
    done = workspace.run("merge")
    assert done.returncode == 0, done.stderr
    assert merged(workspace) == {"tf2@no-gpu"}


def test_a_first_night_that_measured_nothing_is_merged_too(workspace: Workspace) -> None:
    workspace.planned(*CELLS)
    done = workspace.run("merge")
    assert done.returncode == 0, done.stderr
    assert merged(workspace) == set()
    assert "- `tf1@r580-h100`\n" in workspace.summary.read_text()


def test_a_runner_that_sends_nonsense_spoils_only_its_own_records(workspace: Workspace) -> None:
    workspace.records("tonight/records-tf1@r580-h100/records.jsonl", decline("tf1@r580-h100").newest)
    workspace.records("tonight/records-tf2@r580-h100/records.jsonl", decline("tf2@r580-h100").newest)
    path = workspace.directory / "night/tonight/records-tf1@r580-h100/records.jsonl"
    path.write_text(path.read_text().replace("failed", "certified"))
    workspace.planned(*CELLS)
    done = workspace.run("merge")
    assert done.returncode == 0, done.stderr
    reason = r"Refused records-tf1@r580-h100: records-tf1@r580-h100/records.jsonl:1: record .* it was altered"
    assert re.search(reason, done.stderr)
    assert merged(workspace) == {"tf2@r580-h100"}
    summary = workspace.summary.read_text()
    assert "- `tf1@r580-h100`\n- `tf2@r535-a100`\n" in summary
    assert "### Artifacts that were refused" in summary and "| `records-tf1@r580-h100` | `" in summary
    [refused] = json.loads((workspace.directory / "night/merged/refused.json").read_text())
    assert refused["artifact"] == "records-tf1@r580-h100" and "it was altered" in refused["reason"]


def test_an_old_record_from_the_future_does_not_stop_the_night(workspace: Workspace) -> None:
    odd = cell(Verdict.WORKS_ON_CPU, -400)
    workspace.records("history/records.jsonl", odd, cell(Verdict.FAILED, 1))
    workspace.planned(*CELLS)
    done = workspace.run("merge")
    assert done.returncode == 0, done.stderr
    with open(workspace.directory / "night/merged/records.jsonl", "rb") as stream:
        assert odd in record_files.read(stream, "records.jsonl")
    assert told(workspace, odd, cell(Verdict.FAILED, 1)).issues == []


def test_an_unreachable_database_is_an_error(workspace: Workspace) -> None:
    workspace.records("tonight/records-tf1@r580-h100/records.jsonl", decline("tf1@r580-h100").newest)
    workspace.planned(*CELLS)
    done = workspace.run("merge", VALIDATOR_STORE="/proc/nothing/records.db")
    assert done.returncode == 3, done.stderr
    assert not (workspace.directory / "night/merged/records.jsonl").exists()


# -- making images again ---------------------------------------------------------------------------------


def test_only_what_passed_tonight_is_made_again(workspace: Workspace) -> None:
    def of(verdict: Verdict, letter: str, challenge: str) -> Record:
        return decline(
            "tf1@r580-h100", verdict=verdict, image_digest=letter, report={"challenge": challenge}
        ).newest

    good, bad, other = (f"sha256:{letter * 64}" for letter in "abc")
    workspace.records(
        "records.jsonl",
        of(Verdict.CERTIFIED, good, "1" * 64),
        of(Verdict.CERTIFIED, good, "2" * 64),
        of(Verdict.FAILED, bad, "1" * 64),
        of(Verdict.CERTIFIED, other, "3" * 64),
        of(Verdict.CERTIFIED, f"--help{good}", "1" * 64),
    )
    cells = {"include": [{"id": "a", "challenge": "1" * 64}, {"id": "b", "challenge": "2" * 64}]}
    workspace.planned()
    (workspace.directory / "night/plan/cells.json").write_text(json.dumps(cells))
    done = workspace.run("rebuild", REGISTRY="not a repository")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"::warning::{good} could not be made again from its lock; the reason is above\n"
    assert "not a repository" in done.stderr


# -- the issue -------------------------------------------------------------------------------------------


def days_ago(days: int) -> str:
    return (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="seconds")


def cell(verdict: Verdict, days: int, **values: Any) -> Record:
    """Return a record of a night. `works-on-cpu` has a report that gives it."""
    made = decline(
        "tf1@r580-h100", verdict=verdict, image="tf1-cpu-py312", finished=days_ago(days), **values
    ).newest
    return proven(made) if verdict is Verdict.WORKS_ON_CPU else made


def told(workspace: Workspace, *records: Record, refused: Sequence[RefusedArtifact] = ()) -> State:
    workspace.records("records.jsonl", *records)
    (workspace.directory / "night/refused.json").write_text(json.dumps(encode(refused)))
    done = workspace.run("issue")
    assert done.returncode == 0, done.stderr
    (workspace.directory / "night" / "regressions.db").unlink()
    return workspace.state


def test_one_issue_is_opened_kept_up_to_date_and_closed(workspace: Workspace) -> None:
    good, bad = cell(Verdict.WORKS_ON_CPU, 3), cell(Verdict.FAILED, 2, reason="cudnn_load: first")
    assert told(workspace, good).issues == []

    [issue] = told(workspace, good, bad).issues
    assert (issue["state"], issue["labels"]) == ("open", [LABEL])
    assert issue["body"].startswith("1 cell is worse than before.")
    assert str(good.image_digest) in issue["body"]
    assert "cudnn_load: first" in issue["body"]

    worse = cell(Verdict.FAILED, 1, reason="cudnn_load: second")
    [issue] = told(workspace, good, bad, worse).issues
    assert "cudnn_load: second" in issue["body"]

    [issue] = told(workspace, good, bad, worse, cell(Verdict.WORKS_ON_CPU, 0)).issues
    assert (issue["state"], len(issue["comments"])) == ("closed", 1)

    told(workspace, good, bad, worse, cell(Verdict.WORKS_ON_CPU, 0))
    assert [len(issue["comments"]) for issue in workspace.state.issues] == [1], "closed once"

    told(workspace, good, bad)
    assert [issue["state"] for issue in workspace.state.issues] == ["closed", "open"], "a new regression"


def test_refused_artifacts_are_counted_in_the_issue(workspace: Workspace) -> None:
    good, bad = cell(Verdict.WORKS_ON_CPU, 3), cell(Verdict.FAILED, 2)
    refused = [
        RefusedArtifact("records-a", "a:1: it was altered"),
        RefusedArtifact("x`@team\n## y", "::error::<b>"),
    ]
    [issue] = told(workspace, good, refused=refused).issues
    assert issue["state"] == "open" and issue["body"].startswith("No cell is worse than before.")
    assert "2 artifacts were refused tonight" in issue["body"]
    assert "| `records-a` | `a:1: it was altered` |" in issue["body"]
    assert "\n## y" not in issue["body"] and "<b>" not in issue["body"]
    [issue] = told(workspace, good, bad, refused=refused[:1]).issues
    assert issue["body"].startswith("1 cell is worse than before.")
    assert "1 artifact was refused tonight" in issue["body"]
    [issue] = told(workspace, good).issues
    assert issue["state"] == "closed"


def test_the_oldest_of_several_open_issues_is_kept(workspace: Workspace) -> None:
    for number in (1, 2):
        workspace.state.issues.append(
            {"number": number, "labels": [LABEL], "body": "", "state": "open", "comments": []}
        )
    first, second = told(workspace, cell(Verdict.WORKS_ON_CPU, 3), cell(Verdict.FAILED, 2)).issues
    assert first["body"] and not second["body"]


def test_the_shell_runs_nothing_from_a_record_and_other_issues_are_not_changed(workspace: Workspace) -> None:
    mine = {"number": 1, "labels": ["bug"], "body": "mine", "state": "open", "comments": []}
    workspace.state.issues.append(dict(mine))
    reason = "$(touch owned) `touch owned` ; touch owned --title x\n@team"
    other, issue = told(
        workspace, cell(Verdict.WORKS_ON_CPU, 3), cell(Verdict.FAILED, 2, reason=reason)
    ).issues
    assert other == mine
    assert not list(workspace.directory.rglob("owned"))
    assert "$(touch owned)" in issue["body"]
    for call in workspace.state.calls:
        assert not any("touch" in argument for argument in call), "texts of records reach gh in a file"


def test_without_github_the_step_fails(workspace: Workspace) -> None:
    workspace.records("records.jsonl", cell(Verdict.WORKS_ON_CPU, 3), cell(Verdict.FAILED, 2))
    assert workspace.run("issue", GH_TOKEN="").returncode != 0
