"""`predict` without `--tensorflow`: name the newest release that works on a machine."""

from __future__ import annotations

import shutil
import sys

import click

from ..compat.errors import UnknownGpu
from ..compat.hardware import parse_gpu
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.prediction import Outcome
from ..model.situation import LINUX, X86_64
from ..reports.printable import json_text
from .options import print_status

#: Columns at which lines are wrapped, in a file and on a terminal that is at least as wide.
_WIDTH = 80


def predict_newest(
    *,
    gpu: str | None,
    capability: str | None,
    driver: str | None,
    python: str | None,
    system: str | None,
    machine: str | None,
    format_: str,
) -> int:
    """Print which releases work on a machine, and return the exit code: 1 if none does.

    Raises InputError for values that can't be understood.
    """
    from ..answers.errors import RejectedField
    from ..answers.what_works import what_works

    try:
        answer = what_works({
            "gpu": _known(gpu, capability) or "",
            "driver": driver or "",
            "python": python or "",
            "system": system or LINUX,
            "machine": machine or X86_64,
            "registry": None,
            "images": None,
            "verdicts": None,
        })  # fmt: skip
    except RejectedField as error:
        raise InputError(f"--{error.field}: {error}", hint=error.hint) from None
    if format_ == "json":
        click.echo(json_text(answer))
    else:
        from ..reports.releases import text

        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
        click.echo(text(answer, min(columns, _WIDTH)), nl=False)
        print_status("--json gives all reasons with their sources.")
    return EXIT_FAILED if answer["outcome"] == Outcome.FAILS.value else EXIT_OK


def _known(gpu: str | None, capability: str | None) -> str | None:
    """Return the GPU's name if it is known or the capability is not, else the compute capability."""
    if not (gpu and capability):
        return gpu or capability
    try:
        parse_gpu(gpu)
    except UnknownGpu:
        return capability
    return gpu
