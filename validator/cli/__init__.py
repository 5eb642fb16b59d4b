"""The command line: one thin module a command. Each parses, calls one function, prints.

A command's module is imported only when that command runs, so that `--help` stays quick.
"""

from __future__ import annotations

import importlib
import sys

import click

from .. import __version__
from ..errors import EXIT_OK

#: Command, and the line that `--help` shows for it. The module has the command's name, but for those below.
COMMANDS = {
    "build-matrix": "Lock, build, probe and record every selected cell: the main job.",
    "certify": "Sign what was certified by measurement, and attach it to the images; make keys.",
    "check": "Run the probe once: here, in an image, or with another Python.",
    "doctor": "Name the cause when the GPU is not used: here, from a report, or from a pasted log.",
    "lock": "Resolve image specs to exact wheels and write their locks.",
    "plan": "List the cells with their predictions, without running anything.",
    "predict": "Say what the facts predict for any one combination.",
    "promote": "Move the aliases that people pull to the newest certified images.",
    "pull": "Pull the best image that is certified for this host, by its digest.",
    "recommend": "List the images of a registry that fit a host, and why the others do not.",
    "records": "List, show, move and compare what was recorded; say what got worse, and since when.",
    "report": "Show the matrix, predicted beside measured.",
    "run": "Print or run the docker run line of the best certified image for this host.",
    "verify": "Verify the certificates of images in a registry.",
}
#: A module of that name would take the place of this module's own `run`.
MODULES = {"run": "run_image"}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{MODULES.get(cmd_name, cmd_name.replace('-', '_'))}", __name__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every command's module to ask it for its line.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 all is well; 1 a cell, a check or a prediction failed, or doctor saw a fault;"
    " 2 the input is wrong; 3 what was needed is not there.",
)
@click.version_option(__version__, prog_name="validator")
def group() -> None:
    """Which TensorFlow, CUDA, cuDNN and driver work together, and the images that prove it."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command and give back its exit code. Raises ValidatorError for what a person should read."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # Not `group.main`, which exits by itself where the reader of the output has gone.
        with group.make_context("python -m validator", list(given)) as context:
            code = group.invoke(context)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort as stop:
        raise KeyboardInterrupt from stop
    return code if isinstance(code, int) else EXIT_OK
