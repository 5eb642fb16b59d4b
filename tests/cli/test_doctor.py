"""`doctor` as a person runs it: its input, its output, its exit code."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from docs.transcripts import terminal_output
from validator import cli
from validator.cli import doctor
from validator.cli.doctor import Probed
from validator.errors import InputError, MissingError
from validator.model.diagnosis import Diagnosis
from validator.model.record import Unread
from validator.model.report import read_report
from validator.reports.diagnosis import Changes

from ..pipeline.fakes import H100, report
from ..support import said

ROOT = Path(__file__).parents[2]
#: What TensorFlow 2.18.1 prints, in part.
HARMLESS = """\
2026-11-21 08:33:11.113026: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to \
register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered
2026-11-21 08:33:11.148973: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is \
optimized to use available CPU instructions in performance-critical operations.
"""
MISMATCH = """\
2026-11-21 08:33:12.538430: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call \
to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has \
unsupported display driver / cuda driver combination
"""
DOCTOR = [sys.executable, "-m", "validator", "doctor"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(HARMLESS + MISMATCH)
    return path


def whole(
    *arguments: str, stdin: bytes = b"", python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *python, *DOCTOR[1:], *arguments],
        cwd=ROOT, input=stdin, capture_output=True, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
def test_a_log_with_a_cause_exits_with_1(log: Path) -> None:
    done = whole(str(log))
    out = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert out.startswith("The driver's libraries and its loaded kernel module are of different versions.\n")
    assert out.splitlines()[1] == "driver_library_mismatch"
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver" in out
    assert "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia" in out
    assert "\x1b" not in out
    assert done.stderr == b""


@pytest.mark.slow
def test_text_from_stdin_with_colours_and_quotes_gives_the_same_answer(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor", str(log), "--json"]) == 1
    expected = json.loads(capsys.readouterr().out)
    quoted = b"".join(b"> \x1b[33m" + line + b"\x1b[0m\r\n" for line in log.read_bytes().splitlines())
    done = whole("-", "--json", stdin=quoted)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [cause["code"] for cause in found["causes"]] == [cause["code"] for cause in expected["causes"]]
    assert {field.name for field in fields(Diagnosis)} == found.keys()


def test_a_log_without_a_fault_exits_with_0(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(HARMLESS)
    assert cli.run(["doctor", str(log)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No fault found: the messages are harmless. This does not show whether the GPU is")
    assert "factory_notice" in out


def test_a_fault_that_fits_no_cause_is_not_a_success(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(
        'Traceback (most recent call last):\n  File "a.py", line 1\nZorkError: the frobnicator is bent\n'
    )
    assert cli.run(["doctor", str(log), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["causes"] == []
    assert found["unknown"]


def report_with_hidden_gpus() -> bytes:
    document = json.loads(report(H100))
    document["environment"]["variables"] = {"CUDA_VISIBLE_DEVICES": "-1"}
    document["checks"][2] |= {
        "id": "environment",
        "outcome": "fail",
        "statement": None,
        "problems": [
            {
                "code": "visible_devices_hides_all_gpus",
                "severity": "fault",
                "variable": "CUDA_VISIBLE_DEVICES",
                "value": "-1",
            }
        ],
    }
    return json.dumps(document).encode()


@pytest.mark.slow
def test_a_report_names_its_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(report_with_hidden_gpus())
    assert cli.run(["doctor", "--report", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["causes"][0]["code"] == "visible_devices_misset"
    assert found["causes"][0]["evidence"][0]["where"].startswith("checks.environment")
    done = whole("--report", "-", "--json", stdin=path.read_bytes())
    assert json.loads(done.stdout) == found
    # A report is recognized by its content and the end of its name.
    assert cli.run(["doctor", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == found
    path.write_text('{"checks": "the text of a log"}')
    cli.run(["doctor", str(path), "--json"])
    assert json.loads(capsys.readouterr().out)["read"] == "1 line"


def test_an_answer_about_an_image_ends_with_the_command_for_that_image(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = Probed(read_report(report_with_hidden_gpus()), Unread.NOT_ASKED)
    monkeypatch.setattr(doctor, "probe", lambda image, python, depth: probed)
    assert cli.run(["doctor", "--image", "registry.example/tf:2.20.0"]) == 1
    assert capsys.readouterr().out.endswith(" doctor --image registry.example/tf:2.20.0\n")


def test_a_report_without_a_fault_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(report(H100))
    assert cli.run(["doctor", "--report", str(path)]) == 0
    assert capsys.readouterr().out.startswith("No fault found: TensorFlow uses the GPU.\n")


def test_a_report_with_surrogates_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(report(H100))
    document["environment"]["variables"] = {"CUDA_VISIBLE_DEVICES": "0\udc80"}
    document["environment"]["packages"] = {"numpy": "1\udc80"}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    for form in ("text", "json", "markdown"):
        assert cli.run(["doctor", "--report", str(path), "--format", form]) in (0, 1)
        assert capsys.readouterr().out.encode()


def test_check_says_as_json_what_a_derived_image_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = Changes(
        "tf2.21.0-cpu-py312", "sha256:lock", None, ("RUN pip install pandas",), True,
        {"pandas": "2.3"}, {"pip": "26"}, {"numpy": ("2.0", "2.1")}, {"tensorflow-cpu": ["a.py"]},
    )  # fmt: skip
    probed = Probed(read_report(report(H100)), Unread.NO_GPU_OFFERED, changes=changes)
    monkeypatch.setattr(doctor, "probe", lambda *_: probed)
    assert cli.run(["check", "--image", "derived", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("derived") == {
        "image": "tf2.21.0-cpu-py312",
        "lock_digest": "sha256:lock",
        "base": None,
        "commands": ["RUN pip install pandas"],
        "compared": True,
        "added": {"pandas": "2.3"},
        "removed": {"pip": "26"},
        "upgraded": {"numpy": ["2.0", "2.1"]},
        "files": {"tensorflow-cpu": ["a.py"]},
    }
    assert document == json.loads(report(H100))


@pytest.mark.slow
def test_it_runs_the_probe_here_and_saves_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "report.json"
    # A relative path, as a person would type it.
    python = Path(sys.executable)
    monkeypatch.chdir(python.parents[1])
    arguments = ["doctor", "--python", f"{python.parent.name}/{python.name}", "--save-report", str(kept)]
    arguments += ["--json"]
    assert cli.run(arguments) == 1
    found = json.loads(capsys.readouterr().out)
    assert "tensorflow_not_installed" in [cause["code"] for cause in found["causes"]]
    assert cli.run(["doctor", "--report", str(kept), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == found


def test_markdown_for_an_issue_tracker(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(f"annabel@atlas-07:~$ python /home/annabel/train.py\n{MISMATCH}hostname: atlas-07\n")
    assert cli.run(["doctor", str(log), "--markdown"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("### ")
    assert "<details><summary>Evidence</summary>" in out
    assert "annabel" not in out
    assert "atlas" not in out


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_names_in_lines_that_are_not_shown_are_used_too(
    log: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    fault = MISMATCH.strip() + " seen on atlas by annabel\n"
    log.write_text(f"$ whoami\nannabel\n\nLinux atlas 5.15.0-91-generic #101 SMP\n{fault}", encoding=encoding)
    assert cli.run(["doctor", str(log), "--markdown"]) == 1
    out = capsys.readouterr().out
    assert "seen on" in out
    assert "annabel" not in out
    assert "atlas" not in out


def test_the_end_of_a_long_text_gives_names_away_too(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.diagnosis.text.NAMED", 1 << 14)
    training = "".join(f"{step}/40000 - loss: 0.{step}\n" for step in range(2000))
    log.write_text(
        f"{training}annabel@atlas:~/x$ python train.py\n{MISMATCH.strip()} seen on atlas by annabel\n"
    )
    assert log.stat().st_size > 1 << 15
    assert cli.run(["doctor", str(log), "--markdown"]) == 1
    out = capsys.readouterr().out
    assert "seen on" in out
    assert "annabel" not in out
    assert "atlas" not in out


def test_names_in_a_report_are_taken_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(report(H100))
    document["environment"]["variables"] = {"USER": "annabel", "HOSTNAME": "atlas-07"}
    document["checks"][2] |= {"outcome": "fail", **said("annabel broke it on atlas-07", "fail")}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    assert cli.run(["doctor", "--report", str(path), "--markdown"]) == 1
    out = capsys.readouterr().out
    assert "broke it on" in out
    assert "annabel" not in out
    assert "atlas" not in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (b"\x7fELF\x02\x01\x00\x00", "is binary, not text"),
        (b"\x1f\x8b\x08\x00rest", r"is compressed \(gzip\), not text"),
    ],
)
def test_input_that_is_not_a_log_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        cli.run(["doctor", str(path)])
    assert str(path) in str(caught.value)
    assert caught.value.hint


# PowerShell redirects into UTF-16.
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_report_is_read_wherever_it_stands(
    tmp_path: Path, indent: int | None, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report may be alone, in a measurement or a record, or below somebody's words."""

    def answer(*arguments: str) -> object:
        capsys.readouterr()
        return cli.run(["doctor", *arguments, "--json"]), json.loads(capsys.readouterr().out)["causes"]

    document = json.loads(report(H100))
    path = tmp_path / "alone.txt"
    path.write_text(json.dumps(document, indent=indent), encoding=encoding)
    alone = answer("--report", str(path))
    assert answer(str(path)) == alone
    for before, whole in (
        ("", {"format": 1, "report": document}),
        ("", {"cell": "a", "checks": document["checks"], "report": document}),
        ("Here is my report: ", document),
        ("Hello\n\n", document),
    ):
        path.write_text(f"{before}{json.dumps(whole, indent=indent)}\nThanks\n", encoding=encoding)
        assert answer(str(path)) == alone


