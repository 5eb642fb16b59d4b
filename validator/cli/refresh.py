"""`refresh`: bring the project's facts and pins up to date with the package index."""

from __future__ import annotations

import sys
from datetime import date

import click

from .options import print_status, verbose_option

ALL = "all"
#: Those of validator.supply.parts, which takes long to load.
PARTS = ("facts", "python", "bases", "debian", "layers")


@click.command("refresh")
@click.argument("parts", nargs=-1, type=click.Choice((*PARTS, ALL)), metavar="[PART]...")
@click.option("--check", is_flag=True, help="Only say what is new; the exit code is 1 if something is.")
@click.option("--dry-run", is_flag=True, help="Do everything except writing the files.")
@click.option("--pre", "candidates", is_flag=True, help="facts: also ask for release candidates.")
@click.option("--nightly", "nightlies", is_flag=True, help="facts: also ask for the newest nightly build.")
@click.option(
    "--keep", is_flag=True, help="python: keep the locked versions that pyproject.toml still allows."
)
@click.option(
    "--if-gone", is_flag=True, help="debian: change a lock only if its packages can no longer be downloaded."
)
@verbose_option
def command(
    parts: tuple[str, ...],
    check: bool,
    dry_run: bool,
    candidates: bool,
    nightlies: bool,
    keep: bool,
    if_gone: bool,
) -> int:
    """Ask for what is new, write it into the files of this checkout, and show the difference.

    PART is facts (the default), python, bases, debian, layers or all.

    facts: new TensorFlow releases, Pythons, CUDA and cuDNN wheels. Each new TensorFlow wheel is downloaded,
    inspected and deleted again. Writes the facts, the locks and the documentation, and says which predictions
    change and why. With --check it only asks the package index, and remembers the answer: other commands
    then say if the facts don't know a release.

    python: requirements/. bases: images/bases.yaml. debian: images/debian/. layers: images/layers.json, for
    which the wheels of new locks are downloaded.
    """
    if check and dry_run:
        raise click.UsageError("--check and --dry-run can't be combined: --check does less")
    named = PARTS if ALL in parts else tuple(dict.fromkeys(parts)) or PARTS[:1]
    owners = {"--pre": ("facts", candidates), "--nightly": ("facts", nightlies)}
    owners |= {"--keep": ("python", keep), "--if-gone": ("debian", if_gone)}
    for option, (part, given) in owners.items():
        if given and part not in named:
            raise click.UsageError(f"{option} has an effect only with the part {part}")
    from ..supply.news import Asked
    from ..supply.parts import PARTS as KNOWN
    from ..supply.parts import ROOT, Options, refresh

    options = Options(
        check=check,
        today=date.today(),
        say=print_status if sys.stderr.isatty() else lambda _: None,
        asked=Asked(candidates, nightlies),
        keep=keep,
        if_gone=if_gone,
    )
    selected = {name: KNOWN[name] for name in named}
    return refresh(
        selected, options, root=ROOT, write=not check and not dry_run, show=click.echo, complain=print_status
    )
