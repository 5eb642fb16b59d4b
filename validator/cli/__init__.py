"""The command line: its commands and their help, and how to start this program again.

The module of a command parses options, calls one function and prints the result. `--help`, `COMMAND --help`
and errors about options must appear at once. So a command's module is imported only when that command runs,
and it imports what takes long to load (SQLAlchemy, docker, rich, RE2, PyYAML, Jinja) inside the functions
that use it. `tests/cli/test_startup.py` checks this.

Messages, hints and fixes write a command as `validator plan`. The program's name is replaced when they are
printed for a person, because it may be missing in that person's shell: a checkout uses `.venv/bin/validator`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import itertools
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..errors import EXIT_OK
from ..resources import shipped_matrix

#: Directories in the cache of uv that hold the environments of `uvx`, which may be removed at any time.
_THROWAWAY = ("archive-v", "environments-v")
#: The commands by the question that they help with, each with its line in `--help`. Its module has the same
#: name, except for those in MODULES.
GROUPS = {
    "Answer": {
        "predict": "what works together, and why",
        "doctor": "why the GPU is not used",
        "lint": "what can't work in a file",
        "inspect": "what is in a wheel",
        "serve": "the page, on this machine",
        "mcp": "answers for assistants",
    },
    "Build": {
        "init": "write your own matrix",
        "lock": "pin the exact wheels",
        "plan": "list cells, and predict",
        "build-matrix": "build and measure images",
        "check": "run the probe once",
        "run": "start an image",
    },
    "Prove": {
        "certify": "sign what was measured",
        "verify": "check signatures, or rebuild",
        "promote": "move aliases such as latest",
        "pull": "pull the best for a host",
        "recommend": "list what fits a host",
        "trust": "write a cluster's policy",
        "runner": "make a machine's own key",
    },
    "Keep": {
        "records": "list, compare and share",
        "report": "the matrix, text or page",
        "data": "write tables for programs",
        "sbom": "what is in an image",
        "bundle": "take images off line",
        "refresh": "bring facts up to date",
        "fleet": "schedulers and their runs",
    },
}
COMMANDS = tuple(name for commands in GROUPS.values() for name in commands)
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


#: Options of `build-matrix` for an image of the shipped matrix. A matrix in this directory may lack it.
_CELL = " --profile full --select image="


def as_started(text: str) -> str:
    """Return a text whose commands work here and start this program the way it was started."""
    if "validator " not in text or not sys.argv:
        return text
    if os.path.lexists("matrix.yaml") and shipped_matrix().resolve() != Path("matrix.yaml").resolve():
        text = text.replace(_CELL, f" --matrix {_shown(shipped_matrix(), Path.cwd())}{_CELL}")
    started = Path(sys.argv[0])
    # Other programs may import this one, as its tests do.
    if started.name != "validator" and started.parts[-2:] != ("validator", "__main__.py"):
        return text
    command = program()
    return _COMMAND.sub(lambda _: command, text)


def _shown(path: Path, directory: Path) -> str:
    """Return what to type to start a program: a relative path, a name in PATH, or a full path."""
    if path.is_relative_to(directory):
        return shlex.quote(str(path.relative_to(directory)))
    found = shutil.which(path.name)
    return path.name if found is not None and os.path.abspath(found) == str(path) else shlex.quote(str(path))


# The help: commands by question, options in named groups, and an example of each command.


_START = """\
Usage: validator [-v] [--json | --version | COMMAND --help]

