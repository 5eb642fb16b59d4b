"""Every command in the documentation is one that a shell, its program and this tool accept.

What needs neither an engine, a registry, a fleet nor a GPU is run. The others are parsed: their options and
arguments must be ones that the command has.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import os
import re
import shutil
from pathlib import Path

import click
import pytest
import yaml

from docs.transcripts import ROOT
from validator import cli
from validator.errors import EXIT_FAILED, EXIT_OK
from validator.records.store import Store

from ..commands import run
from ..corpus.reader import REPORTS
from ..diagnosis import options, shell
from ..records.values import lines, record
from .shown import Block, blocks, of_this_tool

BLOCKS = list(blocks())
COMMANDS = [(str(block), command) for block in BLOCKS for command in block.commands]


def _calls(command: str) -> list[list[str]]:
    """Return the calls of this tool in a command; none if its syntax is wrong, which a test reports."""
    try:
        return list(of_this_tool(command))
    except shell.ShellSyntaxError:
        return []


#: Programs whose options are not checked, besides those of remedies. tests/certify runs cosign's lines.
OTHERS = {
    "base64",
    "cosign",
    "createdb",
    "createuser",
    "gh",
    "jq",
    "nfd",
    "paste",
    "pytest",
    "scp",
    "sha256sum",
    "ssh",
    "uvx",
}
#: What the language of a block says about its content.
LANGUAGES = {"console", "dockerfile", "json", "jsonc", "python", "sh", "sql", "text", "yaml"}


def parse(arguments: list[str]) -> None:
    """Parse the arguments of this tool without running anything. Raises click.UsageError."""
    if arguments == ["--version"]:
        return
    context: click.Context = cli.group.make_context("validator", list(arguments))
    while isinstance(context.command, click.Group) and (left := [*context._protected_args, *context.args]):
        _, found, left = context.command.resolve_command(context, left)
        assert found is not None
        context = found.make_context(found.name, left, parent=context)


@pytest.fixture
def any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let options name files that are not here."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, parameter, context: Path(value))


def test_every_block_says_what_it_is() -> None:
    """A block that is only indented could be anything, and a site can't show its colors."""
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def test_every_command_has_the_syntax_of_a_shell() -> None:
    wrong = []
    for where, command in COMMANDS:
        try:
            shell.calls(command)
        except (shell.ShellSyntaxError, SyntaxError) as error:
            wrong.append(f"{where}: {command}: {error}")
    assert wrong == []
    assert len(COMMANDS) > 100


def test_every_program_and_its_options_exist() -> None:
    wrong = []
    for where, command in COMMANDS:
        for call in shell.calls(command):
            known = options.of(call.program, call.subcommand)
            if options.has_table(call.program):
                wrong += [f"{where}: {command}: {one}" for one in call.given if one not in (known or ())]
                wrong += [f"{where}: no such subcommand: {command}"] if known is None else []
    assert wrong == []


def _is_known(word: str) -> bool:
    """Return whether a program is this tool, a script of this repository, or one that is listed."""
    name = word.rpartition("/")[2]
    if word.removeprefix("./").startswith(("scripts/", ".ci/")):
        return os.access(ROOT / word, os.X_OK)
    return (
        name == "validator"
        or word == "$EDITOR"
        or options.has_table(name)
        or name in {*options.others(), *OTHERS}
    )


def test_every_program_is_known() -> None:
    unknown = [
        f"{where}: {word}"
        for where, command in COMMANDS
        for words in shell.programs(command)
        if (word := next((word for word in words if "=" not in word), None)) and not _is_known(word)
    ]
    assert unknown == []


