"""Options that several commands share, and the functions that evaluate them."""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from ..errors import InputError
from ..model.codec import LARGEST, now_utc, parse_time
from ..model.spec import ImageSpec
from ..reports.printable import printable
from ..resources import shipped_matrix
from ..system.files import read_file, write_atomically
from .program import as_started

if TYPE_CHECKING:
    from ..certify.trust import Trust
    from ..records.store import Store
    from ..registry.client import Registry

F = TypeVar("F", bound=Callable[..., Any])
#: Types of options: any path; a file that is there; a path that is not a directory; one that is not a file.
PATH = click.Path(path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ANY_FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
#: The matrix that is used without --matrix, if it exists.
OWN_MATRIX = Path("matrix.yaml")


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds these options, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def flag(*names: str, help: str) -> Callable[[F], F]:
    """Return an option without a value."""
    return click.option(*names, is_flag=True, help=help)


matrix_option = click.option(
    "--matrix",
    "matrix_path",
    type=PATH,
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
#: For commands about the cells of a matrix: `matrix_path`, `profile` and `selectors`.
cell_options = together(matrix_option, profile_option, select_option)
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
#: For commands about records: `matrix_path` and `store_url`.
record_options = together(matrix_option, store_option)


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


def _show_commands(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_show_commands,
    help="Show the commands that are run.",
)  # fmt: skip


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


def read_input(path: Path) -> bytes:
    """Return the content of a file that an option names. Raises InputError if it can't be read."""
    try:
        return read_file(path, LARGEST)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def write_or_print(text: str, output: Path | None, *, say: bool = True) -> None:
    """Print a text to stdout, or write it to a file. say: also say that it was written."""
    if output is None:
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    if say:
        print_status(f"Wrote {output}")


# Options of the commands that read certificates: the registry that has them, and whose to trust.


_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_age(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """Parse a length of time: `12h`, `30d`, `6w`."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,5})([hdw])", value.strip())
    if not match:
        raise click.BadParameter(f'"{value}" is not a length of time (such as 12h, 30d or 6w)')
    return int(match[1]) * _UNITS[match[2]]


def parse_moment(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time: `2026-11-01`, `2026-11-01T06:30`, or `36h` ago. Raises InputError."""
    return None if value is None else parse_time(value, now_utc())


def trust_path_for(matrix_path: Path, trust_path: Path | None) -> Path:
    """Return the given trust file, or the one next to the matrix."""
    from ..certify.trust import NAME

    return trust_path or working_directory(matrix_path) / NAME


def open_registry(repository: str, plain_http: bool) -> Registry:
    """Return the registry of a repository. Raises InputError if the text is not the name of one."""
    # Most commands never talk to a registry, and start sooner without its client.
    from ..registry.client import Registry
    from ..registry.names import Repository

    return Registry(Repository.parse(repository), plain_http=plain_http or None)


trust_file_option = click.option(
    "--trust",
    "trust_path",
    type=PATH,
    metavar="FILE",
    envvar="VALIDATOR_TRUST",
    show_envvar=True,
    help="The file that says who may sign, and which limits are refused.  [default: trust.yaml next to the"
    " matrix, or in this directory]",
)


registry_option = click.option(
    "--registry",
    "repository",
    metavar="REGISTRY/NAME",
    envvar="VALIDATOR_REGISTRY",
    show_envvar=True,
    help="The repository of the images, such as ghcr.io/team/tensorflow.",
)
trusted_root_option = click.option(
    "--trusted-root",
    type=FILE,
    metavar="FILE",
    help="The trusted roots of your own Sigstore.  [default: those of the public Sigstore]",
)
plain_http_option = flag(
    "--plain-http",
    help="Connect to the registry without TLS.  [default: only for a registry on this machine]",
)


def builder_options(switch: str, signed: str) -> Callable[[F], F]:
    """Add `--builder-key`, `--identity` and `--issuer`, the arguments of `signing.builder_of`.

    switch: the option without which they have no effect. signed: what is signed.
    """
    return together(
        click.option(
            "--builder-key",
            metavar="FILE",
            envvar="VALIDATOR_BUILDER_KEY",
            show_envvar=True,
            help=f"With {switch}: the private key that signs {signed}, or env://NAME; its password"
            " comes from COSIGN_PASSWORD.  [default: this machine's own key]",
        ),
        click.option(
            "--identity",
            metavar="NAME",
            help=f"With {switch}: sign as this identity, with its OIDC token, not with a key.",
        ),
        click.option("--issuer", metavar="URL", help="With --identity: the issuer of the OIDC token."),
    )


_trust_options = together(
    click.option(
        "--key",
        type=PATH,
        metavar="FILE",
        envvar="VALIDATOR_KEY",
        show_envvar=True,
        help="The public key that certificates must be signed with.",
    ),
    click.option(
        "--identity",
        metavar="NAME",
        help="Without a key: the identity that must have signed, such as the URL of a workflow.",
    ),
    click.option("--issuer", metavar="URL", help="Without a key: the issuer of the identity's OIDC token."),
    trusted_root_option,
    flag(
        "--fixtures", help="For tests: accept certificates of made-up records, signed with a throw-away key."
    ),
    click.option(
        "--max-age",
        callback=parse_age,
        metavar="AGE",
        help="Reject measurements older than this, such as 7d or 12h.",
    ),
    flag(
        "--accept-expired",
        help="Also accept expired certificates. They expire 14 days after the measurement, unless the signer"
        " chose otherwise.",
    ),
    trust_file_option,
)


_bundle_option = click.option(
    "--from-bundle",
    "bundle",
    type=DIRECTORY,
    metavar="DIRECTORY",
    help="Use the images and certificates of a bundle that `bundle receive` unpacked, without a network.",
)


def open_bundle(directory: Path) -> Registry:
    """Return the images and certificates of a received bundle. Raises InputError if it is none."""
    from ..registry.layout import in_layout

    missing = [name for name in ("bundle.json", "images") if not (directory / name).exists()]
    if missing:
        hint = "unpack a bundle with `validator bundle receive DIRECTORY`, and name what it prints"
        raise InputError(f"{directory} is not a received bundle: it has no {missing[0]}", hint=hint)
    return in_layout(directory / "images", directory / "certificates")


def certificate_options(*, need_registry: bool = True, bundles: bool = True) -> Callable[[F], F]:
    """Add the options of every command that reads certificates. bundles: also those of a bundle.

    The command receives the resulting `registry`, `trust`, `max_age` and `accept_expired`, and `trust_path`,
    `plain_http` and `bundle` if it has arguments of these names. Wrong options are reported before anything
    else is done. `rebuild` needs no trusted signer, and neither does `uncertified` unless a signer is named:
    then `trust` is None. Without --registry and --from-bundle, `registry` is None.
    """

    def decorate(function: F) -> F:
        wanted = {"trust_path", "plain_http", "bundle"} & inspect.signature(function).parameters.keys()

        @functools.wraps(function)
        def command(
            *arguments: Any,
            repository: str | None,
            key: Path | None,
            identity: str | None,
            issuer: str | None,
            trusted_root: Path | None,
            fixtures: bool,
            **options: Any,
        ) -> Any:
            given = {name: options.pop(name, None) for name in ("trust_path", "plain_http", "bundle")}
            if need_registry and not (repository or given["bundle"]):
                raise click.MissingParameter(param_hint="'--registry'", param_type="option")
            trust = _trust_of(key, identity, issuer, trusted_root, fixtures, given["trust_path"], options)
            if given["bundle"] is not None:
                registry: Registry | None = open_bundle(given["bundle"])
                _check_own_trust(given["bundle"], trust, given["trust_path"])
            else:
                registry = open_registry(repository, given["plain_http"]) if repository else None
            options |= {name: given[name] for name in wanted}
            return function(*arguments, registry=registry, trust=trust, **options)

        more = (_bundle_option,) if bundles else ()
        add = together(registry_option, *more, plain_http_option, _trust_options)
        return cast(F, add(command))

    return decorate


def _check_own_trust(bundle: Path, trust: Trust | None, trust_path: Path | None) -> None:
    """Warn about trust that comes from the bundle. Raises InputError if Sigstore's roots are not given."""
    if trust is None:
        return
    if trust.key is None and trust.trusted_root is None:
        raise InputError(
            "an identity's signature is verified with Sigstore's roots, which can't be downloaded without a"
            " network",
            hint="name a file that you trust: --trusted-root FILE; the bundle may have one,"
            f" {bundle / 'trust' / 'trusted_root.json'}, which proves nothing unless you compared it with"
            " another copy",
        )
    for file in (trust.key, trust.trusted_root, trust_path):
        if isinstance(file, Path) and file.resolve().is_relative_to(bundle.resolve()):
            digest = hashlib.sha256(read_input(file)).hexdigest()
            print_status(
                f"WARNING: {file} is from the bundle itself, so whoever wrote the bundle decides what it"
                f" proves. Compare it with a copy that you got another way: SHA-256 {digest}"
            )


def _trust_of(
    key: Path | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    fixtures: bool,
    trust_path: Path | None,
    options: Mapping[str, Any],
) -> Trust | None:
    """Return whom to trust, or None if nobody needs to be trusted. options: the command's other options.

    Raises InputError if no signer is named, or if a key or the trust file can't be used.
    """
    # To compare layers with wheels, nobody needs to be trusted.
    nobody = options.get("rebuild") or (options.get("uncertified") and not (key or identity or issuer))
    if nobody:
        return None
    from ..certify.trust import Trust

    path = trust_path_for(options.get("matrix_path") or Path(), trust_path)
    refused: tuple[str, ...] = ()
    # The file next to the matrix need not exist.
    if trust_path is not None or path.exists():
        from ..certify.trust import read_trust_file

        refused = read_trust_file(path).refuse_limits
    # An identity on the command line overrides the key in the environment.
    source = click.get_current_context().get_parameter_source("key")
    if identity and source is not click.core.ParameterSource.COMMANDLINE:
        key = None
    trust = Trust(key, identity, issuer, trusted_root, fixtures, refused)
    trust.check()
    return trust


# Say what the facts mean for a command: that they are out of date, and why they recommend versions.


def say_if_stale(today: date | None = None, stream: TextIO | None = None) -> None:
    """Print one line to stderr if the facts are old, or don't know a release that `refresh --check` saw.

    Print only to a terminal, so that the output of scripts never depends on the date. Don't use the network.

    today: None for the date of this machine. stream: None for stderr.
    """
    if not (sys.stderr if stream is None else stream).isatty():
        return
    from ..supply.freshness import recall, remark

    found = remark(today or date.today(), recall())
    if found:
        print_status(found)


def say_recommended(images: Iterable[ImageSpec]) -> None:
    """Print why `recommended` takes its versions, for each release of which an image has them."""
    from ..compat.policies import is_recommended, why_recommended
    from ..compat.releases import release

    for tensorflow in dict.fromkeys(spec.tensorflow for spec in images if is_recommended(spec)):
        print_status(f"Recommended for TensorFlow {tensorflow}: {why_recommended(release(tensorflow))}.")
