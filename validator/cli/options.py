"""Options that several commands share, and what they lead to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..reports.printable import printable

if TYPE_CHECKING:
    from ..records.store import Store

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


def format_option(*formats: str, short: tuple[str, ...] = ("json",)) -> Callable[[F], F]:
    """`--format`, whose first value is the default, and `--json` for `--format json`; see `short`.

    The command takes it as `format_`. Different ones given together exclude each other.
    """
    switches = [name for name in short if name in formats]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*arguments: Any, format_: str | None, **options: Any) -> Any:
            named = {f"--{name}": name for name in switches if options.pop(f"as_{name}")}
            if format_ is not None:
                named[f"--format {format_}"] = format_
            if len(set(named.values())) > 1:
                raise click.UsageError(f"{' and '.join(named)} exclude each other")
            return function(*arguments, format_=next(iter(named.values()), formats[0]), **options)

        decorated: Any = click.option(
            "--format",
            "format_",
            type=click.Choice(formats),
            help=f"How the result is written to stdout.  [default: {formats[0]}]",
        )(command)
        for name in reversed(switches):
            decorated = click.option(
                f"--{name}", f"as_{name}", is_flag=True, help=f"Short for --format {name}."
            )(decorated)
        return cast(F, decorated)

    return decorate


def refuse(names: Iterable[str], why: str) -> None:
    """Raise UsageError where one of these parameters was given, since it would do nothing: `why`."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} {why}")


def verbose_option(function: F) -> F:
    """`-v`: show what is run."""

    def switch(_: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            import logging

            logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)

    return click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=switch, help="Show what is run."
    )(function)


def store_url_for(matrix_path: Path, given: str | None) -> str:
    """The store that was named, or the one beside the matrix."""
    from ..records.store import DEFAULT_PATH

    return given or str(matrix_path.parent / DEFAULT_PATH)


def store_to_read(matrix_path: Path, given: str | None) -> Store:
    """The store to read from, which reading never makes.

    Where none was named and none lies beside the matrix there are no records yet: an empty one that is kept
    nowhere. Raises MissingError where one was named that is not there.
    """
    from ..records.store import Store

    url = store_url_for(matrix_path, given)
    if given is None and not Path(url).exists():
        say(f"no records yet: {url} is not there")
        return Store(":memory:")
    return Store(url, must_exist=True)


def say(text: str) -> None:
    """A line for the person at the terminal; stdout is for results alone. May hold text from anywhere."""
    click.echo(printable(text), err=True)
