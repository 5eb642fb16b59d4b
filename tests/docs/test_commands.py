"""Every command in the documentation is one that a shell, its program and this tool accept.

The options and arguments must be ones that the command has. test_pages.py runs the commands.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
from pathlib import Path

import click
import pytest
import yaml

from docs.transcripts import ROOT
from validator import cli

from ..diagnosis import options, shell
from .shown import blocks, of_this_tool

BLOCKS = blocks()
COMMANDS = [(str(block), command) for block in BLOCKS for command in block.commands]


def _calls(command: str) -> list[list[str]]:
    """Return the calls of this tool in a command; none if its syntax is wrong, which a test reports."""
    try:
        return list(of_this_tool(command))
    except shell.ShellSyntaxError:
        return []


#: Programs whose options are not checked, besides those of remedies. tests/certify runs cosign's lines, and
#: tests/pipeline the program of a bundle.
OTHERS = {
    "base64",
    "claude",
    "cosign",
    "createdb",
    "createuser",
    "gh",
    "grype",
    "jq",
    "measure",
    "nfd",
    "osv-scanner",
    "paste",
    "pytest",
    "scp",
    "sha256sum",
    "ssh",
    "trivy",
    "uvx",
}
#: What the language of a block says about its content.
LANGUAGES = {"toml", "console", "diff", "dockerfile", "json", "jsonc", "python", "sh", "sql", "text", "yaml"}


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
