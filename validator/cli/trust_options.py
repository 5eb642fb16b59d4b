"""Options of the commands that read certificates: the registry that has them, and whose to trust."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from ..certify.trust import Trust
from ..model.timestamps import now_utc, parse_time
from ..registry.client import Registry
from ..registry.names import Repository
from .options import working_directory

F = TypeVar("F", bound=Callable[..., Any])

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
    from ..certify.trust_file import NAME

    return trust_path or working_directory(matrix_path) / NAME


def read_refused_limits(matrix_path: Path, trust_path: Path | None) -> tuple[str, ...]:
    """Return the codes of the limits that a trust file refuses.

    trust_path: the file that was named; None for the one next to the matrix, which need not exist. Raises
    InputError for a file that can't be used.
    """
    path = trust_path_for(matrix_path, trust_path)
    if trust_path is None and not path.exists():
        return ()
    from ..certify.trust_file import read_trust_file

    return read_trust_file(path).refuse_limits


trust_file_option = click.option(
    "--trust",
    "trust_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="VALIDATOR_TRUST",
    show_envvar=True,
    help="The file that says who may sign, and which limits are refused.  [default: trust.yaml next to the"
    " matrix, or in this directory]",
)


def _registry_option(required: bool) -> Callable[[F], F]:
    return click.option(
        "--registry",
        "repository",
        metavar="REGISTRY/NAME",
        envvar="VALIDATOR_REGISTRY",
        show_envvar=True,
        required=required,
        help="The repository of the images, such as ghcr.io/team/tensorflow.",
    )


#: For a command group that has subcommands without a registry.
registry_option = _registry_option(False)
trusted_root_option = click.option(
    "--trusted-root",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The trusted roots of your own Sigstore.  [default: those of the public Sigstore]",
)
plain_http_option = click.option(
    "--plain-http",
    is_flag=True,
    help="Connect to the registry without TLS.  [default: only for a registry on this machine]",
)
_max_age_option = click.option(
    "--max-age",
    callback=parse_age,
    metavar="AGE",
    help="Reject measurements older than this, such as 7d or 12h.",
)
_accept_expired_option = click.option(
    "--accept-expired",
    is_flag=True,
    help="Also accept certificates that have expired, 14 days after their measurement unless the signer chose"
    " otherwise.",
)


def builder_options(switch: str, signed: str) -> Callable[[F], F]:
    """Add `--builder-key`, `--identity` and `--issuer`, the arguments of `build_signing.builder_of`.

    switch: the option without which they have no effect. signed: what is signed.
    """

    def decorate(function: F) -> F:
        for option in (
            click.option(
                "--issuer", metavar="URL", help="With --identity: the issuer of the OIDC token."
            ),
            click.option(
                "--identity",
                metavar="NAME",
                help=f"With {switch}: sign as this identity, with its OIDC token, not with a key.",
            ),
            click.option(
                "--builder-key",
                metavar="FILE",
                envvar="VALIDATOR_BUILDER_KEY",
                show_envvar=True,
                help=f"With {switch}: the private key that signs {signed}, or env://NAME; its password"
                " comes from COSIGN_PASSWORD.  [default: this machine's own key]",
            ),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


def certificate_options(function: F) -> F:
    """Add the options of every command that reads certificates.

    The command receives the resulting `registry`, `trust`, `max_age` and `accept_expired`, and `trust_path`
    if it has an argument of that name. Wrong options are reported before anything else is done. If it has the
    option `rebuild` and that is set, `trust` is None.
    """
    return _certificate_options(function, registry_required=True)


def optional_certificate_options(function: F) -> F:
    """Add the same options to a command that has the option `uncertified`.

    Without --registry, `registry` is None. The command gets `plain_http` too, for the registry of --image. If
    `uncertified` is set, nobody has to be trusted, and without a key or an identity, `trust` is None.
    """
    return _certificate_options(function, registry_required=False)


def _certificate_options(function: F, *, registry_required: bool) -> F:
    @functools.wraps(function)
    def command(
        *arguments: Any,
        repository: str | None,
        plain_http: bool,
        key: Path | None,
        identity: str | None,
        issuer: str | None,
        trusted_root: Path | None,
        fixtures: bool,
        trust_path: Path | None,
        **options: Any,
    ) -> Any:
        # To compare layers with wheels, nobody needs to be trusted.
        nobody = options.get("rebuild") or (options.get("uncertified") and not (key or identity or issuer))
        trust = None
        if not nobody:
            refused = read_refused_limits(options.get("matrix_path") or Path(), trust_path)
            trust = _trust(key, identity, issuer, trusted_root, fixtures, refused)
        if "trust_path" in inspect.signature(function).parameters:
            options["trust_path"] = trust_path
        registry = open_registry(repository, plain_http) if repository else None
        if not registry_required:
            options["plain_http"] = plain_http
        return function(*arguments, registry=registry, trust=trust, **options)

    decorated: Any = command
    options = (
        _registry_option(registry_required), plain_http_option, *_TRUST,
        _max_age_option, _accept_expired_option, trust_file_option,
    )  # fmt: skip
    for option in reversed(options):
        decorated = option(decorated)
    return cast(F, decorated)


_TRUST = (
    click.option(
        "--key",
        type=click.Path(path_type=Path),
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
    click.option(
        "--fixtures",
        is_flag=True,
        help="For tests: accept certificates of made-up records, signed with a throw-away key.",
    ),
)


def _trust(
    key: Path | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    fixtures: bool,
    refuse_limits: tuple[str, ...],
) -> Trust:
    # The key in the environment is only a default, which an identity on the command line overrides.
    if identity and click.get_current_context().get_parameter_source("key") is not _COMMAND_LINE:
        key = None
    trust = Trust(key, identity, issuer, trusted_root, fixtures, refuse_limits)
    trust.check()
    return trust


def open_registry(repository: str, plain_http: bool) -> Registry:
    """Return the registry of a repository. Raises InputError if the text is not the name of one."""
    return Registry(Repository.parse(repository), plain_http=plain_http or None)


_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE
