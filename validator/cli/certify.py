"""`certify`: certificates for what was measured; `certify keygen`: a key pair to sign them with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError, MissingError, ValidatorError
from .options import matrix_option, say, store_option, store_to_read, verbose_option
from .trust_options import group_registry_option, open_registry, plain_http_option, trusted_root_option

if TYPE_CHECKING:
    from ..certify.signing import Signer
    from ..certify.trust import Trust
    from ..model.record import Record
    from ..registry.client import Registry

_PASSWORD = "COSIGN_PASSWORD"


@click.group("certify", invoke_without_command=True)
@click.option("--record", "identifiers", multiple=True, metavar="ID", help="This record alone; repeatable.")
@matrix_option
@store_option
@group_registry_option
@plain_http_option
@click.option(
    "--signing-key",
    metavar="FILE",
    envvar="VALIDATOR_SIGNING_KEY",
    show_envvar=True,
    help=f"The private key, or env://NAME. Its password is asked for, or taken from {_PASSWORD}.",
)
@click.option("--identity", metavar="NAME", help="Without a key: sign as this identity, by its OIDC token.")
@click.option("--issuer", metavar="URL", help="Who vouches for the identity.")
@trusted_root_option
@click.option(
    "--tlog-upload", is_flag=True, help="Enter what a key signs into sigstore's public transparency log too."
)
@verbose_option
@click.pass_context
def command(
    context: click.Context,
    identifiers: Sequence[str],
    matrix_path: Path,
    store_url: str | None,
    repository: str | None,
    plain_http: bool,
    signing_key: str | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    tlog_upload: bool,
) -> int | None:
    """Sign what was certified by measurement, and attach it to the images in the registry.

    Takes the newest record of every cell, or those that are named. Each is judged again from its own report.
    """
    if context.invoked_subcommand is not None:
        return None
    from ..certify.signing import Signer

    if repository is None:
        raise click.UsageError("say where the images are: --registry REGISTRY/NAME (or VALIDATOR_REGISTRY)")
    if (signing_key is None) == (identity is None or issuer is None):
        raise click.UsageError("say who signs: --signing-key FILE, or --identity NAME and --issuer URL")
    registry = open_registry(repository, plain_http)
    with store_to_read(matrix_path, store_url) as store:
        records = [store.get(identifier) for identifier in identifiers] or _newest(store.latest().values())
    if not records:
        say("no record says certified on an image: nothing to certify")
        return EXIT_OK
    password = _password(f"Password of {signing_key}") if signing_key else None
    signer = Signer(signing_key, password, identity, issuer, trusted_root, tlog_upload)
    with signer.trust() as trust:
        results = [_certified(registry, record, signer, trust) for record in records]
    return EXIT_OK if all(results) else EXIT_FAILED


@command.command("keygen")
@click.option(
    "--output-prefix",
    type=click.Path(path_type=Path),
    default=Path("cosign"),
    show_default=True,
    metavar="PATH",
    help="PATH.key and PATH.pub are written.",
)
@click.option("--no-password", is_flag=True, help="Leave the private key without a password.")
@click.option(
    "--throw-away", is_flag=True, help="For tests: mark the pair; it can sign made-up records only."
)
@verbose_option
def keygen_command(output_prefix: Path, no_password: bool, throw_away: bool) -> int:
    """Make a key pair in cosign's format.

    The private key is encrypted with the password in COSIGN_PASSWORD, or one that is asked for.
    """
    from ..certify.signing import make_key_pair

    password = "" if no_password else _password(f"Password for {output_prefix}.key", confirm=True)
    if not password and not no_password:
        raise InputError(
            "the password is empty",
            hint="choose one, or say --no-password where nobody else can ever read the file",
        )
    private, public = make_key_pair(output_prefix, password, throw_away=throw_away)
    say(f"{private}: the private key; keep it and its password secret, and apart")
    say(f"{public}: the public key; give it to those who pull")
    return EXIT_OK


def _newest(records: Iterable[Record]) -> list[Record]:
    """Those to certify among the newest of each cell."""
    from ..model.record import Verdict

    certified = [record for record in records if record.verdict is Verdict.CERTIFIED]
    for record in certified:
        if record.image_digest is None:
            say(f"left out: {record.cell} was measured without an image (engine {record.engine})")
    return [record for record in certified if record.image_digest is not None]


def _certified(registry: Registry, record: Record, signer: Signer, trust: Trust) -> bool:
    from ..certify.issue import certify

    try:
        done = certify(registry, record, signer, trust)
    except MissingError:
        # What is not there is not there for the next record either.
        raise
    except ValidatorError as error:
        say(f"refused: {error}")
        if error.hint:
            say(f"  {error.hint}")
        return False
    word = "certified" if done.attached else "unchanged"
    kind = " (fixture)" if done.certificate.fixture else ""
    click.echo(f"{word}{kind}  {record.cell}  {registry.repository.at(done.certificate.image_digest)}")
    return True


def _password(prompt: str, *, confirm: bool = False) -> str:
    """From the environment, else from the person at the terminal."""
    if _PASSWORD in os.environ:
        return os.environ[_PASSWORD]
    if not sys.stdin.isatty():
        raise InputError(
            "the key's password is not known", hint=f"set {_PASSWORD}, or run this at a terminal to be asked"
        )
    answer: str = click.prompt(
        prompt, hide_input=True, confirmation_prompt=confirm, default="", show_default=False, err=True
    )
    return answer