def test_this_tool_accepts_every_command(any_file: None, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, parsed = [], 0
    # Pages set these once, with `export`.
    monkeypatch.setenv("VALIDATOR_REGISTRY", "ghcr.io/team/tensorflow")
    for where, command in COMMANDS:
        for arguments in _calls(command):
            try:
                with contextlib.suppress(click.exceptions.Exit):  # --help
                    parse(arguments)
                parsed += 1
            except click.UsageError as error:
                wrong.append(f"{where}: {command}: {error.format_message()}")
    assert wrong == []
    assert parsed > 100


@pytest.mark.parametrize(
    "command", ["predict --tensorflw 2.21.0", "records lst", "doctr", "run --exec --mont"]
)
def test_a_wrong_command_is_found(command: str) -> None:
    (arguments,) = of_this_tool(f"$PYTHON -m validator {command} | head")
    with pytest.raises(click.UsageError):
        parse(arguments)


def test_files_in_blocks_can_be_read() -> None:
    for block in BLOCKS:
        if block.language == "yaml":
            assert all(isinstance(one, (dict, list)) for one in yaml.safe_load_all(block.text)), str(block)
        elif block.language == "json":
            json.loads(block.text if block.text.startswith("{") else f"{{{block.text}}}")
        elif block.language == "python":
            ast.parse(block.text)


def test_output_is_compared_or_says_where_it_is_from() -> None:
    """What a command printed is compared with what it prints now, or a comment says where somebody saw it."""
    assert [str(block) for block in SHOWN if not all(map(_here, map(list, _of_block(block))))] == []


#: The beginnings of commands that need neither an engine, a registry, a fleet, a package index nor a GPU.
#: They are run; the others are only parsed.
HERE = {
    "--version",
    "certify challenges",
    "check --save-probe",
    "data export",
    "doctor",
    "fleet manifests",
    "fleet status",
    "init",
    "lint",
    "lock --check",
    "plan",
    "predict",
    "records",
    "report",
}
#: Words that need something else nevertheless: TensorFlow, an engine, a pipe, a release that is not out yet,
#: a server, a GPU.
ELSEWHERE = {"--python", "--image", "-", "candidate", "--from-host"}
ALSO_ELSEWHERE = re.compile(r"2\.23\.0|2\.22\.0rc0|postgresql")
CELL = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100"


def _here(arguments: list[str]) -> bool:
    beginnings = {arguments[0], " ".join(arguments[:2])}
    other = ELSEWHERE & set(arguments) or any(map(ALSO_ELSEWHERE.search, arguments))
    return bool(beginnings & HERE) and not other


CALLS = {tuple(arguments) for _, command in COMMANDS for arguments in _calls(command)}
#: The blocks whose output is compared here. test_tutorial.py compares that of the tutorial.
SHOWN = [
    block
    for block in BLOCKS
    if block.output and not block.origin and block.page != "docs/tutorial/first-image.md"
]
RUN = sorted(arguments for arguments in CALLS if _here(list(arguments)))


def _of_block(block: Block) -> list[list[str]]:
    return [arguments for command in block.commands for arguments in _calls(command)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files that the pages name."""
    tmp_path = tmp_path_factory.mktemp("template")
    log = ROOT / "tests/corpus/captured/2.18.1/visible_devices_99.log"
    (tmp_path / "train.log").write_bytes(log.read_bytes())
    report = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"
    (tmp_path / "report.json").write_bytes(report.read_bytes())
    found = [record(number, cell=CELL) for number in range(3)]
    for name in ("good.jsonl", "last-release.jsonl", "artifacts/records-a/records.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lines(*found))
    (tmp_path / "Dockerfile").write_text(
        "FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\n"
        "COPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    )
    (tmp_path / "requirements.txt").write_text("tensorflow==2.18.0\n")
    (tmp_path / "uv.lock").write_text('version = 1\n[[package]]\nname = "tensorflow"\nversion = "2.18.0"\n')
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(lines(*found)))
    for name in (".validator/records.db", "damaged.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with Store(str(tmp_path / name)) as store:
            store.add_all(found)
    return tmp_path


@pytest.fixture
def workspace(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "workspace"))


@pytest.mark.parametrize("arguments", RUN, ids=" ".join)
def test_what_needs_nothing_else_runs(arguments: tuple[str, ...], workspace: Path) -> None:
    words = [record(0, cell=CELL).id if word == "ID" else word for word in arguments]
    done = run(*words, cwd=workspace)
    # 1 is an answer: a prediction failed, or doctor found a fault.
    assert done.returncode in (EXIT_OK, EXIT_FAILED), done.stderr
    assert "error:" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_command_prints_what_the_page_shows(block: Block, workspace: Path) -> None:
    done = [run(*arguments, cwd=workspace) for arguments in _of_block(block)]
    assert "".join(one.stdout + one.stderr for one in done).rstrip("\n") == block.output


def test_every_row_of_what_runs_is_in_the_documentation() -> None:
    assert {row for row in HERE if not any(" ".join(one).startswith(row) for one in RUN)} == set()
