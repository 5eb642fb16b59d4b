"""The help: a screen that names every command by its question, named groups of options, and examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from validator import cli
from validator.cli import COMMANDS, EXAMPLES, GROUPS, Command, example, group, main_help, sections


def every_command() -> Iterator[tuple[click.Command, click.Context]]:
    """Yield each command and subcommand with its context."""
    top = click.Context(cli.group, info_name="validator", **cli.group.context_settings)
    waiting: list[tuple[click.Group, str, click.Context]] = [(cli.group, name, top) for name in COMMANDS]
    while waiting:
        group, name, parent = waiting.pop()
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent)
        yield command, context
        if isinstance(command, click.Group):
            waiting += [(command, inner, context) for inner in command.list_commands(context)]


COMMANDS_WITH_CONTEXT = {context.command_path: (command, context) for command, context in every_command()}


def test_the_main_help_fits_a_screen() -> None:
    lines = main_help().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert all(words.count(name) >= 1 for name in (*COMMANDS, *GROUPS))
    assert {"spec", "cell", "verdict"} <= set(words)


def test_help_is_shown_on_request_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == cli.run(["-h"]) == 0
    assert capsys.readouterr().out == f"{main_help()}\n" * 2


@pytest.mark.parametrize("path", COMMANDS_WITH_CONTEXT)
def test_options_are_in_named_groups(path: str) -> None:
    command, context = COMMANDS_WITH_CONTEXT[path]
    assert isinstance(command, Command)
    found = sections(command, context)
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    assert sum(map(len, found.values())) == len(options)
    assert len(found) <= 1 or "Options" not in found, "add the option to a group in _SECTIONS"
    text = command.get_help(context)
    assert all(f"{title}:" in text for title in found)


def test_each_option_has_help_and_no_flag_takes_a_value() -> None:
    options = [
        (path, option)
        for path, (command, _) in COMMANDS_WITH_CONTEXT.items()
        for option in command.params
        if isinstance(option, click.Option) and option.opts != ["--variant"]
    ]
    assert len(options) > 200
    assert [(path, option.opts) for path, option in options if not option.help] == []
    assert [(path, option.opts) for path, option in options if option.is_flag and option.metavar] == []


@pytest.mark.parametrize("path", COMMANDS_WITH_CONTEXT)
def test_the_example_of_each_command_is_one_of_its_uses(path: str) -> None:
    command, context = COMMANDS_WITH_CONTEXT[path]
    shown = example(context)
    assert shown.startswith(path) and f"Example:\n  {shown}" in command.get_help(context)
    words = shlex.split(shown.partition(" > ")[0])
    longest = max((one for one in COMMANDS_WITH_CONTEXT if f"{shown} ".startswith(f"{one} ")), key=len)
    options = {name for one in COMMANDS_WITH_CONTEXT[longest][0].params for name in one.opts}
    given = words[: words.index("--")] if "--" in words else words
    assert {word for word in given if word.startswith("--")} <= options


@pytest.mark.parametrize("shown", EXAMPLES.values())
def test_no_example_lacks_an_option(shown: str) -> None:
    words = shlex.split(shown.partition(" > ")[0])
    command: click.Command = group
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    try:
        command.make_context("example", words)
    except click.BadParameter as error:
        # A file of the example need not be here.
        assert not isinstance(error, click.MissingParameter), error


def test_no_example_is_of_a_command_that_does_not_exist() -> None:
    groups = {"trust", "runner", "records", "data", "fleet"}
    assert {f"validator {path}" for path in {*EXAMPLES, *groups}} == COMMANDS_WITH_CONTEXT.keys()


def test_the_options_of_a_long_command_are_grouped() -> None:
    command, context = COMMANDS_WITH_CONTEXT["validator predict"]
    found = sections(command, context)
    assert list(found) == ["Which software", "Which machine", "Output"]
    assert [names for names, _ in found["Which machine"]][1] == "--driver RELEASE"
