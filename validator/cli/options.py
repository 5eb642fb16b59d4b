"""Options that several commands share, and the functions that evaluate them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import InputError
from ..model.codec import LARGEST, now_utc, parse_time
from ..model.spec import ImageSpec
from ..reports.printable import printable
from ..resources import shipped_matrix
from ..system.files import read_file, write_atomically
from . import Given, as_started, declared

if TYPE_CHECKING:
    from ..certify.trust import Terms, Trust, TrustFile
    from ..records.store import Store
    from ..registry.client import Registry

#: Types of options: any path; a file that is there; a path that is not a file; a directory that is there.
PATH = click.Path(path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
DIRECTORY_THERE = click.Path(exists=True, file_okay=False, path_type=Path)
#: A file that the command writes: see `refuse_overwriting`.
OUTPUT = click.Path(dir_okay=False, path_type=Path)
#: How an SQLite file and its write-ahead log begin.
_DATABASE = (b"SQLite format 3\0", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
#: The matrix that is used without --matrix, if it exists.
OWN_MATRIX = Path("matrix.yaml")


def option(text: str, *into: str, env: str | None = None, **settings: Any) -> Any:
    """Return an option, which is the default of the argument that gets its value: see `Given`.

    text: as `--help` shows it, such as `--gpu MODEL  The GPU.`, or `--gpu MODEL...  The GPUs.` if it is
    repeatable. `--mode eager|xla` takes one of these words, `FILE` any path, and `DIRECTORY` one that is not
    a file. into: the name of its value, if it is not that of the argument. env: the variable that sets it.
    """
    usage, _, help = text.partition("  ")
    name, _, shown = usage.partition(" ")
    metavar = shown.removesuffix("...")
    if "|" in metavar and metavar.islower():
        settings["type"] = click.Choice(metavar.split("|"))
    elif metavar:
        settings = {
            "metavar": metavar,
            "type": {"FILE": PATH, "DIRECTORY": DIRECTORY}.get(metavar),
            **settings,
        }
    settings |= {"multiple": shown != metavar, "envvar": env, "show_envvar": env is not None, "help": help}
    return Given(lambda argument: [click.Option([name, *(into or argument.split())], **settings)])


def argument(metavar: str | None = None, **settings: Any) -> Any:
    """Return an argument of the command line. metavar: how `--help` shows it, if not by its name."""
    return Given(lambda name: [click.Argument([name], metavar=metavar, **settings)])


def flag(text: str, *into: str) -> Any:
    """Return an option without a value."""
    return option(text, *into, is_flag=True)


matrix = option(
    "--matrix  The matrix file.  [default: matrix.yaml if there is one here, otherwise the one of this tool]",
    "matrix_path",
    type=PATH,
    callback=lambda _context, _parameter, value: value or default_matrix(),
)
profile = option("--profile  The profile of the matrix.  [default: quick]")
select = option(
    "--select EXPRESSION...  Only select matching cells, such as 'tensorflow>=2.20', python=3.12 or"
    " gpu=h100; repeatable.",
    "selectors",
)
depth = option(
    "--depth quick|full  quick: the checks that a verdict needs; full: all checks, with measurements that"
    " take minutes.",
    default="quick",
)


def _challenge(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    # The import takes a tenth of the time in which `doctor` reads a small log.
    from ..model.record import is_challenge

    if value is not None and not is_challenge(value):
        raise click.BadParameter("a challenge has 64 digits: 0 to 9 and a to f")
    return value


challenge = option(
    "--challenge TEXT  A challenge from whoever will certify, which the probe repeats in its report.",
    callback=_challenge,
)
store = option(
    "--store URL  Where records are stored: an SQLite file, or postgresql+psycopg://user@host/database."
    "  [default: .validator/records.db next to the matrix]",
    "store_url",
    env="VALIDATOR_STORE",
)
trust_file = option(
    "--trust FILE  The file that says who may sign, and which limits are refused.  [default: trust.yaml next"
    " to the matrix, or in this directory]",
    "trust_path",
    env="VALIDATOR_TRUST",
)
fleet_file = option(
    "--fleet FILE  The names of this site's nodes, partitions and queues.  [default: fleet.yaml next to the"
    " matrix]",
    "fleet_path",
)


def working_directory(matrix_path: Path) -> Path:
    """Return where the files of a matrix are and are written: its locks, its records and its trust file.

    That is the matrix's own directory, but for the matrix of this tool it is the current directory: nothing
    is written into an installed package.
    """
    return Path() if matrix_path == shipped_matrix() else matrix_path.parent


@dataclass(frozen=True)
class Project:
    """The matrix that a command is about, what the command selects in it, and the files next to it.

    What the command line does not name is None.
    """

    matrix_path: Path = Path()
    profile: str | None = None
    selectors: tuple[str, ...] = ()
    store_url: str | None = None
    trust_path: Path | None = None
    fleet_path: Path | None = None

    @property
    def cells(self) -> tuple[Path, str | None, tuple[str, ...]]:
        """The first arguments of `planning.load_plan`."""
        return self.matrix_path, self.profile, self.selectors

    @property
    def profile_name(self) -> str:
        from ..matrix.load import DEFAULT_PROFILE

        return self.profile or DEFAULT_PROFILE

    @property
    def directory(self) -> Path:
        return working_directory(self.matrix_path)

    @property
    def progress(self) -> Path:
        """The directory in which `build-matrix` records its progress."""
        from ..system.files import STATE_DIRECTORY

        return self.directory / STATE_DIRECTORY / "progress"

    @property
    def store(self) -> str:
        """The URL of the store."""
        from ..records.store import DEFAULT_PATH

        return self.store_url or str(self.directory / DEFAULT_PATH)

    @property
    def store_file(self) -> Path | None:
        """The SQLite file of the store; None if the store is in a server."""
        scheme, found, rest = self.store.partition("://")
        if not found:
            return Path(self.store)
        # In a URL, an absolute path follows a third slash, and parameters a question mark.
        return Path(rest.removeprefix("/").partition("?")[0]) if scheme.startswith("sqlite") else None

    def open_store(self) -> Store:
        """Open the store for reading, without creating one.

        If no store was given and there is none next to the matrix, there are no records yet: returns an empty
        store in memory. Raises MissingError if the given store does not exist.
        """
        from ..records.store import Store

        if self.store_url is None and not Path(self.store).exists():
            print_status(f"There are no records yet: {self.store} does not exist.")
            return Store(":memory:")
        return Store(self.store, read_only=True)

    @property
    def trust_file(self) -> Path:
        from ..certify.trust_file import NAME

        return self.trust_path or self.directory / NAME

    def read_trust(self, *, needed: bool = True) -> TrustFile:
        """Read the trust file. Raises InputError if it can't be read, or is needed and does not exist."""
        from ..certify.trust import TrustFile
        from ..certify.trust_file import read_trust_file

        return read_trust_file(self.trust_file) if needed or self.trust_file.exists() else TrustFile()

    @property
    def fleet_file(self) -> Path:
        from ..fleet.settings import NAME

        return self.fleet_path or self.directory / NAME


