"""The command that starts this program again as it was started.

Messages, hints and fixes write this command as `python -m validator`. It is replaced when they are printed
for a person, because `python` may be missing in that person's shell or may be a different one: a checkout
uses `.venv/bin/python`.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click

#: Directories in the cache of uv that hold the environments of `uvx`, which may be removed at any time.
_THROWAWAY = ("archive-v", "environments-v")
#: A command of this program in a text, but not `python -m validator.probe`.
_COMMAND = re.compile(r"(?<![\w./-])python -m validator(?![\w.-])")


def program(directory: Path | None = None) -> str:
    """Return how this program was started: `.venv/bin/python -m validator`, `validator`, or with `uvx`.

    directory: where the command is to be typed; the current directory if None.
    """
    # Imported here because most subcommands print no command and need not load the diagnosis.
    from ..diagnosis.remedies import ANYWHERE

    if any(part.startswith(_THROWAWAY) for part in Path(sys.prefix).parts):
        return ANYWHERE
    started = Path(sys.argv[0])
    directory = Path.cwd() if directory is None else directory.resolve()
    if started.name == "__main__.py":
        return f"{_shown(Path(sys.executable), directory)} -m validator"
    return _shown(started.absolute(), directory)


def as_started(text: str) -> str:
    """Return a text in which the commands of this program start it the way it was started."""
    if "python -m validator" not in text or not _is_program(Path(sys.argv[0])):
        return text
    started = program()
    return _COMMAND.sub(lambda _: started, text)


def _is_program(started: Path) -> bool:
    # Other programs may import this one, as its tests do.
    return started.name == "validator" or started.parts[-2:] == ("validator", "__main__.py")


def _shown(path: Path, directory: Path) -> str:
    """Return what to type to start a program: a relative path, a name in PATH, or a full path."""
    if path.is_relative_to(directory):
        return shlex.quote(str(path.relative_to(directory)))
    found = shutil.which(path.name)
    return path.name if found is not None and os.path.abspath(found) == str(path) else shlex.quote(str(path))


# Command groups that suggest a command for a mistyped one, and show whole sentences in their help.


#: The most characters of a command's line in `--help`, which is wrapped.
_LONGEST = 200


class SuggestingGroup(click.Group):
    """A group that says which command was probably meant. For options, click does this itself."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError for a name that is none, with the nearest names."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.6)
        message = f'there is no command "{name}"'
        if near:
            message += f"; did you mean {' or '.join(near)}?"
        raise click.UsageError(message, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would cut the first sentence of a command's help to one line.
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, found.get_short_help_str(_LONGEST)) for name, found in commands if found]
            )
