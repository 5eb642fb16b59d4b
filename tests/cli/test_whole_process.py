"""Test what only a whole process shows: its exit code, both outputs, and its reaction to signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from validator import cli
from validator.errors import EXIT_INPUT, EXIT_INTERRUPTED, InputError, MissingError
from validator.records.store import Store

from ..corpus.reader import REPORTS
from ..records.values import record

ROOT = Path(__file__).parents[2]
REPORT = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"
VALIDATOR = [sys.executable, "-m", "validator"]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Make a matrix outside the current directory."""
    (tmp_path / "project").mkdir()
    return Path(shutil.copy(ROOT / "matrix.yaml", tmp_path / "project"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["plan", "--json"], id="more than Python buffers"),
        pytest.param(["predict", "--tensorflow", "2.21.0", "--variant", "cpu"], id="less than that"),
    ],
)
def test_a_full_disk_behind_stdout_is_an_error(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*VALIDATOR, *arguments],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 3
    assert "error: no space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.service
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_command_cleanly(tmp_path: Path, matrix: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "records.jsonl"
    os.mkfifo(pipe)
    # The shell opens the pipe for the command, which then waits for its first line.
    child = subprocess.Popen(
        ["bash", "-c", 'exec "$@" <"$0"', pipe, *VALIDATOR, "records", "import", "-", "--matrix", matrix],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with open(pipe, "wb"):
        # Until it makes the system call `read` for standard input.
        call = Path(f"/proc/{child.pid}/syscall")
        while child.poll() is None and not call.read_text().startswith("0 0x0 "):
            time.sleep(0.05)
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said.strip()) == (EXIT_INTERRUPTED, "stopped")
    assert not (matrix.parent / ".validator").exists()


def test_records_are_stored_next_to_the_matrix(
    tmp_path: Path, matrix: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["records", "import", "--report", str(REPORT), "--matrix", str(matrix)]) == 0
    assert (matrix.parent / ".validator" / "records.db").is_file()
    assert not (tmp_path / ".validator").exists()
    assert cli.run(["records", "list", "--matrix", str(matrix)]) == 0
    captured = capsys.readouterr()
    assert "imported report" in captured.out
    assert captured.err.endswith("1 record\n")


@pytest.mark.service
def test_records_can_be_piped(tmp_path: Path) -> None:
    for name, numbers in (("one.db", range(5)), ("two.db", range(3, 8))):
        with Store(str(tmp_path / name)) as store:
            for number in numbers:
                store.add(record(number))
    command = " ".join(VALIDATOR)
    done = subprocess.run(
        [
            "bash", "-o", "pipefail", "-c",
            f"{command} records export --store one.db | {command} records import - --store two.db",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "3 records imported, 2 already present" in done.stderr
    with Store(str(tmp_path / "two.db")) as store:
        assert {found.id for found in store.all()} == {record(number).id for number in range(8)}


@pytest.mark.parametrize(
    "arguments",
    [["report", "--format", "json"], ["report", "--format", "markdown"], ["records", "export"]],
)
def test_an_output_that_cannot_be_written_is_an_error(
    tmp_path: Path, matrix: Path, arguments: list[str]
) -> None:
    with pytest.raises(MissingError, match="can't be written") as caught:
        cli.run([*arguments, "--matrix", str(matrix), "--output", str(matrix / "file")])
    assert str(caught.value).startswith(str(matrix / "file"))
    assert cli.run([*arguments, "--matrix", str(matrix), "--output", str(tmp_path)]) == EXIT_INPUT


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("host", "driver"), "what?", '"what\\?" is not a driver release'),
        (("host", "gpus"), [1], r"host\.gpus\[0\]: expected `object`, got `int`"),
        (("host", "gpus"), True, r"host\.gpus: expected `array`, got `bool`"),
        (("host", "gpus"), [{"compute_capability": "nine"}], "is not a compute capability"),
        (("environment", "packages"), ["six"], r"environment\.packages: expected `object`, got `array`"),
        (
            ("environment", "packages"),
            {"six": 1},
            r"environment\.packages\[\.\.\.\]: expected `str`, got `int`",
        ),
    ],
)
def test_an_invalid_report_is_rejected_and_nothing_is_written(
    tmp_path: Path, matrix: Path, place: tuple[str, str], value: object, message: str
) -> None:
    report = json.loads(REPORT.read_bytes())
    report["host"] |= {
        "driver": "535.183.01",
        "gpus": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}],
    }
    report[place[0]][place[1]] = value
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    with pytest.raises(InputError, match=message) as caught:
        cli.run(["records", "import", "--report", str(path), "--matrix", str(matrix)])
    assert str(caught.value).startswith(str(path))
    assert not (matrix.parent / ".validator").exists()