def refuse_overwriting(context: click.Context) -> None:
    """Raise InputError if a file that the command writes is a database, or one that the command reads."""
    written = {one.name for one in context.command.params if one.type is OUTPUT}
    outputs = [value for name, value in context.params.items() if name in written and value is not None]
    if not outputs:
        return
    said = {name: value for name, value in context.params.items() if name not in written}
    project = Project(**{name: said[name] for name in Project.__dataclass_fields__ if name in said})
    used = [project.store_file, project.trust_file, project.fleet_file]
    for value in said.values():
        used += value if isinstance(value, tuple) else (value,)
    files = {os.path.realpath(one) for one in used if isinstance(one, str | Path)}
    for path in outputs:
        why, start = "", b""
        if path.is_file():
            with contextlib.suppress(OSError), path.open("rb") as stream:
                start = stream.read(16)
        if start.startswith(_DATABASE):
            why = "this file is an SQLite database, such as a store of records"
        elif os.path.realpath(path) in files and (path.is_file() or not path.exists()):
            why = "the command also uses this file in another way"
        if why:
            raise InputError(f"{path}: {why}, so it is not replaced", hint="name another file to write")


def gathered(value: type, *added: Given) -> Any:
    """Return one argument in place of those of several options: a dataclass with their names.

    added: those options that the dataclass does not declare as the defaults of its fields.
    """
    own, made = declared(value)
    return Given(lambda _: [*own, *(each for one in added for each in one.parameters(""))], made)


_PROJECT = {"cells": (profile, select), "store": (store,), "trust": (trust_file,), "fleet": (fleet_file,)}


def project(words: str = "") -> Any:
    """Return a `Project` of `--matrix` and these of `_PROJECT`."""
    return gathered(Project, matrix, *(one for word in words.split() for one in _PROJECT[word]))