def test_of_several_reports_one_has_to_be_given(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f"{json.dumps({'report': json.loads(report(H100))})}\n" * 2)
    with pytest.raises(InputError, match="holds 2 reports") as caught:
        cli.run(["doctor", str(path)])
    assert caught.value.hint


@pytest.mark.parametrize("command", ["predict --gpu h100 --driver 580", "doctor README.md"])
def test_an_answer_of_this_program_is_no_log(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    cli.run([*command.split(), "--json"])
    path = tmp_path / "answer.json"
    path.write_text(capsys.readouterr().out)
    with pytest.raises(InputError, match="is an answer of this program"):
        cli.run(["doctor", str(path)])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("option", [(), ("--report",)])
@pytest.mark.parametrize("name", ["report.json", "report"])
@pytest.mark.parametrize("kept", [0.9, 0.1, "checks"])
def test_a_damaged_report_gets_one_answer(
    tmp_path: Path, kept: float | str, name: str, option: tuple[str, ...], encoding: str
) -> None:
    path, text = tmp_path / name, report(H100).decode()
    if isinstance(kept, float):
        text = text[: int(len(text) * kept)]
    else:
        text = json.dumps({key: value for key, value in json.loads(text).items() if key != kept})
    path.write_text(text, encoding=encoding)
    with pytest.raises(InputError) as caught:
        cli.run(["doctor", *option, str(path)])
    assert f"{path} is a report of `check`, but it was cut off, damaged" in str(caught.value)
    assert (caught.value.hint or "").startswith("copy the whole file again, or make a new one")


@pytest.mark.parametrize("name", ["run.json", "run.log"])
@pytest.mark.parametrize("option", [(), ("--report",)])
def test_a_binary_file_gets_one_answer(tmp_path: Path, name: str, option: tuple[str, ...]) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x7fELF\x02\x01\0\0\0")
    with pytest.raises(InputError, match="is binary, not text") as caught:
        cli.run(["doctor", *option, str(path)])
    assert "--report" not in (caught.value.hint or "")


def test_a_compressed_report_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "report.json.gz"
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(InputError, match=r"report\.json\.gz is compressed \(gzip\), not text") as caught:
        cli.run(["doctor", "--report", str(path)])
    assert caught.value.hint == "decompress it first"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"[]", "the report: expected `object`, got `array`"),
        (b'{"format": 99}', "the report has format 99; this version reads 2"),
        (b"[" * 100_000, "nested more than 64 levels deep"),
        (b"\xff\xfe", "decode|Expecting"),
        (b"2026-11-21 08:33:12: E cuda_driver.cc:152] failed call to cuInit", "Extra data|Expecting"),
    ],
)
def test_input_that_is_not_a_report_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        cli.run(["doctor", "--report", str(path)])
    assert str(caught.value).startswith(f"{path} is not a report that can be read")
    assert "leave --report out" in (caught.value.hint or "")


