"""Every command of every remedy is one that a shell and its programs accept."""

from __future__ import annotations

import contextlib
import functools
import re

import click
import pytest

from validator import cli
from validator.compat.releases import releases
from validator.diagnosis.commands import for_uv
from validator.versions import Range, Version, release_comparer

from . import options, shell
from .filled import one_by_one

#: Versions that exist of what remedies ask for, read from the package index on 2026-11-22.
RELEASED = {
    "numpy": ("1.21.6", "1.22.4", "1.23.5", "1.26.4", "2.4.6"),
    "protobuf": ("3.20.3", "7.36.2"),
    "setuptools": ("81.0.0", "84.2.1"),
    "keras": (
        *(f"2.{minor}.0" for minor in (4, 6, 7, 8, 9, 10, 11, 12, 14, 15)),
        "2.13.1",
        "2.3.1",
        "2.4.3",
        "3.12.0",
    ),
    "tf-keras": ("2.15.0", "2.16.0", "2.17.0", "2.18.0", "2.19.0", "2.20.1", "2.21.0"),
    "tensorflow-metal": ("1.2.0",),
    "tensorflow-gpu": ("1.14.0",),
    "nvidia-cudnn-cu11": ("8.6.0.163",),
    "nvidia-cuda-nvcc-cu11": ("11.8.89",),
    "nvidia-cuda-nvcc-cu12": ("12.5.82", "12.6.85", "12.9.86"),
    "nvidia-cudnn-cu12": (
        "8.8.0.121",
        "8.9.4.25",
        "8.9.6.50",
        "8.9.7.29",
        "9.3.0.75",
        "9.10.2.21",
        "9.24.0.43",
        "9.28.0.42",
    ),
}


@functools.cache
def commands() -> tuple[tuple[str, str], ...]:
    """Return every command with the code of its cause, those for uv too."""
    found = {(cause.code, command) for cause, remedy in one_by_one() for command in remedy.commands}
    return tuple(sorted(found | {(code, for_uv(command)) for code, command in found}))


@functools.cache
def calls() -> tuple[tuple[str, shell.Call], ...]:
    """Return the programs of all commands; those of a command with wrong syntax are left to its own test."""
    found = []
    for code, command in commands():
        with contextlib.suppress(shell.ShellSyntaxError, SyntaxError):
            found += [(f"{code}: {command}", call) for call in shell.calls(command)]
    return tuple(found)


def test_every_command_has_the_syntax_of_a_shell() -> None:
    wrong = []
    for code, command in commands():
        try:
            shell.calls(command)
        except (shell.ShellSyntaxError, SyntaxError) as error:
            wrong.append(f"{code}: {command}: {error}")
    assert wrong == []


@pytest.mark.parametrize(
    "command", ["if x; then", "echo 'a", "docker restart <container>", "python -c 'if x'"]
)
def test_a_wrong_command_is_found(command: str) -> None:
    with pytest.raises((shell.ShellSyntaxError, SyntaxError)):
        shell.calls(command)


def test_programs_in_containers_shells_and_substitutions_are_found() -> None:
    found = shell.calls(
        """FOO=1 docker run -e A=1 --rm IMAGE sh -c "pip install 'x' && ls" | grep $(id -u)"""
    )
    assert [call.name for call in found] == ["docker run", "sh", "pip install", "ls", "grep", "id"]
    assert [call.in_image for call in found] == [False, False, True, True, False, False]
    assert (found[0].given, found[2].rest) == (("-e", "--rm"), ("x",))
    assert [call.name for call in shell.calls("RUN sudo apt-get install -y x")] == ["apt-get install"]


def test_every_program_is_known() -> None:
    unknown = {
        f"{where}: {call.program}"
        for where, call in calls()
        if not options.has_table(call.program) and call.program not in {*options.others(), "validator"}
    }
    assert unknown == set()


def test_every_optionexists() -> None:
    wrong = set()
    for where, call in calls():
        known = options.of(call.program, call.subcommand)
        if options.has_table(call.program) and known is None:
            wrong.add(f"{where}: no such subcommand of {call.program}: {call.rest[:1]}")
        wrong |= {f"{where}: {option}" for option in call.given if known is not None and option not in known}
    assert wrong == set()
    assert len(calls()) > 200


def test_an_option_that_does_not_exist_is_found() -> None:
    (call,) = shell.calls("pip install --upgrde x")
    assert "--upgrde" not in (options.of(call.program, call.subcommand) or {})


def test_commands_of_this_tool_are_ones_that_it_accepts() -> None:
    wrong = []
    for code, command in commands():
        for match in re.finditer(r"(?:-m|--from tensorflow-gpu-matrix) validator ([^|;&#]*)", command):
            name, *arguments = shell.words(match[1])
            try:
                _parsed(name, arguments)
            except click.UsageError as error:
                wrong.append(f"{code}: {command}: {error.format_message()}")
    assert wrong == []


def _parsed(name: str, arguments: list[str]) -> None:
    group = click.Context(cli.group, **cli.group.context_settings)
    found = cli.group.get_command(group, name)
    if found is None:
        raise click.UsageError(f"no command {name}")
    found.make_context(name, arguments, parent=group)


def test_every_version_that_is_asked_forexists() -> None:
    wrong = set()
    for where, call in calls():
        if call.name in ("pip install", "uv pip install"):
            wrong |= {f"{where}: {one}" for one in call.rest if not exists(one)}
    assert wrong == set()


def exists(requirement: str) -> bool:
    match = re.fullmatch(r"([\w.-]+?)(?:\[[\w,-]+\])?((?:[=<>~!]=?.*)?)", requirement)
    assert match is not None, requirement
    name, wanted = match[1].replace("_", "-").lower(), match[2]
    if not wanted or wanted == "==TENSORFLOW":
        return True
    known = [one.version for one in releases()] if name == "tensorflow" else RELEASED[name]
    return any(Range.parse(_as_range(wanted), release_comparer).contains(version) for version in known)


def _as_range(wanted: str) -> str:
    """Return `>=2.18.0,<2.19` for `~=2.18.0`."""
    if not wanted.startswith("~="):
        return wanted
    numbers = Version(wanted.removeprefix("~=")).release
    return f">={wanted.removeprefix('~=')},<{numbers[0]}.{numbers[1] + 1}"