def formats(*formats: str, short: tuple[str, ...] = ("json",)) -> Any:
    """Return `--format`, whose first value is the default, and a flag such as `--json` for each of `short`.

    Contradicting options are a usage error.
    """
    switches = [name for name in short if name in formats]
    usage = f"--format  The format of the result on stdout.  [default: {formats[0]}]"
    asked = [flag(f"--{name}  Short for --format {name}.", f"as_{name}") for name in switches]
    asked.append(option(usage, "format_", type=click.Choice(formats)))

    def chosen(said: dict[str, Any]) -> str:
        named = {f"--{name}": name for name in switches if said[f"as_{name}"]}
        if said["format_"] is not None:
            named[f"--format {said['format_']}"] = said["format_"]
        if len(set(named.values())) > 1:
            raise click.UsageError(f"{' and '.join(named)} can't be combined")
        return next(iter(named.values()), formats[0])

    return Given(lambda _: [each for one in asked for each in one.parameters("")], chosen)


def reject(names: Iterable[str], reason: str) -> None:
    """Raise UsageError if one of these parameters was given on the command line.

    reason: the rest of the sentence that starts with the option.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} {reason}")


def reject_all_but(names: Iterable[str], reason: str) -> None:
    """Raise UsageError if any other parameter was given on the command line."""
    reject({one.name or "" for one in click.get_current_context().command.params} - {*names}, reason)


def default_matrix() -> Path:
    """Return the matrix in the current directory, or that of this tool."""
    return OWN_MATRIX if os.path.lexists(OWN_MATRIX) else shipped_matrix()


def print_status(text: str) -> None:
    """Print a line to stderr, since stdout is only for results. The text may come from anywhere."""
    click.echo(as_started(printable(text)), err=True)


def text_width() -> int:
    """Return the columns at which lines are wrapped: 80, or fewer on a terminal that is narrower."""
    return min(shutil.get_terminal_size().columns if sys.stdout.isatty() else 80, 80)


def print_rows(header: Sequence[str], rows: Iterable[Sequence[str]], *, whole: bool = False) -> None:
    """Print a table to stdout. whole: see `rows_table`."""
    from ..reports.terminal import rows_table, show

    show(rows_table(header, rows, whole=whole))


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


def open_registry(repository: str, plain_http: bool) -> Registry:
    """Return the registry of a repository. Raises InputError if the text is not the name of one."""
    # Most commands never talk to a registry, and start sooner without its client.
    from ..registry.client import Registry
    from ..registry.names import Repository

    return Registry(Repository.parse(repository), plain_http=plain_http or None)


registry = option(
    "--registry REGISTRY/NAME  The repository of the images, such as ghcr.io/team/tensorflow.",
    "repository",
    env="VALIDATOR_REGISTRY",
)
trusted_root = option(
    "--trusted-root FILE  The trusted roots of your own Sigstore.  [default: those of the public Sigstore]",
    type=FILE,
)
plain_http = flag(
    "--plain-http  Connect to the registry without TLS.  [default: only for a registry on this machine]"
)


@dataclass(frozen=True)
class Builder:
    """Who signs what is built: the owner of a key, or an identity. This machine, if neither is named."""

    builder_key: str | None
    identity: str | None
    issuer: str | None

    @property
    def is_named(self) -> bool:
        return self.builder_key is not None or self.identity is not None

    def check(self, missing: str | None) -> None:
        """Raise UsageError for an identity without its issuer, or the other way round.

        missing: the option without which nothing is signed, if it was not given.
        """
        if missing is not None:
            reject(("builder_key", "identity", "issuer"), f"has no effect without {missing}")
        if (self.identity is None) != (self.issuer is None):
            raise click.UsageError("--identity and --issuer belong together")


def builder(switch: str, signed: str) -> Any:
    """Return a `Builder` of `--builder-key`, `--identity` and `--issuer`.

    switch: the option without which they have no effect. signed: what is signed.
    """
    return gathered(
        Builder,
        option(
            f"--builder-key FILE  With {switch}: the private key that signs {signed}, or env://NAME; its"
            " password comes from COSIGN_PASSWORD.  [default: this machine's own key]",
            type=str,
            env="VALIDATOR_BUILDER_KEY",
        ),
        option(
            f"--identity NAME  With {switch}: sign as this identity, with its OIDC token, not with a key."
        ),
        option("--issuer URL  With --identity: the issuer of the OIDC token."),
    )


_TRUST = (
    option("--key FILE  The public key that certificates must be signed with.", env="VALIDATOR_KEY"),
    option(
        "--identity NAME  Without a key: the identity that must have signed, such as the URL of a workflow."
    ),
    option("--issuer URL  Without a key: the issuer of the identity's OIDC token."),
    trusted_root,
    flag("--fixtures  For tests: accept certificates of made-up records, signed with a throw-away key."),
    option("--max-age AGE  Reject measurements older than this, such as 7d or 12h.", callback=parse_age),
    flag(
        "--accept-expired  Also accept expired certificates. They expire 14 days after the measurement,"
        " unless the signer chose otherwise."
    ),
    trust_file,
)


_bundle_option = option(
    "--from-bundle DIRECTORY  Use the images and certificates of a bundle that `bundle receive` unpacked,"
    " without a network.",
    "bundle",
)


def open_bundle(directory: Path) -> Registry:
    """Return the images and certificates of a received bundle. Raises InputError if it is none."""
    from ..registry.client import in_layout

    missing = [name for name in ("bundle.json", "images") if not (directory / name).exists()]
    if missing:
        hint = "unpack a bundle with `validator bundle receive DIRECTORY`, and name what it prints"
        raise InputError(f"{directory} is not a received bundle: it has no {missing[0]}", hint=hint)
    return in_layout(directory / "images", directory / "certificates")


def certificates(*, need_registry: bool = True, bundles: bool = True) -> Any:
    """Return the argument `terms` of every command that reads certificates: the `Terms` of its options.

    bundles: also add `--from-bundle`. The command may also take `registry`, which is opened here,
    `plain_http` and `bundle`. Wrong options are reported before anything else is done. `rebuild` needs no
    trusted signer, and neither does `uncertified` unless a signer is named: then the terms are None. Without
    --registry and --from-bundle, `registry` is None.
    """
    asked = (registry, *((_bundle_option,) if bundles else ()), plain_http, *_TRUST)

    def terms_of(said: dict[str, Any]) -> Terms | None:
        repository, bundle = said["repository"], said.get("bundle")
        if need_registry and not (repository or bundle):
            raise click.MissingParameter(param_hint="'--registry'", param_type="option")
        terms, said["registry"] = _terms_of(said), None
        if bundle is not None:
            said["registry"] = open_bundle(bundle)
            if terms is not None:
                _check_own_trust(bundle, terms.trust, said["trust_path"])
        elif repository:
            said["registry"] = open_registry(repository, said["plain_http"])
        return terms

    return Given(lambda _: [each for one in asked for each in one.parameters("")], terms_of)


def _check_own_trust(bundle: Path, trust: Trust, trust_path: Path | None) -> None:
    """Warn about trust that comes from the bundle. Raises InputError if Sigstore's roots are not given."""
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


