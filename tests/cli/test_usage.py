"""Test wrong or useless options, and that commands which only read create nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from validator import cli
from validator.cli import options
from validator.errors import InputError, MissingError
from validator.records.store import Store

from ..records.values import record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a current directory with a matrix, one of its locks and a log."""
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    locks = Path("images/locks")
    (tmp_path / locks).mkdir(parents=True)
    shutil.copy(ROOT / locks / "tf2.21.0-cuda12.5-cudnn9.3-py312.txt", tmp_path / locks)
    (tmp_path / "train.log").write_text("failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("doctor train.log --json --markdown", "--json and --markdown can't be combined"),
        ("doctor train.log --markdown --json", "--json and --markdown can't be combined"),
        (
            "doctor train.log --markdown --format text",
            "--markdown and --format text can't be combined",
        ),
        ("plan --json --format table", "--json and --format table can't be combined"),
        ("records list --json --format table", "--json and --format table can't be combined"),
        ("doctor train.log --depth full", "--depth has an effect only when the probe runs"),
        ("doctor --report train.log --depth quick", "--depth has an effect only when the probe runs"),
        ("doctor train.log --save-report x", "--save-report has an effect only when the probe runs"),
        ("check --list --depth full", "--depth has no effect with --list"),
        ("check --list --only driver", "--only has no effect with --list"),
        ("check --list --save-probe x", "--save-probe has no effect with --list"),
        ("check --save-probe x --image y", "--image has no effect with --save-probe"),
        ("check --save-probe x --json", "--json has no effect with --save-probe"),
        ("build-matrix --no-validate --depth full", "--depth has no effect with --no-validate"),
        ("build-matrix --engine venv --base registry", "--base has no effect with --engine venv"),
        ("predict --tensorflow 2.21.0 --gpu a100", "--driver is needed"),
        ("predict --tensorflow 2.21.0 --driver 580", "--gpu or --compute-capability is needed"),
        ("predict --tensorflow 2.21.0 --compat 12.9", "--driver is needed"),
        ("predict --tensorflow 2.21.0 --variant cpu --compat 12.9", "--driver is needed"),
        ("fleet inventory", "--on is needed: give --on slurm or --on kubernetes"),
    ],
)
def test_options_without_effect_are_rejected(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    assert cli.run(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert {path.name for path in project.iterdir()} == {"matrix.yaml", "images", "train.log"}


@pytest.mark.parametrize("arguments", ["--json", "--format json", "--json --format json", "--json --json"])
def test_the_same_format_can_be_given_twice(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    assert cli.run(["plan", "--select", "gpu=t4", *arguments.split()]) == 0
    assert json.loads(capsys.readouterr().out)


READING = (["records", "list"], ["records", "export"], ["records", "show", "abc"], ["report"])


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_creates_no_store(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    if "show" in arguments:
        with pytest.raises(InputError, match="no record has an id that begins with abc"):
            cli.run(arguments)
    else:
        assert cli.run(arguments) == 0
    assert "There are no records yet: .validator/records.db does not exist.\n" in capsys.readouterr().err
    assert not (project / ".validator").exists()


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
@pytest.mark.parametrize(
    "store", ["absent/x.db", "x.db", "sqlite:///absent/x.db", "sqlite:///x.db?timeout=1"]
)
def test_a_given_store_that_does_not_exist_is_an_error(
    project: Path, arguments: list[str], store: str
) -> None:
    before = sorted(project.rglob("*"))
    with pytest.raises(MissingError, match=r"--store: there is no store at .*x\.db") as caught:
        cli.run([*arguments, "--store", store])
    assert caught.value.exit_code == 3
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize("store", ["x.db", "sqlite:///x.db"])
def test_a_given_store_is_read(project: Path, capsys: pytest.CaptureFixture[str], store: str) -> None:
    with Store("x.db") as made:
        made.add(record(1))
    assert cli.run(["records", "list", "--store", store]) == 0
    assert capsys.readouterr().err == "1 record\n"


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.service
@pytest.mark.parametrize("command", ["check", "doctor"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\necho usage: program >&2\nexit 2\n", "is not a Python: usage: program"),
        ("#!/bin/sh\necho hello\n", "is not a Python: its output is 'hello'"),
        ("#!/bin/sh\nexit 0\n", "is not a Python: it has no output"),
        ("#!/bin/sh\necho 3.8\n", "is Python 3.8, but the probe needs 3.9 or newer"),
        ("#!/bin/sh\necho 2.7\n", "is Python 2.7, but the probe needs 3.9 or newer"),
        ("neither a script nor a program", "can't be run: Exec format error"),
        ("#!/no/such/interpreter\n", "can't be run: No such file or directory"),
    ],
)
def test_a_program_that_is_not_python_is_rejected(tmp_path: Path, command: str, text: str, says: str) -> None:
    path = executable(tmp_path / "program", text)
    with pytest.raises(InputError, match=says) as caught:
        cli.run([command, "--python", str(path)])
    assert str(caught.value).startswith(f"--python: {path} ")
    assert caught.value.exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lock", "says"),
    [
        ("", "the lock has no pins"),
        ("a==1\nb>=2\n", 'line 2: "b>=2" is not a pin'),
        ("\xff", "can't decode byte"),
    ],
)
def test_a_file_that_is_not_a_lock_is_rejected(
    lock: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(lock, encoding="latin-1")
    with pytest.raises(InputError, match=says) as caught:
        cli.run(["check", "--lock", str(path), "--only", "driver"])
    assert "--lock" in (caught.value.hint or "")
    assert "usage:" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        ("bundle receive nothing", "nothing is not a bundle: it has no bundle.json", "`validator bundle`"),
        ("bundle receive images", "images is not a bundle: it has no bundle.json", "`validator bundle`"),
        ("report --html page --registry Bad/Name", "'Bad/Name' is not a registry with a", "write HOST/NAME"),
        ("fleet inventory --on local", "no fleet engine 'local'", "use --on slurm or --on kubernetes;"),
        ("fleet inventory --on banana", "no fleet engine 'banana'", "use --on slurm or --on kubernetes;"),
        ("sbom localhost:1/x/y:1", "nobody may sign measurements or images", "pass --trust with the file"),
    ],
)
def test_wrong_input_says_what_to_do(arguments: str, says: str, hint: str, project: Path) -> None:
    before = sorted(project.rglob("*"))
    with pytest.raises(InputError, match=says) as caught:
        cli.run(arguments.split())
    assert hint in (caught.value.hint or "")
    assert sorted(project.rglob("*")) == before


@pytest.mark.slow
def test_a_file_that_is_not_executable_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "activate"
    path.write_text("text")
    with pytest.raises(InputError, match="can't be run: Permission denied"):
        cli.run(["check", "--python", str(path)])


@pytest.mark.service
def test_another_program_is_rejected() -> None:
    with pytest.raises(InputError, match="/ls is not a Python"):
        cli.run(["check", "--python", shutil.which("ls") or "/bin/ls"])


@pytest.mark.slow
def test_a_python_is_run_through_its_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.symlink(sys.executable, tmp_path / "python")
    monkeypatch.chdir(tmp_path)
    assert cli.run(["check", "--python", "python", "--only", "driver", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["checks"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("build-matirx", 'there is no command "build-matirx"; did you mean build-matrix?'),
        ("recomend --help", 'there is no command "recomend"; did you mean recommend or records?'),
        ("records lst", 'there is no command "lst"; did you mean list?'),
        ("runner ini", 'there is no command "ini"; did you mean init?'),
        ("certify keygn", 'there is no command "keygn"; did you mean keygen?'),
        ("keygen", 'there is no command "keygen"; did you mean certify keygen?'),
        ("records revoke", 'there is no command "revoke"; did you mean certify revoke?'),
        ("merge", 'there is no command "merge"; did you mean records merge?'),
        ("xyzzy", 'there is no command "xyzzy"\n'),
        ("plan --profil x", "Did you mean"),
    ],
)
def test_typos_get_a_suggestion(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(words.split()) == 2
    assert said in capsys.readouterr().err


def test_the_help_of_a_group_shows_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("certify", "fleet", "records", "runner"):
        assert cli.run([name, "--help"]) == 0
        commands = capsys.readouterr().out.partition("Commands:")[2]
        assert commands.strip() and "..." not in commands, name


def test_a_key_that_is_missing_names_who_has_it(project: Path) -> None:
    with pytest.raises(InputError, match=r"no-key\.pub: can't be read") as failed:
        cli.run(["recommend", "--registry", "127.0.0.1:1/team/images", "--key", "no-key.pub"])
    hint = failed.value.hint or ""
    assert "publishes them" in hint and "how-to/pull-an-image.md" in hint


def outputs_of(group: click.Group, context: click.Context, path: str = "") -> Iterator[str]:
    """Return each option that names a file to write, with its command."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from (f"{path}{name} {one.opts[0]}" for one in command.params if one.type is options.OUTPUT)
        if isinstance(command, click.Group):
            yield from outputs_of(command, context, f"{path}{name} ")


LOCK = "images/locks/tf2.21.0-cuda12.5-cudnn9.3-py312.txt"
#: For each command that writes a file: arguments without an input, and the option that names one.
WRITERS = {
    "doctor --save-report": ("", "--python"),
    "lock --output": ("--format requirements", "--matrix"),
    "check --save-probe": ("", "--own-check"),
    "run --output": ("--force --uncertified", "--trust"),
    "records merge --summary": ("directory", "--cells"),
    "records merge --refused": ("directory", "--cells"),
    "records salvage --output": ("", "--matrix"),
    "records export --output": ("", "--matrix"),
    "report --output": ("--format json", "--matrix"),
    "sbom --output": ("", ""),
}
WITH_STORE = [writer for writer in WRITERS if writer.startswith("re")]


def refused(writer: str, words: str, output: Path) -> None:
    """Check that a command does not replace a file."""
    before = output.read_bytes() if output.exists() else None
    *command, switch = writer.split()
    with pytest.raises(InputError, match="so it is not replaced") as caught:
        cli.run([*command, *WRITERS[writer][0].split(), *words.split(), switch, str(output)])
    assert str(output) in str(caught.value) and caught.value.hint
    assert (output.read_bytes() if output.exists() else None) == before


def test_these_options_write_files() -> None:
    assert set(outputs_of(cli.group, click.Context(cli.group))) == set(WRITERS)


@pytest.mark.parametrize("writer", WRITERS)
def test_no_output_replaces_a_database(writer: str, project: Path) -> None:
    (project / "directory").mkdir()
    with Store("a.db") as store:
        store.add(record())
        for name in ("a.db", "a.db-wal"):
            refused(writer, LOCK if writer.startswith("sbom") else "", project / name)


@pytest.mark.parametrize("writer", WRITERS)
def test_no_output_replaces_an_input(writer: str, project: Path) -> None:
    (project / "directory").mkdir()
    (project / "link").symlink_to(".")
    refused(writer, f"{WRITERS[writer][1]} {LOCK}", Path("link", LOCK))


@pytest.mark.parametrize("url", ["a.db", "./a.db", "sqlite:///{}/a.db?timeout=9", ""])
@pytest.mark.parametrize("state", ["absent", "damaged"])
@pytest.mark.parametrize("writer", WITH_STORE)
def test_no_output_replaces_its_store(writer: str, state: str, url: str, project: Path) -> None:
    (project / "directory").mkdir()
    path = project / ("a.db" if url else ".validator/records.db")
    if state == "damaged":
        with Store(str(path)) as store:
            store.add(record())
        path.write_bytes(b"damaged" + path.read_bytes())
    refused(writer, url and f"--store {url.format(project)}", path)


def test_other_files_and_devices_are_written_as_before(project: Path) -> None:
    (project / "old.txt").write_text("old")
    for output in ("old.txt", "new.txt", "/dev/null"):
        for command in ("records export", "report --format json"):
            assert cli.run([*command.split(), "--output", output]) == 0
    assert json.loads((project / "old.txt").read_text())
