"""Test the commands: exit codes, clean stdout, and that wrong input changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from validator import cli
from validator.cli.planning import load_plan
from validator.errors import InputError, MissingError, ValidatorError
from validator.records.store import Store

from ..corpus.reader import REPORTS
from ..records.values import record

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("releases_up_to_2_22rc")


@pytest.fixture
def project_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a current directory with a copy of the matrix, for commands that end before they read a lock."""
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def project(project_without_locks: Path) -> Path:
    """Make a current directory with a copy of the matrix and its locks."""
    shutil.copytree(ROOT / "images" / "locks", project_without_locks / "images" / "locks")
    return project_without_locks


def run_process(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "validator", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def predict(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = cli.run(["predict", *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    # Only a predicted failure exits with 1; an unknown outcome does not.
    assert code == (1 if found["prediction"]["outcome"] == "fails" else 0)
    return found


@pytest.mark.parametrize(
    ("arguments", "outcome", "fact"),
    [
        ("--tensorflow 2.21.0 --policy latest --driver 580 --gpu v100", "fails", "cudnn"),
        (
            "--tensorflow 2.21.0 --policy as-built --driver 580.95.05 --gpu v100",
            "unknown",
            "KB-FUSED-CONV-GPU",
        ),
        ("--tensorflow 2.21.0 --policy as-built --driver 590.44.01 --gpu v100", "fails", None),
        ("--tensorflow 2.21.0 --driver 535.183.01 --gpu h100", "fails", "ptx-8.5"),
        ("--tensorflow 2.21.0 --driver 535.183.01 --compute-capability 9.0", "fails", "ptx-8.5"),
        ("--tensorflow 2.21.0 --cudnn 9.24 --driver 535.183.01 --gpu a100", "works", None),
        ("--tensorflow 2.21.0 --mode eager --driver 525.60.13 --gpu a100", "works", None),
        ("--tensorflow 2.21.0 --driver 525.53 --gpu a100", "fails", None),
        ("--tensorflow 2.15.0 --policy latest --driver 580 --gpu a100", "fails", "KB-TRT-2150"),
        ("--tensorflow 2.15.1 --policy latest --driver 580 --gpu a100", "works", None),
        ("--tensorflow 2.21.0 --driver 535 --gpu h200 --compat 12.9", "works", None),
        ("--tensorflow 2.21.0 --cudnn 9.24 --driver 535 --gpu a100 --compat 12.9", "works", None),
        ("--tensorflow 2.21.0 --driver 535 --gpu rtx-4090 --compat 12.9", "fails", None),
        ("--tensorflow 2.18.1 --driver 570 --gpu a100", "works", None),
        ("--tensorflow 2.18.0 --driver 570 --gpu a100", "works", None),
        (
            "--tensorflow 2.21.0 --cuda 12.9 --cudnn 9.10 --driver 570 --gpu t4",
            "unknown",
            "KB-FUSED-CONV-CUDNN",
        ),
        ("--tensorflow 2.21.0 --cudnn 9.3 --driver 580 --gpu t4", "fails", "KB-FUSED-CONV"),
        ("--tensorflow 2.21.0 --driver 570 --gpu rtx-5090", "fails", None),
        ("--tensorflow 2.21.0 --driver 470 --gpu t4", "fails", None),
        ("--tensorflow 2.21.0 --python 3.9 --driver 570 --gpu t4", "fails", None),
        ("--tensorflow 2.21.0 --variant cpu", "works", None),
        ("--tensorflow 2.14.1 --driver 580 --gpu h100", "works", None),
        ("--tensorflow 2.21.0 --driver 999.10 --gpu a100", "unknown", None),
        ("--tensorflow 2.21.0 --driver 630.10 --gpu a100", "unknown", None),
        (
            "--tensorflow 2.21.0 --cudnn 9.24 --driver 580 --gpu new-card --compute-capability 8.6",
            "works",
            None,
        ),
    ],
)
def test_predictions(
    capsys: pytest.CaptureFixture[str], arguments: str, outcome: str, fact: str | None
) -> None:
    found = predict(capsys, *arguments.split())
    prediction = found["prediction"]
    assert prediction["outcome"] == outcome, prediction["reasons"][0]
    assert all(reason["text"] and reason["fact"] and reason["source"] for reason in prediction["reasons"])
    if fact:
        assert prediction["reasons"][0]["fact"].startswith(fact)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tensorflow 3.0 --driver 580 --gpu a100", "3.0"),
        ("--tensorflow 2.21.0 --driver 13.9 --gpu a100", "no known driver branch shows CUDA 13.9"),
        ("--tensorflow 2.21.0 --driver 5355 --gpu a100", "no driver branch R5355; the newest are R6"),
        ("--tensorflow 2.21.0 --driver 580 --gpu h1000", 'GPU "h1000" is not known; the nearest'),
        ("--tensorflow 2.21.0 --driver 580 --gpu 4000", "the nearest are Quadro RTX 4000, RTX A4000"),
        ("--tensorflow 2.21.0 --driver 580 --gpu a100 --compute-capability 9.0", "A100 has 8.0"),
        ("--tensorflow 2.21.0 --cudnn 9.99 --driver 580 --gpu a100", '"9.99" is not known; the nearest are'),
        ("--tensorflow 2.21.0 --python three --driver 580 --gpu a100", "is not a Python version"),
        ("--tensorflow 2.21.0 --driver 580 --gpu a100 --compat x", "--compat"),
    ],
)
def test_unknown_values_are_reported(arguments: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        cli.run(["predict", *arguments.split()])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "frobnicate", "plan --frobnicate", "plan --format xml", "build-matrix --jobs 0", "predict",
        "predict --tensorflow 2.21.0 --gpu a100", "predict --tensorflow 2.21.0 --driver 580",
        "records import",
        "check --image a --python setup.py", "check --list --format junit", "check --depth deep",
        "lock --check --upgrade", "lock --check --layers", "report --output x",
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2(
    project_without_locks: Path, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project_without_locks / "setup.py").touch()
    assert cli.run(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error:" in captured.err
    assert not (project_without_locks / ".validator").exists()


def test_plan_writes_json_and_a_github_matrix(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", "--select", "gpu=h100", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    wanted = {"id", "image", "tensorflow", "python", "cuda", "cudnn", "host", "driver", "gpu", "prediction"}
    assert all(wanted <= cell.keys() and cell["gpu"] == "h100" for cell in cells)
    assert cli.run(["plan", "--select", "gpu=h100", "--format", "github"]) == 0
    rows = json.loads(capsys.readouterr().out)["include"]
    assert [row["id"] for row in rows] == [cell["id"] for cell in cells]


@pytest.mark.slow
def test_a_long_plan_is_one_github_matrix_per_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", "--profile", "full", "--select", "tensorflow=2.21.0", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    assert cli.run(["plan", "--profile", "full", "--select", "tensorflow=2.21.0", "--format", "github"]) == 0
    matrices = [json.loads(line)["include"] for line in capsys.readouterr().out.splitlines()]
    assert len(matrices) > 1 and max(map(len, matrices)) == 256
    assert [row["id"] for matrix in matrices for row in matrix] == [cell["id"] for cell in cells]
    # The challenges of all of them are in one file.
    asked = ["certify", "challenges", "--profile", "full", "--select", "tensorflow=2.21.0"]
    assert cli.run(asked) == 0
    assert len(json.loads(capsys.readouterr().out)["include"]) == len(cells)


def test_a_floating_version_is_predicted_from_its_lock(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "--profile", "nightly", "--select", "tensorflow=2.21", "--select", "policy=latest"]
    arguments += ["--select", "python=3.12", "--select", "host=r580-v100", "--json"]
    assert cli.run(arguments) == 0
    [cell] = json.loads(capsys.readouterr().out)
    assert cell["prediction"]["outcome"] == "fails"
    path = project / "images" / "locks" / f"{cell['image']}.txt"
    lock = path.read_text()
    assert "nvidia-cudnn-cu12==9.28" in lock
    assert "9.28" in cell["prediction"]["reasons"][0]["text"]


@pytest.mark.parametrize("command", ["plan", "lock", "build-matrix", "report"])
def test_an_error_in_the_matrix_has_its_position_and_nothing_is_changed(
    project_without_locks: Path, command: str
) -> None:
    text = (project_without_locks / "matrix.yaml").read_text().replace('cudnn: "9.10"', 'cudnn: "9.99"', 1)
    (project_without_locks / "matrix.yaml").write_text(text)
    with pytest.raises(InputError, match=r'matrix\.yaml:\d+:\d+: images\[1\]\.cudnn: "9\.99" is not known'):
        cli.run([command])
    assert not (project_without_locks / ".validator").exists()


@pytest.mark.parametrize("command", ["plan", "lock", "build-matrix", "report"])
def test_selecting_nothing_is_an_error(project_without_locks: Path, command: str) -> None:
    with pytest.raises(InputError, match=r"has no cell that matches tensorflow=2\.14"):
        cli.run([command, "--select", "tensorflow=2.14"])
    assert not (project_without_locks / ".validator").exists()


def test_lock_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ["lock", "--check", "--profile", "nightly", "--select", "image=tf2.21.0-cuda12.5-cudnn9.3-py312"]
    assert cli.run(check) == 0
    path = project / "images" / "locks" / "tf2.21.0-cuda12.5-cudnn9.3-py312.txt"
    good = path.read_text()
    path.write_text(good.replace("# requires: nvidia-cudnn-cu12==9.3.0.75\n", ""))
    assert cli.run(check) == 2
    assert "the spec requires nvidia-cudnn-cu12==9.3.0.75" in capsys.readouterr().err
    path.write_text(good.replace("==9.3.0.75 --hash", "==9.4.0.58 --hash"))
    assert cli.run(check) == 2
    assert "the file was edited by hand or is incomplete" in capsys.readouterr().err
    path.unlink()
    assert cli.run(check) == 2
    assert "there is no lock yet" in capsys.readouterr().err


@pytest.mark.engine
def test_build_matrix_rejects_a_broken_lock_first(project: Path) -> None:
    for path in (project / "images" / "locks").glob("tf2.21.0-*.txt"):
        path.write_text(re.sub("==[0-9.]+ --hash", "==9.4.0.58 --hash", path.read_text()))
    with pytest.raises(InputError, match="the file was edited by hand or is incomplete"):
        cli.run(["build-matrix", "--engine", "venv"])
    assert not (project / ".validator").exists()


def test_a_missing_docker_engine_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{project}/nothing.sock")
    with pytest.raises(MissingError, match="no Docker Engine") as caught:
        cli.run(["build-matrix", "--engine", "docker"])
    assert caught.value.exit_code == 3
    assert not (project / ".validator").exists()


def test_records_are_exported_and_imported(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(str(project / ".validator" / "records.db")) as store:
        for number in range(3):
            store.add(record(number))
    assert cli.run(["records", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    wanted = {
        "id",
        "cell",
        "verdict",
        "engine",
        "image_digest",
        "lock_digest",
        "host",
        "checks",
        "started",
        "finished",
    }
    assert len(listed) == 3
    assert all(wanted <= entry.keys() for entry in listed)
    assert cli.run(["records", "show", listed[0]["id"][:10]]) == 0
    assert "unproven: no GPU" in capsys.readouterr().out
    assert cli.run(["records", "export", "--output", "out.jsonl"]) == 0
    for expected in ("3 records imported, 0 already present", "0 records imported, 3 already present"):
        assert cli.run(["records", "import", "out.jsonl", "--store", "other.db"]) == 0
        assert expected in capsys.readouterr().err
    assert cli.run(["records", "list", "--store", "other.db", "--verdict", "certified", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_file_with_one_wrong_line_is_not_imported(project: Path) -> None:
    with Store("one.db") as store:
        store.add(record(1))
    cli.run(["records", "export", "--store", "one.db", "--output", "out.jsonl"])
    with open("out.jsonl", "a") as stream:
        stream.write("{}\n")
    with pytest.raises(InputError, match=r"out\.jsonl:2: not a record"):
        cli.run(["records", "import", "out.jsonl", "--store", "other.db"])
    assert not (project / "other.db").exists()


def test_reports_are_imported_and_never_certified(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [argument for path in sorted(REPORTS.glob("*.json")) for argument in ("--report", str(path))]
    assert reports
    assert cli.run(["records", "import", *reports]) == 0
    capsys.readouterr()
    assert cli.run(["records", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {entry["origin"] for entry in listed} == {"elsewhere"}
    assert "certified" not in {entry["verdict"] for entry in listed}
    (project / "not.json").write_text("[]")
    with pytest.raises(InputError, match="the report: expected `object`, got `array`"):
        cli.run(["records", "import", "--report", "not.json"])


def test_report_writes_every_format(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(str(project / ".validator" / "records.db")) as store:
        [planned] = load_plan(project / "matrix.yaml", None, ()).images
        image = planned.identifier.replace("-py312", "-py311")
        store.add(record(1, cell=f"{image}@no-gpu", image=image))
    assert cli.run(["report"]) == 0
    assert f"{image}@no-gpu" in capsys.readouterr().out
    assert cli.run(["report", "--format", "markdown"]) == 0
    assert f"| `{image}@no-gpu` |  | **unproven** | no GPU |" in capsys.readouterr().out
    assert cli.run(["report", "--format", "json", "--output", "report.json"]) == 0
    rows = json.loads((project / "report.json").read_text())
    assert [row["measured"]["verdict"] for row in rows if row["measured"]] == ["unproven"]
    assert {row["image"] for row in rows} == {image}


@pytest.mark.slow
def test_check_with_a_python_that_has_no_tensorflow_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "--python", sys.executable, "--json"]) == 1
    captured = capsys.readouterr()
    build = next(check for check in json.loads(captured.out)["checks"] if check["id"] == "tensorflow_build")
    assert build["outcome"] == "fail"
    assert [problem["code"] for problem in build["problems"]] == ["tensorflow_missing"]


@pytest.mark.slow
def test_check_lists_the_checks_of_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "--list", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    wanted = {"id", "stage", "depth", "requires", "required", "limit_s", "title"}
    assert all(wanted <= check.keys() for check in checks)
    assert {check["depth"] for check in checks} == {"quick", "full"}
    assert cli.run(["check", "--list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["check", "stage", "depth", "required", "requires", "limit", "asks"]
    assert [row.split()[0] for row in rows] == [check["id"] for check in checks]
    row = rows[[check["id"] for check in checks].index("lock_match")]
    assert row.split()[:7] == ["lock_match", "host", "quick", "yes", "lock", "10", "s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--only", "driver", "--only", "lock_match"], {"driver", "lock_match"}),
        (["--only", "driver", "--only", "lock_match", "--skip", "driver"], {"lock_match"}),
        (["--only", "memory"], {"memory"}),
    ],
)
def test_checks_are_selected_by_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: set[str]
) -> None:
    cli.run(["check", "--python", sys.executable, *arguments, "--json"])
    assert {check["id"] for check in json.loads(capsys.readouterr().out)["checks"]} == expected


@pytest.mark.slow
def test_the_depth_selects_checks_and_skip_removes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "--list", "--json"]) == 0
    depths = {check["id"]: check["depth"] for check in json.loads(capsys.readouterr().out)}
    for depth in ("quick", "full"):
        cli.run(["check", "--python", sys.executable, "--depth", depth, "--skip", "driver", "--json"])
        found = {check["id"] for check in json.loads(capsys.readouterr().out)["checks"]}
        assert found == {name for name in depths if depths[name] in ("quick", depth)} - {"driver"}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_an_unknown_check_is_reported_with_the_known_ones(option: str) -> None:
    with pytest.raises(InputError, match='there is no check "drivers"') as caught:
        cli.run(["check", option, "drivers"])
    assert "driver, gpu_device_nodes, " in (caught.value.hint or "")


@pytest.mark.slow
def test_selecting_and_skipping_the_same_check_is_an_error() -> None:
    with pytest.raises(InputError, match="there is no check left to run"):
        cli.run(["check", "--only", "driver", "--skip", "driver"])


@pytest.mark.slow
def test_check_writes_junit(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--python", sys.executable, "--only", "driver", "--only", "tensorflow_build"]
    assert cli.run([*arguments, "--format", "junit"]) == 1
    root = ElementTree.fromstring(capsys.readouterr().out)
    assert [suite.attrib["name"] for suite in root] == ["host", "tensorflow"]
    [failure] = root.iter("failure")
    assert "TensorFlow is not installed" in failure.attrib["message"]


@pytest.mark.slow
def test_the_probe_can_be_saved_for_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "probe.pyz"
    assert cli.run(["check", "--save-probe", str(path)]) == 0
    done = subprocess.run([sys.executable, str(path), "--host-facts"], capture_output=True, check=True)
    assert "kernel" in json.loads(done.stdout)


@pytest.mark.slow
def test_errors_go_to_stderr_with_a_hint_and_an_exit_code(tmp_path: Path) -> None:
    done = run_process("plan", "--matrix", str(tmp_path / "absent.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "  hint: " in done.stderr


@pytest.mark.slow
def test_stdout_has_only_the_json() -> None:
    done = run_process("plan", "--select", "gpu=t4", "--json", "-v")
    assert done.returncode == 0
    assert json.loads(done.stdout)
    assert "cells:" in done.stderr


@pytest.mark.service
def test_a_reader_that_closes_the_pipe_early_causes_no_error() -> None:
    command = f"{sys.executable} -m validator plan --profile full --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[\n"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_every_error_class_has_its_exit_code() -> None:
    assert (ValidatorError("x").exit_code, InputError("x").exit_code, MissingError("x").exit_code) == (
        1,
        2,
        3,
    )