def _terms_of(said: dict[str, Any]) -> Terms | None:
    """Return whom the trust options of a command say to trust; None if nobody needs to be trusted.

    Raises InputError if no signer is named, or if a key or the trust file can't be used.
    """
    key, identity, issuer, trust_path = (said[name] for name in ("key", "identity", "issuer", "trust_path"))
    # To compare layers with wheels, nobody needs to be trusted.
    if said.get("rebuild") or (said.get("uncertified") and not (key or identity or issuer)):
        return None
    from ..certify.trust import Terms, Trust

    # The file next to the matrix need not exist.
    project = Project(said.get("matrix_path") or Path(), trust_path=trust_path)
    refused = project.read_trust(needed=trust_path is not None).refuse_limits
    # An identity on the command line overrides the key in the environment.
    source = click.get_current_context().get_parameter_source("key")
    if identity and source is not click.core.ParameterSource.COMMANDLINE:
        key = None
    trust = Trust(key, identity, issuer, said["trusted_root"], said["fixtures"], refused)
    trust.check()
    return Terms(trust, said["max_age"], said["accept_expired"])


# Say what the facts mean for a command: that they are out of date, and why they recommend versions.


def say_if_stale(today: date | None = None, stream: TextIO | None = None) -> None:
    """Print one line to stderr if the facts are old, or don't know a release that `refresh --check` saw.

    Print only to a terminal, so that the output of scripts never depends on the date. Don't use the network.

    today: None for the date of this machine. stream: None for stderr.
    """
    if not (sys.stderr if stream is None else stream).isatty():
        return
    from ..supply import recall, remark

    found = remark(today or date.today(), recall())
    if found:
        print_status(found)


def say_recommended(images: Iterable[ImageSpec]) -> None:
    """Print why `recommended` takes its versions, for each release of which an image has them."""
    from ..compat.policies import is_recommended, why_recommended
    from ..compat.releases import release

    for tensorflow in dict.fromkeys(spec.tensorflow for spec in images if is_recommended(spec)):
        print_status(f"Recommended for TensorFlow {tensorflow}: {why_recommended(release(tensorflow))}.")
