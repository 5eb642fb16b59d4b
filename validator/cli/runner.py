"""`runner init`: make the key that this machine signs its measurements with."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from ..certify.machine_keys import make_runner_key, runner_signer
from ..compat.gpus import model_of
from ..errors import EXIT_OK, InputError, MissingError
from ..model.timestamps import now_utc
from .groups import SuggestingGroup
from .options import matrix_option, print_status, verbose_option
from .trust_options import parse_moment, trust_file_option, trust_path_for


@click.group("runner", cls=SuggestingGroup)
def command() -> None:
    """Set up this machine as a runner: a machine that measures, with a key of its own."""


@command.command("init")
@click.option("--name", help="The runner's name.  [default: runner- and a part of the key's fingerprint]")
@click.option(
    "--host-class",
    "host_classes",
    multiple=True,
    metavar="PATTERN",
    help="A host class that it may sign for, such as r580-h100, or *-h100 for every driver; repeatable."
    "  [default: the GPU models of this machine, with every driver]",
)
@click.option(
    "--until",
    callback=parse_moment,
    metavar="TIME",
    help="The end of its registration, such as 2027-11-22.  [default: in one year]",
)
@click.option("--register", is_flag=True, help="Add it to the trust file, instead of printing the line.")
@matrix_option
@trust_file_option
@verbose_option
def init_command(
    name: str | None,
    host_classes: tuple[str, ...],
    until: datetime | None,
    register: bool,
    matrix_path: Path,
    trust_path: Path | None,
) -> int:
    """Make this machine's key, and print the line that registers it in trust.yaml.

    The private key stays in this machine's state directory, readable only by you. If there is a key already,
    it is used.
    """
    from ..certify.registration import RUNNERS, add, entry_line, entry_with_same_key, new_party

    if until is not None and until <= now_utc():
        raise InputError(
            f"--until {until:%Y-%m-%d}: this time is in the past", hint="for example --until 2027-11-22"
        )
    globs = host_classes or _own_host_classes()
    signer = runner_signer()
    if signer is None:
        signer = make_runner_key()
        print_status(f"{signer.key}: this machine's key. It never leaves the machine.")
    party = new_party(signer, name=name, host_classes=globs, until=until)
    if not register:
        print_status("Add this line to `runners` in the trust.yaml of whoever certifies:")
        click.echo(f"  - {entry_line(party)}")
        return EXIT_OK
    path = trust_path_for(matrix_path, trust_path)
    if found := entry_with_same_key(path, party):
        print_status(f"{path} has this key already, as {found.name}; nothing was changed.")
        return EXIT_OK
    add(path, RUNNERS, party)
    print_status(f"Registered {party.name} in {path} for {', '.join(globs)} until {party.until:%Y-%m-%d}.")
    return EXIT_OK


def _own_host_classes() -> tuple[str, ...]:
    from ..delivery.host import this_host

    try:
        names = [gpu.name for gpu in this_host().gpus if gpu.name]
    except MissingError as error:
        raise InputError(
            f"the host classes of this machine are not known: {error}",
            hint="name them, for example --host-class '*-h100'",
        ) from None
    return tuple(dict.fromkeys(f"*-{model_of(name)}" for name in names))
