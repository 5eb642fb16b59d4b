"""Make the site's page of each command, with every option, from the commands themselves.

In `docs/reference/commands.md`, what is between the comments of CODES is replaced. `scripts/update-docs`
runs this file. If a page is out of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from validator import cli
from validator.cli import COMMANDS, example, sections
from validator.errors import EXIT_CODES

REFERENCE = Path(__file__).parent / "reference"
OVERVIEW = REFERENCE / "commands.md"
CODES = re.compile(r"(<!-- generated: exit codes -->\n).*?(<!-- end -->\n)", re.DOTALL)
_FOOT = """
[All commands](../commands.md), their [exit codes](../commands.md#exit-codes) and [environment
variables](../commands.md#environment-variables). This page is generated when the site is built.
"""


def overview(text: str) -> str:
    """Return the text of commands.md with the current exit codes."""
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return CODES.sub(lambda match: f"{match[1]}| code | meaning |\n|---|---|\n{rows}{match[2]}", text)


def pages() -> Mapping[str, str]:
    """Return the pages of all commands: name of the file -> text."""
    group = click.Context(cli.group, info_name="validator", **cli.group.context_settings)
    found = {}
    for name in COMMANDS:
        command = cli.group.get_command(group, name)
        assert command is not None
        found[f"{name}.md"] = "".join(_page(name, command, group)) + _FOOT
    return found


def _page(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"# {name}\n\n"
    yield from _described(command, context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield f"\n## {name} {inner}\n\n"
            yield from _described(found, click.Context(found, info_name=inner, parent=context))


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield what a command does, its usage, and its options."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        # click shows the lines below \b as they are.
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n\n"
        else:
            yield f"{_prose(' '.join(paragraph.split()))}\n\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```\n"
    yield f"\n```console\n$ {example(context)}\n```\n"
    for title, records in sections(command, context).items():
        yield f"\n| {title.lower()} | meaning |\n|---|---|\n"
        yield from (
            f"| `{_in_code(names)}` | {_prose(' '.join(said.split()))} |\n" for names, said in records
        )


def _in_code(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a sentence as Markdown: what is not between backticks has no markup."""
    return "`".join(
        _in_code(part) if index % 2 else re.sub(r"([|<>*\[\]])", r"\\\1", part)
        for index, part in enumerate(text.split("`"))
    )


def main() -> int:
    OVERVIEW.write_text(overview(OVERVIEW.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