Without a command: what is here, whether TensorFlow can use the GPU, and what
works. An image spec says what to build; a cell is an image spec on a kind of
machine; a verdict is what a measurement of a cell showed.
"""
_END = "Exit codes: 0 success, 1 something failed, 2 wrong input, 3 something missing."
#: Columns of the left half of the commands, and of the names in each half.
_HALF, _NAMES = 40, (10, 13)


def main_help() -> str:
    """Return the help of the whole program, which fits a screen of 24 lines with 80 columns."""
    rows: list[str] = []
    for pair in (("Answer", "Build"), ("Prove", "Keep")):
        halves = [
            [group, *(f"  {name:<{width}}{line}" for name, line in GROUPS[group].items())]
            for width, group in zip(_NAMES, pair, strict=True)
        ]
        rows += [
            f"{left:<{_HALF}}{right}".rstrip() for left, right in itertools.zip_longest(*halves, fillvalue="")
        ]
    return "\n".join([_START, *rows, "", _END])


#: The groups of options, each with its parameters. A command with few options has one group.
_SECTIONS = {
    "Which software": """tensorflow reference image python policy cuda cudnn variant wheel extra
        packages additions mode files lock_path report_path""",
    "Which machine": """driver gpu gpus capability compat system machine kernel_modules from_host
        hosts on fleet_path""",
    "Which cells": "matrix_path profile selectors identifiers store_url",
    "How it is built": "engine_name base layout jobs keep_going no_validate rehearse keep rebuild",
    "How it is measured": "depth challenge challenges_path only skip own_checks",
    "How it is started": "execute mount variables devices no_xla_cache uncertified host port",
    "Registry, keys and trust": """repository registry bundle plain_http push retag mount_from pull_from
        attach key builder_key identity issuer trusted_root fixtures max_age accept_expired
        trust_path log valid_for certificate_files""",
    "Output": """output into volume_size wait directory answers list_ save_report save_probe dry_run force
        as_json as_markdown format_ verbose""",
}
#: The most options that are shown as one group.
_FEW = 9
#: An example of each command.
EXAMPLES = {
    "predict": "predict --gpu h100 --driver 535.183.01",
    "doctor": 'doctor --python "$(command -v python)"',
    "lint": "lint Dockerfile requirements.txt",
    "inspect": "inspect tensorflow-2.22.0-cp312-cp312-linux_x86_64.whl",
    "serve": "serve --port 8642",
    "mcp": "mcp --http",
    "init": "init",
    "lock": "lock --profile quick",
    "plan": "plan --profile full --select gpu=h100",
    "build-matrix": "build-matrix --profile full --select image=tf2.21.0-cuda12.9-cudnn9.28-py312",
    "check": "check --image tensorflow/tensorflow:2.18.0-gpu",
    "run": "run --uncertified --exec --mount -- python train.py",
    "certify": "certify --registry ghcr.io/team/tensorflow --signing-key team.key",
    "certify challenges": "certify challenges --select gpu=h100 > cells.json",
    "certify keygen": "certify keygen --output-prefix team",
    "certify revoke": "certify revoke gpu-1 --at 2026-12-01T06:30",
    "verify": "verify --registry ghcr.io/team/tensorflow --key team.pub",
    "promote": "promote --registry ghcr.io/team/tensorflow --key team.pub --dry-run",
    "bundle": "bundle --registry ghcr.io/team/tensorflow tf2.21.0-cuda12.9-cudnn9.28-py312 bundle",
    "pull": "pull --registry ghcr.io/team/tensorflow --key team.pub",
    "recommend": "recommend --registry ghcr.io/team/tensorflow --key team.pub",
    "trust export": "trust export --format jq --driver 580 --gpu h100",
    "runner init": "runner init --name gpu-1",
    "records bisect": "records bisect tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100",
    "records compare": "records compare 2026-11-01 2026-11-08",
    "records export": "records export --output records.jsonl",
    "records import": "records import --report report.json",
    "records list": "records list",
    "records merge": "records merge artifacts/ --summary summary.md",
    "records publish": 'records publish report.json --how "in a virtual environment"',
    "records regressions": "records regressions --since 1d",
    "records salvage": "records salvage --store damaged.db --output good.jsonl",
    "records show": "records show 0d67bfe3",
    "report": "report --profile full --format markdown",
    "data export": "data export tables --profile nightly",
    "sbom": "sbom tf2.21.0-cuda12.9-cudnn9.28-py312 --output image.cdx.json",
    "refresh": "refresh --check",
    "fleet cancel": "fleet cancel run-93006",
    "fleet inventory": "fleet inventory --on slurm --profile nightly",
    "fleet logs": "fleet logs tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100",
    "fleet manifests": "fleet manifests --namespace tensorflow --user alice",
    "fleet resume": "fleet resume run-93006",
    "fleet status": "fleet status",
}


def sections(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the names and the help of a command's options, by the name of their group."""
    names = {name: title for title, members in _SECTIONS.items() for name in members.split()}
    found: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            found.setdefault(names.get(parameter.name or "", "Options"), []).append(record)
    if found and sum(map(len, found.values())) <= _FEW:
        return {"Options": [record for records in found.values() for record in records]}
    return {title: found[title] for title in ("Options", *_SECTIONS) if title in found}


