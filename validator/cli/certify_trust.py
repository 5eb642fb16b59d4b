"""`certify challenges`: ask for measurements; `certify revoke`: revoke a runner or a builder."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click

from ..errors import EXIT_OK
from ..model.timestamps import format_timestamp, now_utc
from .options import matrix_option, print_status, profile_option, select_option, verbose_option
from .trust_options import parse_moment, trust_file_option, trust_path_for


@click.command("challenges")
@matrix_option
@profile_option
@select_option
@verbose_option
def challenges_command(matrix_path: Path, profile: str | None, selectors: tuple[str, ...]) -> int:
    """Make a challenge for each selected cell, which exactly one measurement can answer.

    Prints the cells as `plan --format github` does, but always in one object, and each with its challenge.
    Give that file to `build-matrix --challenges` on the machines that measure. This machine remembers what
    it asked for; on another one, give the file to `certify --challenges` as well.
    """
    from ..certify.challenges import Ledger
    from ..matrix.plan import github_rows
    from .planning import load_plan

    ledger = Ledger()
    rows = github_rows(load_plan(matrix_path, profile, selectors).cells)
    for row in rows:
        challenge = ledger.issue(str(row["id"]))
        row |= {"challenge": challenge.value, "issued": format_timestamp(challenge.issued)}
    click.echo(json.dumps({"include": rows}))
    return EXIT_OK


@click.command("revoke")
@click.argument("name", metavar="RUNNER")
@click.option(
    "--at",
    callback=parse_moment,
    metavar="TIME",
    help="From this time on, such as 2026-11-01T06:30, or 36h for 36 hours ago.  [default: now]",
)
@matrix_option
@trust_file_option
@verbose_option
def revoke_command(name: str, at: datetime | None, matrix_path: Path, trust_path: Path | None) -> int:
    """Revoke a runner or a builder from a given time on.

    Changes the trust file. After that time, nothing that the runner signed is accepted any more,
    whatever time it claims: whoever has the key could write an earlier one.
    """
    from ..certify.registration import revoke

    path = trust_path_for(matrix_path, trust_path)
    party = revoke(path, name, at or now_utc())
    assert party.revoked is not None
    print_status(f"{name} is revoked from {format_timestamp(party.revoked)} on, in {path}. Commit this file.")
    print_status(
        "Certificates that were made from its measurements since then are valid until they expire. A newer"
        " measurement by another runner replaces them: measure these host classes again, then `certify`."
    )
    return EXIT_OK
