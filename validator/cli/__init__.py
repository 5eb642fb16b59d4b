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
from .program import SuggestingGroup

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
#: The modules of the commands that have none of their own name.
MODULES = {
    "check": "doctor", "data": "report", "init": "project", "lock": "project",
    "plan": "predict", "promote": "verify", "pull": "images", "recommend": "images", "refresh": "project",
    "run": "images", "runner": "certify", "serve": "report", "trust": "verify",
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every command's module for its help line.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success; 1 a cell, a check or a prediction failed, or doctor or lint found"
    " a problem;"
    " 2 the input is wrong; 3 something that is needed is missing.",
)
@click.version_option(__version__, prog_name="validator")
def group() -> None:
    """Find out which TensorFlow, CUDA, cuDNN and driver work together, and use images that prove it."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. Raises ValidatorError for errors that a user should read."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # Not `group.main`, which exits by itself if the reader of the output is gone.
        with group.make_context("python -m validator", list(words)) as context:
            code = group.invoke(context)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort as stop:
        raise KeyboardInterrupt from stop
    return code if isinstance(code, int) else EXIT_OK
