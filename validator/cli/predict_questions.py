"""Answer the questions of `predict` that are about several combinations.

Without `--tensorflow`: which releases work on a machine? With `--requirements`: does the software that a
project pins work on its machines?
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ..answers.errors import RejectedField
from ..compat.errors import UnknownGpu
from ..compat.hardware import parse_gpu
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.prediction import Outcome
from ..model.situation import LINUX, X86_64, Host
from ..model.spec import HostClass
from ..reports.printable import json_text
from ..reports.releases import what_works_text
from .combination import Question, gpu_of, host_class
from .options import print_status
from .program import as_started

#: Columns at which lines are wrapped, in a file and on a terminal that is at least as wide.
_WIDTH = 80
_CAPABILITY = re.compile(r"\d{1,2}\.\d")


def predict_newest(asked: Question, format_: str) -> int:
    """Print which releases work on a machine, and return the exit code: 1 if none does.

    Raises UsageError if nothing describes the machine, and InputError for values that can't be understood.
    """
    from ..answers.what_works import what_works

    if not asked.names_host:
        raise click.UsageError(
            "--tensorflow is missing. To see which release works, describe a machine: --gpu and --driver, or"
            " --from-host on that machine."
        )
    host = asked.host
    if host.capability:
        # Reports a contradiction, and text that can't be read.
        gpu_of(host)
    try:
        answer = what_works({
            "gpu": _readable_gpu(host) or "",
            "driver": host.driver or "",
            "python": asked.software.python or "",
            "system": host.system or LINUX,
            "machine": host.machine or X86_64,
            "registry": None,
            "images": None,
            "verdicts": None,
        })  # fmt: skip
    except RejectedField as error:
        raise InputError(f"--{error.field}: {error}", hint=error.hint) from None
    if format_ == "json":
        click.echo(json_text(answer))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
        click.echo(as_started(what_works_text(answer, min(columns, _WIDTH))), nl=False)
        print_status("--json gives all reasons with their sources.")
    return EXIT_FAILED if answer["outcome"] == Outcome.FAILS.value else EXIT_OK


def _readable_gpu(host: Host) -> str | None:
    """Return the GPU's name if it is known or the capability is not, else the compute capability."""
    if not (host.gpu and host.capability):
        return host.gpu or host.capability
    try:
        parse_gpu(host.gpu)
    except UnknownGpu:
        return host.capability
    return host.gpu


def predict_project(paths: Sequence[Path], hosts: Sequence[str], format_: str) -> int:
    """Predict for each file on each host, and return the exit code: 1 if a combination fails.

    Raises InputError.
    """
    from ..lint.hosts import on_hosts
    from ..reports.project import (
        predictions_github,
        predictions_json,
        predictions_markdown,
        predictions_text,
    )

    found = on_hosts(paths, [_host(text) for text in hosts])
    render = {
        "text": predictions_text,
        "json": predictions_json,
        "markdown": predictions_markdown,
        "github": predictions_github,
    }[format_]
    click.echo(render(found), nl=False)
    failing = any(one.prediction.outcome is Outcome.FAILS for one in found)
    return EXIT_FAILED if failing else EXIT_OK


def _host(text: str) -> HostClass:
    gpu, colon, driver = (part.strip() for part in text.rpartition(":"))
    if not (gpu and colon and driver):
        raise InputError(
            f'--host: "{text}" is not a GPU and a driver', hint="write it as h100:535.183.01, or 9.0:580"
        )
    is_capability = _CAPABILITY.fullmatch(gpu) is not None
    host = Host(driver, capability=gpu) if is_capability else Host(driver, gpu=gpu)
    named = host_class(Question(host))
    assert named is not None
    return named
