"""Options that several commands share, and what they lead to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..reports.printable import printable

F = TypeVar("F", bound=Callable[..., Any])

matrix_option = click.option(
    "--matrix",
    "matrix_path",
    type=click.Path(path_type=Path),
    default=Path("matrix.yaml"),
    show_default=True,
    help="The matrix file.",
)
profile_option = click.option("--profile", help="A profile of the matrix.  [default: the matrix's own]")
select_option = click.option(
    "--select",
    "selectors",
    multiple=True,
    metavar="EXPRESSION",
    help="Keep matching cells only, such as 'tensorflow>=2.20', python=3.12, gpu=h100; repeatable.",
)
depth_option = click.option(
    "--depth",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="What a verdict needs, or every measurement too, which takes minutes.",
)
store_option = click.option(
    "--store",
    "store_url",
    metavar="URL",
    envvar="VALIDATOR_STORE",
    show_envvar=True,
    help="Where records are kept: an SQLite file, or postgresql+psycopg://user@host/database."
    "  [default: beside the matrix]",
)


def format_option(*formats: str) -> Callable[[F], F]:
    """`--format`, whose first value is the default, and `--json` for short where JSON is among them."""

    def decorate(function: F) -> F:
        function = click.option(
            "--format",
            "format_",
            type=click.Choice(formats),
            default=formats[0],
            show_default=True,
            help="How the result is written to stdout.",
        )(function)
        if "json" in formats:
            function = click.option("--json", "format_", flag_value="json", help="Short for --format json.")(
                function
            )
        return function

    return decorate


def verbose_option(function: F) -> F:
    """`-v`: show what is run."""

    def switch(_: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)

    return click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=switch, help="Show what is run."
    )(function)


def store_url_for(matrix_path: Path, given: str | None) -> str:
    """The store that was named, or the one beside the matrix."""
    from ..records.store import DEFAULT_PATH

    return given or str(matrix_path.parent / DEFAULT_PATH)


def say(text: str) -> None:
    """A line for the person at the terminal; stdout is for results alone. May hold text from anywhere."""
    click.echo(printable(text), err=True)