def test_a_huge_report_is_rejected_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge"
    path.write_bytes(b" " * 5000)
    os.truncate(path, 2 << 30)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        cli.run(["doctor", "--report", str(path)])


@pytest.mark.parametrize(
    "arguments",
    [
        "absent.log", ".", "--report absent.json", "--python absent",
        "README.md --report README.md", "README.md --image x",
        "README.md --save-report x", "README.md CHANGELOG.md", "--log README.md",
        "--depth deep", "--format junit",
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.run(["doctor", *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error:" in captured.err


def test_a_file_that_can_not_be_read_is_reported(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log.write_text(MISMATCH)
    monkeypatch.setattr("validator.diagnosis.text.ends_of", broken)
    with pytest.raises(InputError, match=r"train\.log can't be read: Input/output error"):
        cli.run(["doctor", str(log)])


@pytest.mark.parametrize("command", ["doctor", "check"])
@pytest.mark.parametrize("image", ["", "--privileged", "Bad Name!", "a@sha256:123", "../x", "UPPER:1"])
def test_text_that_is_not_an_image_name_is_rejected(command: str, image: str) -> None:
    with pytest.raises(InputError, match="is not the name of an image"):
        cli.run([command, "--image", image])


def test_an_image_needs_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(MissingError):
        cli.run(["doctor", "--image", "tensorflow/tensorflow:2.18.0-gpu"])


@pytest.mark.slow
def test_reading_a_log_imports_nothing_heavy(log: Path) -> None:
    program = (
        "import sys\nfrom validator import cli\n"
        f"cli.run(['doctor', {str(log)!r}])\n"
        "heavy = ('rich', 'docker', 'sqlalchemy', 'tensorflow', 'requests')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_one_endless_line_of_a_pipe_needs_little_memory(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    reader, writer = os.pipe()
    feeder = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfor _ in range(300): sys.stdout.write('failed ' * 150_000)"],
        stdout=writer,
    )
    os.close(writer)
    done = subprocess.run(
        [*DOCTOR, "-"],
        cwd=ROOT, stdin=reader, capture_output=True, timeout=120, preexec_fn=limited,
    )  # fmt: skip
    os.close(reader)
    feeder.wait()
    assert done.returncode in (0, 1), done.stderr
    assert b"MiB" in done.stdout


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """Return what `doctor` writes to a terminal of 80 columns."""
    return terminal_output(["doctor", *arguments], COLUMNS="80", **{"TERM": "xterm", **environment})


@pytest.mark.slow
def test_only_terminals_that_want_colours_get_them(log: Path) -> None:
    coloured = on_a_terminal(str(log), NO_COLOR="")
    assert coloured.startswith("\x1b[")
    assert "\x1b" not in on_a_terminal(str(log), NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(str(log), TERM="dumb")


@pytest.mark.slow
def test_a_pasted_log_does_not_control_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"E x.cc:1] failed call to cuInit: \xc2\x9b2J \xe2\x80\xaeUNKNOWN \x1b]0;title\x07 ERROR (999)\n"
    )
    shown = on_a_terminal(str(path), NO_COLOR="1")
    assert "failed call to cuInit" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown)


@pytest.mark.slow
def test_a_terminal_of_another_encoding_gets_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("failed call to cuInit: CUDA_ERROR_UNKNOWN: größer → 日本\n", encoding="utf-8")
    done = subprocess.run(
        [*DOCTOR, str(path)],
        cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "größer".encode("latin-1") + b" \\u2192 \\u65e5\\u672c" in done.stdout
