"""`certify`: sign certificates for measured images, make keys and challenges; `runner`: set up a runner."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..assemble.layer_table import LayerTable
from ..certify.statement import VALID_FOR
from ..compat.hardware import model_of
from ..errors import EXIT_FAILED, EXIT_OK, InputError, MissingError, ValidatorError
from ..model.codec import NEVER, TOLERANCE, format_timestamp, now_utc, parse_timestamp
from ..model.record import Origin, Record, Verdict
from ..model.spec import NO_GPU
from ..registry.client import Registry
from ..reports.printable import one_line
from ..resources import manual
from . import SuggestingGroup, options
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from ..certify.trust import IssuedChallenges
    from ..records.store import Store


_PASSWORD = "COSIGN_PASSWORD"


@click.group("certify", cls=SuggestingGroup, invoke_without_command=True)
def certify_command(
    identifiers: Sequence[str] = option("--record ID...  Only certify this record; repeatable."),
    project: Project = options.project("store trust"),
    repository: str | None = options.registry,
    plain_http: bool = options.plain_http,
    challenges_path: Path | None = option(
        "--challenges FILE  Only certify answers to the challenges in this file, which `certify challenges`"
        " wrote.  [default: answers to those that this machine made]"
    ),
    key: str | None = option(
        f"--signing-key FILE  The private key, or env://NAME. Its password comes from {_PASSWORD}, or you"
        " are asked for it.",
        type=str,
        env="VALIDATOR_SIGNING_KEY",
    ),
    identity: str | None = option(
        "--identity NAME  Without a key: sign as this identity, with its OIDC token."
    ),
    issuer: str | None = option("--issuer URL  Without a key: the issuer of the OIDC token."),
    trusted_root: Path | None = options.trusted_root,
    log: bool = flag(
        "--tlog-upload  With a key: also enter the signature into Sigstore's public transparency log."
    ),
    valid_for: timedelta = option(
        "--valid-for AGE  Time from the measurement until the certificate expires, such as 14d or 12h.",
        callback=options.parse_age,
        default=f"{VALID_FOR.days}d",
    ),
) -> int | None:
    """Sign certificates for certified records and attach them to the images in the registry.

    A certificate expires 14 days after the measurement. If an image failed on a GPU, that is signed and
    attached as well, and invalidates its certificates of older measurements on the same host class.

    Uses the newest record of every cell, or those given with --record, or those that answer a challenge in
    the file of --challenges. A record counts only if a runner in the trust file signed its measurement. Its
    verdict is derived again from its report.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return None
    if repository is None:
        raise click.UsageError(
            "the registry of the images is needed: --registry REGISTRY/NAME (or VALIDATOR_REGISTRY)"
        )
    if (key is None) == (identity is None or issuer is None):
        raise click.UsageError(
            "a signer is needed: either --signing-key FILE, or --identity NAME and --issuer URL"
        )
    from ..certify.acceptance import Certifier, certify
    from ..certify.signatures import Signer
    from ..certify.trust import Ledger, read_challenges

    # Read it before anything else, and never from the place that the records come from.
    parties = project.read_trust()
    tonight = read_challenges(challenges_path) if challenges_path else None
    registry = options.open_registry(repository, plain_http)
    with project.open_store() as store:
        if identifiers:
            records = found = [store.get(identifier) for identifier in identifiers]
        else:
            found = list(store.latest().values() if tonight is None else _answers(store, tonight))
            # Only records about an image count: the certified ones, and failures on a GPU.
            certified = [record for record in found if record.verdict is Verdict.CERTIFIED]
            failed = [each for each in found if each.verdict is Verdict.FAILED and each.host_class != NO_GPU]
            for record in certified:
                if record.image_digest is None:
                    without = f"it was measured without an image (engine {record.engine})"
                    print_status(f"Skipped {record.cell}: {without}")
            records = [record for record in (*certified, *failed) if record.image_digest is not None]
    if not records:
        _explain_nothing(found, "that answers a challenge of the file" if tonight is not None else "yet")
        return EXIT_FAILED
    certifier = Certifier(parties, tonight or Ledger(), partial(_uncomputed, registry))
    password = _password(f"Password of {key}") if key else None
    signer = Signer(key, password, identity, issuer, trusted_root, log)
    with signer.trust() as trust:
        named = parties.release
        if named is not None and (named.signer, named.issuer) != (trust.signer, trust.issuer):
            raise InputError(
                f"the trust file says that {named.signer} signs certificates, not {trust.signer}",
                hint="sign with that key or identity, or change `release` in the trust file",
            )
        good = True
        for record in records:
            try:
                issued = certify(registry, record, signer, trust, certifier, valid_for=valid_for)
            except MissingError:
                # The registry or cosign can't be used, and that would be the same for the next record.
                raise
            except ValidatorError as error:
                good = False
                print_status(f"Rejected: {error}" + (f"\n  hint: {error.hint}" if error.hint else ""))
                continue
            status = "unchanged" if not issued.attached else "failed" if issued.failed else "certified"
            kind = " (fixture)" if issued.fixture else ""
            image = registry.repository.at(str(record.image_digest))
            click.echo(one_line(f"{status}{kind}  {record.cell}  {image}"))
    return EXIT_OK if good else EXIT_FAILED


