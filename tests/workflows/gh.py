"""Stands in for GitHub's command line, whose server can't run here; its filters are those of jq.

It takes the options that the scripts use and no others, as the manual of gh 2 names them, so that a slip is
an error. Run as a program, with the state's path in FAKE_GH.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jq


@dataclass
class State:
    """The state of GitHub. path: the file that holds it.

    jobs: name and status of the jobs of the run. later: what they are when asked again.
    runs: `databaseId`, `event`, `headBranch`, newest first, each with the directory of its artifacts.
    calls: every command, in order.
    """

    path: Path
    jobs: list[dict[str, str]] = field(default_factory=list)
    later: list[list[dict[str, str]]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> State:
        return cls(path, **json.loads(path.read_text()))

    def write(self) -> None:
        content = {name: value for name, value in vars(self).items() if name != "path"}
        self.path.write_text(json.dumps(content, indent=1))

    @property
    def open(self) -> list[dict[str, Any]]:
        return [issue for issue in self.issues if issue["state"] == "open"]


def main(arguments: list[str]) -> None:
    state = State.read(Path(os.environ["FAKE_GH"]))
    state.calls.append(arguments)
    state.write()
    if not os.environ.get("GH_TOKEN"):
        sys.exit("gh: To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable.")
    if arguments[0] == "api":
        _api(state, _parsed(arguments[1:], "path", "--paginate", "--jq="))
    else:
        handler, options = _COMMANDS[" ".join(arguments[:2])]
        handler(state, _parsed(arguments[2:], *options))
    state.write()


def _parsed(arguments: list[str], *options: str) -> argparse.Namespace:
    """Options by name; `--x=` takes a value, `--x` is a switch, the others are positions."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in options:
        if option.startswith("-") and not option.endswith("="):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option.removesuffix("="))
    return parser.parse_args(arguments)


def _show(document: Any, program: str | None) -> None:
    for value in jq.compile(program or ".").input_value(document).all():
        print(value if isinstance(value, str) else json.dumps(value))


def _api(state: State, given: argparse.Namespace) -> None:
    if re.search(r"/actions/runs/\d+/attempts/\d+/jobs\?per_page=100$", given.path):
        _show({"jobs": state.jobs}, given.jq)
        state.jobs = state.later.pop(0) if state.later else state.jobs
    elif found := re.search(r"/actions/runs/(\d+)/artifacts\?name=([\w-]+)$", given.path):
        there = _artifact(state, found[1], found[2]).is_dir()
        _show({"artifacts": [{"id": 1, "expired": False}] if there else []}, given.jq)
    else:
        sys.exit(f"gh: Not Found (HTTP 404): {given.path}")


def _run_list(state: State, given: argparse.Namespace) -> None:
    found = [run for run in state.runs if run["headBranch"] == given.branch]
    names = given.json.split(",")
    _show([{name: run[name] for name in names} for run in found[: int(given.limit)]], given.jq)


def _run_download(state: State, given: argparse.Namespace) -> None:
    shutil.copytree(_artifact(state, given.run, given.name), given.dir, dirs_exist_ok=True)


def _run_view(state: State, given: argparse.Namespace) -> None:
    assert given.json == "jobs"
    _show({"jobs": state.jobs}, given.jq)


def _run_cancel(state: State, given: argparse.Namespace) -> None:
    state.cancelled.append(given.run)


def _artifact(state: State, run: str, name: str) -> Path:
    known = {str(one["databaseId"]): one["artifacts"] for one in state.runs}
    return Path(known.get(run, "/nonexistent")) / name


def _issue_list(state: State, given: argparse.Namespace) -> None:
    found = [issue for issue in state.open if given.label in issue["labels"]]
    assert given.state == "open" and given.json == "number"
    # Newest first, as GitHub gives them.
    _show([{"number": issue["number"]} for issue in reversed(found)][: int(given.limit)], given.jq)


def _issue_create(state: State, given: argparse.Namespace) -> None:
    if given.label not in state.labels:
        sys.exit(f"could not add label: '{given.label}' not found")
    state.issues.append(
        {
            "number": len(state.issues) + 1,
            "title": given.title,
            "labels": [given.label],
            "body": Path(given.body_file).read_text(),
            "state": "open",
            "comments": [],
        }
    )


def _issue_edit(state: State, given: argparse.Namespace) -> None:
    state.issues[int(given.number) - 1]["body"] = Path(given.body_file).read_text()


def _issue_close(state: State, given: argparse.Namespace) -> None:
    issue = state.issues[int(given.number) - 1]
    issue["state"] = "closed"
    issue["comments"].append(given.comment)


def _label_create(state: State, given: argparse.Namespace) -> None:
    if given.name in state.labels and not given.force:
        sys.exit(f'label with name "{given.name}" already exists; use `--force` to update it')
    state.labels = [*{*state.labels, given.name}]


def _auth_setup_git(state: State, given: argparse.Namespace) -> None:
    """Do nothing: git needs no token for a directory."""


def _pr_list(state: State, given: argparse.Namespace) -> None:
    found = [pull for pull in state.pulls if (pull["head"], pull["state"]) == (given.head, given.state)]
    assert given.json == "number"
    _show([{"number": pull["number"]} for pull in found][: int(given.limit)], given.jq)


def _pr_create(state: State, given: argparse.Namespace) -> None:
    body = Path(given.body_file).read_text()
    pull = {"head": given.head, "base": given.base, "title": given.title, "body": body, "state": "open"}
    state.pulls.append({"number": len(state.pulls) + 1} | pull)


def _pr_edit(state: State, given: argparse.Namespace) -> None:
    state.pulls[int(given.number) - 1]["body"] = Path(given.body_file).read_text()


_COMMANDS = {
    "run list": (_run_list, ("--workflow=", "--branch=", "--limit=", "--json=", "--jq=")),
    "run download": (_run_download, ("run", "--name=", "--dir=")),
    "run view": (_run_view, ("run", "--json=", "--jq=")),
    "run cancel": (_run_cancel, ("run",)),
    "issue list": (_issue_list, ("--label=", "--state=", "--limit=", "--json=", "--jq=")),
    "issue create": (_issue_create, ("--title=", "--label=", "--body-file=")),
    "issue edit": (_issue_edit, ("number", "--body-file=")),
    "issue close": (_issue_close, ("number", "--comment=")),
    "auth setup-git": (_auth_setup_git, ()),
    "pr list": (_pr_list, ("--head=", "--state=", "--limit=", "--json=", "--jq=")),
    "pr create": (_pr_create, ("--head=", "--base=", "--title=", "--body-file=")),
    "pr edit": (_pr_edit, ("number", "--body-file=")),
    "label create": (_label_create, ("name", "--force", "--color=", "--description=")),
}

if __name__ == "__main__":
    main(sys.argv[1:])
