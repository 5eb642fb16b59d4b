"""The command line. The module of a command parses options, calls one function and prints the result.

`--help`, `COMMAND --help` and errors about options must appear at once. So a command's module is imported
only when that command runs, and it imports what takes long to load (SQLAlchemy, docker, rich, RE2, PyYAML,
Jinja) inside the functions that use it. `tests/cli/test_startup.py` checks this.
"""

from __future__ import annotations

import importlib
import sys

import click

from .. import __version__
from ..errors import EXIT_OK
from .program import COMMANDS, SuggestingGroup, main_help

#: The modules of the commands that have none of their own name.
MODULES = {
    "check": "doctor", "data": "report", "init": "project", "inspect": "predict", "lint": "predict",
    "lock": "project", "mcp": "report",
    "plan": "predict", "promote": "verify", "pull": "images", "recommend": "images", "refresh": "project",
    "run": "images", "runner": "certify", "sbom": "bundle",
    "serve": "report", "trust": "verify",
}  # fmt: skip


class _LazyGroup(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f".{MODULES.get(cmd_name, name)}", __name__)
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def get_help(self, ctx: click.Context) -> str:
        # click would import every command's module.
        return main_help()


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="validator")
@click.option("--json", "as_json", is_flag=True, help="Without a command: write the answer as JSON.")
@click.pass_context
def group(context: click.Context, as_json: bool) -> None:
    """Find out which TensorFlow, CUDA, cuDNN and driver work together, and use images that prove it."""
    if context.invoked_subcommand is None:
        from .here import show_this_machine

        show_this_machine(as_json)
    elif as_json:
        raise click.UsageError("--json before a command has no effect: write it after the command")


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. Raises ValidatorError for errors that a user should read."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # Not `group.main`, which exits by itself if the reader of the output is gone.
        with group.make_context("validator", list(words)) as context:
            code = group.invoke(context)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort as stop:
        raise KeyboardInterrupt from stop
    return code if isinstance(code, int) else EXIT_OK
