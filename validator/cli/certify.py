"""`certify`: sign certificates for measured images; `certify keygen`: make a key pair to sign them.

The other subcommands are in `certify_trust`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..certify.challenges import IssuedChallenges, Ledger, read_challenges
from ..certify.signing import Signer, make_key_pair
from ..certify.statement import VALID_FOR
from ..certify.trust import Trust
from ..errors import EXIT_FAILED, EXIT_OK, InputError, MissingError, ValidatorError
from ..model.record import Origin, Record, Verdict
from ..model.spec import NO_GPU
from ..model.timestamps import NEVER, TOLERANCE, parse_timestamp
from ..registry.client import Registry
from ..reports.printable import one_line
from ..resources import manual
from .certify_trust import challenges_command, revoke_command
from .groups import SuggestingGroup
from .options import matrix_option, open_store, print_status, store_option, verbose_option
from .trust_options import (
    open_registry,
    parse_age,
    plain_http_option,
    registry_option,
    trust_file_option,
    trust_path_for,
    trusted_root_option,
)

if TYPE_CHECKING:
    from ..certify.acceptance import Certifier
    from ..records.store import Store

_PASSWORD = "COSIGN_PASSWORD"


@click.group("certify", cls=SuggestingGroup, invoke_without_command=True)
@click.option(
    "--record", "identifiers", multiple=True, metavar="ID", help="Only certify this record; repeatable."
)
@matrix_option
@store_option
@registry_option
@plain_http_option
@trust_file_option
@click.option(
    "--challenges",
    "challenges_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only certify answers to the challenges in this file, which `certify challenges` wrote."
    "  [default: answers to those that this machine made]",
)
@click.option(
    "--signing-key",
    metavar="FILE",
    envvar="VALIDATOR_SIGNING_KEY",
    show_envvar=True,
    help=f"The private key, or env://NAME. Its password comes from {_PASSWORD}, or you are asked for it.",
)
@click.option("--identity", metavar="NAME", help="Without a key: sign as this identity, with its OIDC token.")
@click.option("--issuer", metavar="URL", help="Without a key: the issuer of the OIDC token.")
@trusted_root_option
@click.option(
    "--tlog-upload",
    is_flag=True,
    help="With a key: also enter the signature into Sigstore's public transparency log.",
)
@click.option(
    "--valid-for",
    callback=parse_age,
    default=f"{VALID_FOR.days}d",
    show_default=True,
    metavar="AGE",
    help="Time from the measurement until the certificate expires, such as 14d or 12h.",
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
    trust_path: Path | None,
    challenges_path: Path | None,
    signing_key: str | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    tlog_upload: bool,
    valid_for: timedelta,
) -> int | None:
    """Sign certificates for certified records and attach them to the images in the registry.

    A certificate expires 14 days after the measurement. If an image failed on a GPU, that is signed and
    attached as well, and invalidates its certificates of older measurements on the same host class.

    Uses the newest record of every cell, or those given with --record, or those that answer a challenge in
    the file of --challenges. A record counts only if a runner in the trust file signed its measurement. Its
    verdict is derived again from its report.
    """
    if context.invoked_subcommand is not None:
        return None
    if repository is None:
        raise click.UsageError(
            "the registry of the images is needed: --registry REGISTRY/NAME (or VALIDATOR_REGISTRY)"
        )
    if (signing_key is None) == (identity is None or issuer is None):
        raise click.UsageError(
            "a signer is needed: either --signing-key FILE, or --identity NAME and --issuer URL"
        )
    from ..certify.acceptance import Certifier
    from ..certify.trust_file import read_trust_file

    # Read it before anything else, and never from the place that the records come from.
    parties = read_trust_file(trust_path_for(matrix_path, trust_path))
    tonight = read_challenges(challenges_path) if challenges_path else None
    registry = open_registry(repository, plain_http)
    with open_store(matrix_path, store_url) as store:
        if identifiers:
            records = found = [store.get(identifier) for identifier in identifiers]
        else:
            found = list(store.latest().values() if tonight is None else _answers(store, tonight))
            records = _newest(found)
    if not records:
        _explain_nothing(found, "that answers a challenge of the file" if tonight is not None else "yet")
        return EXIT_FAILED
    certifier = Certifier(parties, tonight or Ledger(), partial(_uncomputed, registry))
    password = _password(f"Password of {signing_key}") if signing_key else None
    signer = Signer(signing_key, password, identity, issuer, trusted_root, tlog_upload)
    with signer.trust() as trust:
        named = parties.release
        if named is not None and (named.signer, named.issuer) != (trust.signer, trust.issuer):
            raise InputError(
                f"the trust file says that {named.signer} signs certificates, not {trust.signer}",
                hint="sign with that key or identity, or change `release` in the trust file",
            )
        results = [_certify(registry, record, signer, trust, certifier, valid_for) for record in records]
    return EXIT_OK if all(results) else EXIT_FAILED


command.add_command(challenges_command)
command.add_command(revoke_command)


@command.command("keygen")
@click.option(
    "--output-prefix",
    type=click.Path(path_type=Path),
    default=Path("cosign"),
    show_default=True,
    metavar="PATH",
    help="Write PATH.key and PATH.pub.",
)
@click.option("--no-password", is_flag=True, help="Do not encrypt the private key.")
@click.option(
    "--throw-away",
    is_flag=True,
    help="For tests: mark it as a throw-away key pair, which can only sign made-up records.",
)
@verbose_option
def keygen_command(output_prefix: Path, no_password: bool, throw_away: bool) -> int:
    """Make a key pair in cosign's format.

    The private key is encrypted with the password in COSIGN_PASSWORD. If that is not set, you are asked for
    one.
    """
    password = "" if no_password else _password(f"Password for {output_prefix}.key", confirm=True)
    if not password and not no_password:
        raise InputError(
            "the password is empty",
            hint="choose one, or pass --no-password if nobody else can ever read the file",
        )
    private, public = make_key_pair(output_prefix, password, throw_away=throw_away)
    print_status(f"{private}: the private key. Keep it and its password secret, and store them apart.")
    print_status(f"{public}: the public key. Give it to everybody who pulls the images.")
    return EXIT_OK


def _newest(records: Sequence[Record]) -> list[Record]:
    """Return the records that were measured on an image: the certified ones, and the failures on a GPU."""
    certified = [record for record in records if record.verdict is Verdict.CERTIFIED]
    failed = [
        record for record in records if record.verdict is Verdict.FAILED and record.host_class != NO_GPU
    ]
    for record in certified:
        if record.image_digest is None:
            print_status(f"Skipped {record.cell}: it was measured without an image (engine {record.engine})")
    return [record for record in (*certified, *failed) if record.image_digest is not None]


def _explain_nothing(records: Sequence[Record], which: str) -> None:
    """Say which records there are, and why none of them gets a certificate."""
    if not records:
        print_status(f"There is nothing to certify: there is no record {which}.")
        print_status("  hint: measure an image on a machine with a GPU: `python -m validator build-matrix`")
        return
    print_status("There is nothing to certify: none of these records is about an image on a real GPU.")
    groups = Counter((record.verdict, _why_not(record)) for record in records)
    for (verdict, why), count in sorted(groups.items(), key=lambda group: -group[1]):
        example = next(each.cell for each in records if (each.verdict, _why_not(each)) == (verdict, why))
        print_status(f"  {count} {verdict.value}: {why} ({example}{', …' if count > 1 else ''})")
    print_status(f"  What is needed: {manual('how-to/publish-images.md')}")


def _why_not(record: Record) -> str:
    if record.verdict is Verdict.WORKS_ON_CPU:
        return "an image without CUDA gets no certificate"
    if record.verdict in (Verdict.UNPROVEN, Verdict.BROKEN) or record.origin is Origin.REHEARSAL:
        return record.reason
    if record.image_digest is None:
        return f"measured without an image (engine {record.engine})"
    return "it failed on a machine without a GPU"


def _answers(store: Store, tonight: IssuedChallenges) -> Iterator[Record]:
    """Yield the records that repeat a challenge of tonight, in the cell that it was made for."""
    for challenge in tonight.by_value.values():
        since = challenge.issued - TOLERANCE
        young = [
            entry.id
            for entry in store.entries(challenge.asked)
            if (parse_timestamp(entry.finished) or NEVER) >= since
        ]
        for record in store.fetch(young).values():
            if (record.report or {}).get("challenge") == challenge.value:
                yield record


def _certify(
    registry: Registry,
    record: Record,
    signer: Signer,
    trust: Trust,
    certifier: Certifier,
    valid_for: timedelta,
) -> bool:
    from ..certify.issue_certificate import certify

    try:
        issued = certify(registry, record, signer, trust, certifier, valid_for=valid_for)
    except MissingError:
        # The registry or cosign can't be used, and that would be the same for the next record.
        raise
    except ValidatorError as error:
        print_status(f"Rejected: {error}")
        if error.hint:
            print_status(f"  hint: {error.hint}")
        return False
    status = "unchanged" if not issued.attached else "failed" if issued.failed else "certified"
    kind = " (fixture)" if issued.fixture else ""
    image = registry.repository.at(str(record.image_digest))
    click.echo(one_line(f"{status}{kind}  {record.cell}  {image}"))
    return True


def _uncomputed(registry: Registry, digest: str) -> Sequence[str]:
    """Return the parts of an image that this machine has neither made nor rebuilt."""
    from ..assemble.layer_table import LayerTable
    from ..assemble.rebuild import published_image, uncomputed

    return uncomputed(published_image(registry, digest), LayerTable())


def _password(prompt: str, *, confirm: bool = False) -> str:
    """Read the password from the environment, or ask for it at the terminal."""
    if _PASSWORD in os.environ:
        return os.environ[_PASSWORD]
    if not sys.stdin.isatty():
        raise InputError(
            f"the key's password is missing: {_PASSWORD} is not set, and there is no terminal to ask at",
            hint=f"set {_PASSWORD}, or run this command at a terminal",
        )
    answer: str = click.prompt(
        prompt, hide_input=True, confirmation_prompt=confirm, default="", show_default=False, err=True
    )
    return answer
