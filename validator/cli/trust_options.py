"""Options of the commands that read certificates: where they are, and whose count."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from ..certify.trust import Trust
    from ..registry.client import Registry

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _age(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """A length of time: `12h`, `30d`, `6w`."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,5})([hdw])", value.strip())
    if not match:
        raise click.BadParameter(f'"{value}" is no length of time (such as 12h, 30d or 6w)')
    return int(match[1]) * _UNITS[match[2]]


def _registry_option(required: bool) -> Callable[[F], F]:
    return click.option(
        "--registry",
        "repository",
        metavar="REGISTRY/NAME",
        envvar="VALIDATOR_REGISTRY",
        show_envvar=True,
        required=required,
        help="Where the images are, such as ghcr.io/team/tensorflow.",
    )


#: For a group whose other commands need none.
group_registry_option = _registry_option(False)
trusted_root_option = click.option(
    "--trusted-root",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Sigstore's roots, for those who run their own.  [default: sigstore's public ones]",
)
plain_http_option = click.option(
    "--plain-http",
    is_flag=True,
    help="Speak to the registry without TLS; with one on this machine that is the default.",
)
_max_age_option = click.option(
    "--max-age", callback=_age, metavar="AGE", help="Refuse what was measured longer ago, such as 30d or 12h."
)


def evidence_options(function: F) -> F:
    """The options of every command that reads certificates.

    The command takes what they come to: `registry`, `trust`, and `max_age`. Wrong ones are told before
    anything else is done.
    """

    @functools.wraps(function)
    def command(
        *arguments: Any,
        repository: str,
        plain_http: bool,
        key: Path | None,
        identity: str | None,
        issuer: str | None,
        trusted_root: Path | None,
        fixtures: bool,
        **options: Any,
    ) -> Any:
        trust = _trust(key, identity, issuer, trusted_root, fixtures)
        return function(*arguments, registry=open_registry(repository, plain_http), trust=trust, **options)

    decorated: Any = command
    for option in reversed((_registry_option(True), plain_http_option, *_TRUST, _max_age_option)):
        decorated = option(decorated)
    return cast(F, decorated)


_TRUST = (
    click.option(
        "--key",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="VALIDATOR_KEY",
        show_envvar=True,
        help="The public key of those whose certificates count.",
    ),
    click.option(
        "--identity",
        metavar="NAME",
        help="Without a key: who must have signed, such as a workflow's address.",
    ),
    click.option(
        "--issuer", metavar="URL", help="Who vouches for the identity (the issuer of its OIDC token)."
    ),
    trusted_root_option,
    click.option(
        "--fixtures",
        is_flag=True,
        help="For tests: accept certificates of made-up records, signed by a throw-away key.",
    ),
)


def _trust(
    key: Path | None, identity: str | None, issuer: str | None, trusted_root: Path | None, fixtures: bool
) -> Trust:
    from ..certify.trust import Trust

    # A key in the environment is a default, and an identity on the command line says otherwise.
    if identity and click.get_current_context().get_parameter_source("key") is not _COMMAND_LINE:
        key = None
    trust = Trust(key, identity, issuer, trusted_root, fixtures)
    trust.check()
    return trust


def open_registry(repository: str, plain_http: bool) -> Registry:
    """Raises InputError when the text names no repository."""
    from ..registry.client import Registry
    from ..registry.names import Repository

    return Registry(Repository.parse(repository), plain_http=plain_http or None)


_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE
