"""The command that starts this program again as it was started.

Messages, hints and fixes write a command as `validator plan`. The program's name is replaced when they are
printed for a person, because it may be missing in that person's shell: a checkout uses `.venv/bin/validator`.
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
#: Each command with its line in `--help`. Its module has the same name, except for those in MODULES.
COMMANDS = {
    "build-matrix": "Lock, build, probe and record every selected image: the main job.",
    "certify": "Sign certificates for measured images and attach them to the images; make keys.",
    "check": "Run the probe once: in this environment, in an image, or with another Python.",
    "data": "Write the facts, predictions, records and messages as tables for other programs.",
    "doctor": "Find out why the GPU is not used: here, from a report, or from a pasted log.",
    "fleet": "List a scheduler's nodes, and follow the runs of `build-matrix --on`.",
    "init": "Write a matrix, its locks and a workflow for a repository of your own.",
    "lint": "Report what can't work in a Dockerfile, a requirements file, a project or a lock.",
    "lock": "Resolve image specs to exact wheels and write their locks.",
    "mcp": "Answer the questions of assistants such as Claude Code, by the Model Context Protocol.",
    "plan": "List the cells with their predictions, without running anything.",
    "predict": "Predict whether one combination of versions, driver and GPU works.",
    "promote": "Move aliases such as latest to the newest certified images.",
    "pull": "Pull the best image that is certified for this host.",
    "recommend": "List the images in a registry that fit this host, and say why the others don't.",
    "records": "List, show, export, import, merge, compare and salvage records; find regressions.",
    "refresh": "Bring the facts and what is pinned by hash up to date, or only say what is new.",
    "report": "Show the matrix with its predictions and measured verdicts, or write it as a web page.",
    "run": "Write how to start the best certified image with docker or another tool, or start it.",
    "runner": "Make the key that this machine signs its measurements with, and register it.",
    "sbom": "List what is in an image, in CycloneDX.",
    "serve": "Show the page on this machine, with the progress of a running `build-matrix`.",
    "trust": "Write a policy that lets a cluster run only images with a good certificate.",
    "verify": "Verify the certificates of the images in a registry.",
}
#: A command of this program in a text, but not one that names the program by a path or starts it with `uvx`.
_COMMAND = re.compile(
    rf"(?<![\w./-])(?<!gpu-matrix )(?<!-m )validator(?= (?:{'|'.join(COMMANDS)})(?![\w.-]))"
)


def program(directory: Path | None = None) -> str:
    """Return how to start this program again: `.venv/bin/validator`, `validator`, or with `uvx`.

    If `python -m validator` started it, the program next to that Python is named: it does not import what
    lies in the current directory, as `-m` does.
    directory: where the command is to be typed; the current directory if None.
    """
    # Imported here because most subcommands print no command and need not load the diagnosis.
    from ..diagnosis.remedies import ANYWHERE

    if any(part.startswith(_THROWAWAY) for part in Path(sys.prefix).parts):
        return ANYWHERE
    started = Path(sys.argv[0])
    directory = Path.cwd() if directory is None else directory.resolve()
    if started.name == "__main__.py":
        python = Path(sys.executable)
        started = python.with_name("validator")
        if not started.exists():
            return f"{_shown(python, directory)} -m validator"
    return _shown(started.absolute(), directory)


def as_started(text: str) -> str:
    """Return a text in which the commands of this program start it the way it was started."""
    if "validator " not in text or not _is_program(Path(sys.argv[0])):
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