@certify_command.command("challenges")
def challenges_command(project: Project = options.project("cells")) -> None:
    """Make a challenge for each selected cell, which exactly one measurement can answer.

    Prints the cells as `plan --format github` does, but always in one object, and each with its challenge.
    Give that file to `build-matrix --challenges` on the machines that measure. This machine remembers what
    it asked for; on another one, give the file to `certify --challenges` as well.
    """
    from ..certify.trust import Ledger
    from ..matrix.plan import github_rows
    from .planning import load_plan

    ledger = Ledger()
    rows = github_rows(load_plan(*project.cells).cells)
    for row in rows:
        challenge = ledger.issue(str(row["id"]))
        row |= {"challenge": challenge.value, "issued": format_timestamp(challenge.issued)}
    click.echo(json.dumps({"include": rows}))


@certify_command.command("revoke")
def revoke_command(
    name: str = argument("RUNNER"),
    at: datetime | None = option(
        "--at TIME  From this time on, such as 2026-11-01T06:30, or 36h for 36 hours ago.  [default: now]",
        callback=options.parse_moment,
    ),
    project: Project = options.project("trust"),
) -> None:
    """Revoke a runner or a builder from a given time on.

    Changes the trust file. After that time, nothing that the runner signed is accepted any more,
    whatever time it claims: whoever has the key could write an earlier one.
    """
    from ..certify.trust_file import revoke

    path = project.trust_file
    party = revoke(path, name, at or now_utc())
    assert party.revoked is not None
    print_status(f"{name} is revoked from {format_timestamp(party.revoked)} on, in {path}. Commit this file.")
    print_status(
        "Certificates that were made from its measurements since then are valid until they expire. A newer"
        " measurement by another runner replaces them: measure these host classes again, then `certify`."
    )


@certify_command.command("keygen")
def keygen_command(
    output_prefix: Path = option(
        "--output-prefix PATH  Write PATH.key and PATH.pub.", type=options.PATH, default=Path("cosign")
    ),
    no_password: bool = flag("--no-password  Do not encrypt the private key."),
    throw_away: bool = flag(
        "--throw-away  For tests: mark it as a throw-away key pair, which can only sign made-up records."
    ),
) -> None:
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
    from ..certify.signatures import make_key_pair

    private, public = make_key_pair(output_prefix, password, throw_away=throw_away)
    print_status(f"{private}: the private key. Keep it and its password secret, and store them apart.")
    print_status(f"{public}: the public key. Give it to everybody who pulls the images.")


