"""Options that several commands share, and the functions that evaluate them."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..reports.printable import printable
from ..resources import shipped_matrix
from .program import as_started

if TYPE_CHECKING:
    from ..records.store import Store

F = TypeVar("F", bound=Callable[..., Any])
#: The matrix that is used without --matrix, if it exists.
OWN_MATRIX = Path("matrix.yaml")

matrix_option = click.option(
    "--matrix",
    "matrix_path",
    type=click.Path(path_type=Path),
    callback=lambda _context, _parameter, value: value or default_matrix(),
    help="The matrix file.  [default: matrix.yaml if there is one here, otherwise the one of this tool]",
)
profile_option = click.option("--profile", help="The profile of the matrix.  [default: quick]")
select_option = click.option(
    "--select",
    "selectors",
    multiple=True,
    metavar="EXPRESSION",
    help="Only select matching cells, such as 'tensorflow>=2.20', python=3.12 or gpu=h100; repeatable.",
)
depth_option = click.option(
    "--depth",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="quick: the checks that a verdict needs; full: all checks, with measurements that take minutes.",
)


def _challenge(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    # The import takes a tenth of the time in which `doctor` reads a small log.
    from ..model.measurement import is_challenge

    if value is not None and not is_challenge(value):
        raise click.BadParameter("a challenge has 64 digits: 0 to 9 and a to f")
    return value


challenge_option = click.option(
    "--challenge",
    metavar="TEXT",
    callback=_challenge,
    help="A challenge from whoever will certify, which the probe repeats in its report.",
)
store_option = click.option(
    "--store",
    "store_url",
    metavar="URL",
    envvar="VALIDATOR_STORE",
    show_envvar=True,
    help="Where records are stored: an SQLite file, or postgresql+psycopg://user@host/database."
    "  [default: .validator/records.db next to the matrix]",
)


def format_option(*formats: str, short: tuple[str, ...] = ("json",)) -> Callable[[F], F]:
    """Add `--format`, whose first value is the default, and a flag such as `--json` for each of `short`.

    The command receives the format as `format_`. Contradicting options are a usage error.
    """
    switches = [name for name in short if name in formats]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*arguments: Any, format_: str | None, **options: Any) -> Any:
            named = {f"--{name}": name for name in switches if options.pop(f"as_{name}")}
            if format_ is not None:
                named[f"--format {format_}"] = format_
            if len(set(named.values())) > 1:
                raise click.UsageError(f"{' and '.join(named)} can't be combined")
            return function(*arguments, format_=next(iter(named.values()), formats[0]), **options)

        decorated: Any = click.option(
            "--format",
            "format_",
            type=click.Choice(formats),
            help=f"The format of the result on stdout.  [default: {formats[0]}]",
        )(command)
        for name in reversed(switches):
            decorated = click.option(
                f"--{name}", f"as_{name}", is_flag=True, help=f"Short for --format {name}."
            )(decorated)
        return cast(F, decorated)

    return decorate


def reject_options(names: Iterable[str], reason: str) -> None:
    """Raise UsageError if one of these parameters was given on the command line.

    reason: the rest of the sentence that starts with the option.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} {reason}")


def verbose_option(function: F) -> F:
    """Add `-v`, which shows the commands that are run."""

    def switch(_: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)

    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=switch,
        help="Show the commands that are run.",
    )(function)


def default_matrix() -> Path:
    """Return the matrix in the current directory, or that of this tool."""
    return OWN_MATRIX if os.path.lexists(OWN_MATRIX) else shipped_matrix()


def working_directory(matrix_path: Path) -> Path:
    """Return where the files of a matrix are and are written: its locks, its records and its trust file.

    That is the matrix's own directory, but for the matrix of this tool it is the current directory: nothing
    is written into an installed package.
    """
    return Path() if matrix_path == shipped_matrix() else matrix_path.parent


def store_url_for(matrix_path: Path, store_url: str | None) -> str:
    """Return the URL of the given store, or of the one next to the matrix."""
    from ..records.store import DEFAULT_PATH

    return store_url or str(working_directory(matrix_path) / DEFAULT_PATH)


def progress_directory(matrix_path: Path) -> Path:
    """Return where `build-matrix` writes how far it is, next to the matrix."""
    from ..system.files import STATE_DIRECTORY

    return working_directory(matrix_path) / STATE_DIRECTORY / "progress"


def open_store(matrix_path: Path, store_url: str | None) -> Store:
    """Open a store for reading, without creating one.

    If no store was given and there is none next to the matrix, there are no records yet: returns an empty
    store in memory. Raises MissingError if the given store does not exist.
    """
    from ..records.store import Store

    url = store_url_for(matrix_path, store_url)
    if store_url is None and not Path(url).exists():
        print_status(f"There are no records yet: {url} does not exist.")
        return Store(":memory:")
    return Store(url, read_only=True)


def print_status(text: str) -> None:
    """Print a line to stderr, since stdout is only for results. The text may come from anywhere."""
    click.echo(as_started(printable(text)), err=True)