def example(context: click.Context) -> str:
    """Return the example of a command, or of a group's first command."""
    path = context.command_path.partition(" ")[2]
    return "validator " + next(shown for name, shown in EXAMPLES.items() if f"{name} ".startswith(f"{path} "))


def _show_commands(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


#: Every command has it.
verbose = click.Option(
    ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_show_commands,
    help="Show the commands that are run.",
)  # fmt: skip


@dataclass(frozen=True)
class Given:
    """The default of a function's argument that the command line gives.

    parameters: takes the argument's name, and returns its options and arguments of the command line.
    value: makes the argument's value from the values of all of these, by name, to which it may add names that
    the function takes; None to use the value of the argument's own name.
    """

    parameters: Callable[[str], Sequence[click.Parameter]]
    value: Callable[[dict[str, Any]], Any] | None = None

    def __bool__(self) -> bool:
        raise TypeError("the command line has not given this argument")


def declared(function: Callable[..., Any]) -> tuple[list[click.Parameter], Callable[[dict[str, Any]], Any]]:
    """Return the parameters that a function or a dataclass declares as defaults, and how to call it.

    It is called with a dict of all values by name. Names that the function does not take are ignored.
    """
    names = inspect.signature(function).parameters
    given = {name: one.default for name, one in names.items() if isinstance(one.default, Given)}

    def call(said: dict[str, Any]) -> Any:
        values = {name: one.value(said) for name, one in given.items() if one.value}
        return function(**{name: value for name, value in {**said, **values}.items() if name in names})

    return [each for name, one in given.items() for each in one.parameters(name)], call


class Command(click.Command):
    """A command with an example, with `--verbose`, and with its options in named groups.

    Its function may declare parameters as the defaults of its arguments: see `Given`.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        function = settings["callback"]
        more, call = declared(function)
        settings["params"] = [*settings.get("params", ()), *more]
        settings["callback"] = functools.update_wrapper(lambda **said: call(said), function)
        super().__init__(*arguments, **settings)
        if not isinstance(self, click.Group) or self.invoke_without_command:
            self.params.append(verbose)

    def invoke(self, ctx: click.Context) -> Any:
        from .options import refuse_overwriting

        refuse_overwriting(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{as_started(example(ctx))}\n")
        for title, records in sections(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)


#: The most characters of a command's line in `--help`, which is wrapped.
_LONGEST = 200


class SuggestingGroup(Command, click.Group):
    """A group that says which command was probably meant. For options, click does this itself."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError for an unknown name, with the nearest names."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = [path for path in EXAMPLES if path.endswith(f" {name}")]
        near = near or difflib.get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.6)
        message = f'there is no command "{name}"'
        if near:
            message += f"; did you mean {' or '.join(near)}?"
        raise click.UsageError(message, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Command.format_options(self, ctx, formatter)
        # click would cut the first sentence of a command's help to one line.
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, found.get_short_help_str(_LONGEST)) for name, found in commands if found]
            )


#: The modules of the commands that have none of their own name.
MODULES = {
    "check": "doctor", "data": "report", "init": "project", "inspect": "predict", "lint": "predict",
    "lock": "project", "mcp": "report", "plan": "predict", "promote": "verify", "pull": "images",
    "recommend": "images", "refresh": "project", "run": "images", "runner": "certify", "sbom": "bundle",
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