def _explain_nothing(records: Sequence[Record], which: str) -> None:
    """Say which records there are, and why none of them gets a certificate."""
    if not records:
        print_status(f"There is nothing to certify: there is no record {which}.")
        print_status("  hint: measure an image on a machine with a GPU: `validator build-matrix`")
        return
    print_status("There is nothing to certify: none of these records is about an image on a real GPU.")
    cells: dict[tuple[Verdict, str], list[str]] = {}
    for record in records:
        if record.verdict is Verdict.WORKS_ON_CPU:
            why = "an image without CUDA gets no certificate"
        elif record.verdict in (Verdict.UNPROVEN, Verdict.BROKEN) or record.origin is Origin.REHEARSAL:
            why = record.reason
        elif record.image_digest is None:
            why = f"measured without an image (engine {record.engine})"
        else:
            why = "it failed on a machine without a GPU"
        cells.setdefault((record.verdict, why), []).append(record.cell)
    for (verdict, why), found in sorted(cells.items(), key=lambda group: -len(group[1])):
        example = f"{found[0]}{', …' if len(found) > 1 else ''}"
        print_status(f"  {len(found)} {verdict.value}: {why} ({example})")
    print_status(f"  What is needed: {manual('how-to/publish-images.md')}")


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


def _uncomputed(registry: Registry, digest: str) -> Sequence[str]:
    """Return the parts of an image that this machine has neither made nor rebuilt."""
    from ..assemble.image import published_image, uncomputed

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


@click.group("runner", cls=SuggestingGroup)
def runner_command() -> None:
    """Set up this machine as a runner: a machine that measures, with a key of its own."""


@runner_command.command("init")
def init_command(
    name: str | None = option(
        "--name  The runner's name.  [default: runner- and a part of the key's fingerprint]"
    ),
    host_classes: tuple[str, ...] = option(
        "--host-class PATTERN...  A host class that it may sign for, such as r580-h100, or *-h100 for every"
        " driver; repeatable.  [default: the GPU models of this machine, with every driver]"
    ),
    until: datetime | None = option(
        "--until TIME  The end of its registration, such as 2027-11-22.  [default: in one year]",
        callback=options.parse_moment,
    ),
    register: bool = flag("--register  Add it to the trust file, instead of printing the line."),
    project: Project = options.project("trust"),
) -> None:
    """Make this machine's key, and print the line that registers it in trust.yaml.

    The private key stays in this machine's state directory, readable only by you. If there is a key already,
    it is used.
    """

    from ..certify import trust_file

    if until is not None and until <= now_utc():
        raise InputError(
            f"--until {until:%Y-%m-%d}: this time is in the past", hint="for example --until 2027-11-22"
        )
    globs = host_classes
    if not globs:
        from ..delivery.choose import this_host

        try:
            names = [gpu.name for gpu in this_host().gpus if gpu.name]
        except MissingError as error:
            raise InputError(
                f"the host classes of this machine are not known: {error}",
                hint="name them, for example --host-class '*-h100'",
            ) from None
        globs = tuple(dict.fromkeys(f"*-{model_of(name)}" for name in names))
    signer = trust_file.own_signer(trust_file.RUNNERS)
    if signer is None:
        signer = trust_file.make_own_key(trust_file.RUNNERS)
        print_status(f"{signer.key}: this machine's key. It never leaves the machine.")
    party = trust_file.new_party(signer, name=name, host_classes=globs, until=until)
    if not register:
        print_status("Add this line to `runners` in the trust.yaml of whoever certifies:")
        click.echo(f"  - {trust_file.entry_line(party)}")
        return
    path = project.trust_file
    if found := trust_file.entry_with_same_key(path, party):
        print_status(f"{path} has this key already, as {found.name}; nothing was changed.")
        return
    trust_file.add(path, trust_file.RUNNERS, party)
    print_status(f"Registered {party.name} in {path} for {', '.join(globs)} until {party.until:%Y-%m-%d}.")