def test_a_prediction_shows_every_reason_with_its_fact_and_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = ["--driver", "535.183.01", "--gpu", "h100"]
    assert cli.run(["predict", "--tensorflow", "2.21.0", "--cuda", "12.5", "--cudnn", "9.3", *machine]) == 1
    cell, outcome, first, source, *others = capsys.readouterr().out.splitlines()
    assert cell.startswith("tf2.21.0-cuda12.5-cudnn9.3-py")
    assert outcome == "fails"
    assert first.startswith("fails  ")
    assert source.strip().startswith("ptx-8.5")
    # A warning has its own heading, since it is not a reason to expect success.
    [warning] = [line for line in others if "no more fixes" in line]
    assert warning.startswith("advisory  driver branch R535, ")


def test_a_release_without_a_machine_shows_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predict", "--tensorflow", "2.18.0"]) == 0
    captured = capsys.readouterr()
    image, *lines = captured.out.splitlines()
    assert image == "tf2.18.0-cuda12.5-cudnn9.3-py312"
    # The first line of a capability has its drivers; a later one may say why there are none.
    shown = {line.split("  ")[0]: line.partition("  ")[2].strip() for line in reversed(lines)}
    assert shown["CUDA"] == "12.5"
    assert shown["cuDNN"] == "9.3.0.75"
    assert shown["driver"] == "525.60.13 or newer"
    assert shown["Python"] == "3.9, 3.10, 3.11, 3.12"
    assert re.split(" {2,}", shown["8.0"]) == ["R525 or newer", "A100, A30, A800"]
    assert shown["7.0"].startswith("R525 to R580")
    assert shown["12.0"].startswith("no driver works ")
    [why] = [line for line in lines if line.startswith("12.0 ") and "no kernels" in line]
    assert "1149 of 1430 translation units of the wheel have no kernels for compute capability 12.0" in why
    assert "--driver and --gpu" in captured.err


@pytest.mark.parametrize(
    ("options", "row", "first", "first_eager"),
    [
        ((), "eager: R570 or newer; with XLA: no driver works", None, 570),
        (("--mode", "eager"), "R570 or newer", 570, 570),
        (("--mode", "xla"), "no driver works", None, None),
    ],
)
def test_a_release_shows_the_drivers_of_each_mode(
    options: tuple[str, ...],
    row: str,
    first: int | None,
    first_eager: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["predict", "--tensorflow", "2.21.0", *options]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"12.0 {row} RTX 50 series") for line in lines)
    # The reason says that it is only about XLA.
    assert any(line.startswith("12.0 XLA: tensorflow 2.21.0 writes PTX") for line in lines) is (first is None)
    assert cli.run(["predict", "--tensorflow", "2.21.0", *options, "--json"]) == 0
    [found] = [
        need for need in json.loads(capsys.readouterr().out)["gpus"] if need["compute_capability"] == "12.0"
    ]
    assert (found["drivers"] or [None])[0] == first
    assert (found["eager_drivers"] or [None])[0] == first_eager


def test_the_requirements_of_a_release_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predict", "--tensorflow", "2.18.0", "--cudnn", "9.10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cudnn"].startswith("9.10.")
    assert found["driver"] == "525.60.13"
    by_capability = {need["compute_capability"]: need for need in found["gpus"]}
    assert by_capability["9.0"]["drivers"][0] == 545
    assert by_capability["12.0"]["drivers"] == []
    assert by_capability["12.0"]["reason"]["outcome"] == "fails"


def test_a_release_that_cannot_be_installed_fails_without_a_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["predict", "--tensorflow", "2.21.0", "--python", "3.9"]) == 1
    assert "has no wheel for Python 3.9" in capsys.readouterr().out


def test_an_unknown_selector_is_rejected() -> None:
    with pytest.raises(InputError, match="colour"):
        cli.run(["plan", "--select", "colour=red", "--matrix", str(ROOT / "matrix.yaml")])
