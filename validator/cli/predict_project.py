"""`predict --requirements`: predict for what a project pins, on the machines that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.prediction import Outcome
from ..model.spec import HostClass

_CAPABILITY = re.compile(r"\d{1,2}\.\d")


def predict_project(
    paths: Sequence[Path], hosts: Sequence[str], format_: str, host_of: Callable[[str, str, str], HostClass]
) -> int:
    """Predict for each file on each host, and return the exit code: 1 if a combination fails.

    host_of: makes a host class from a GPU's name or nothing, its compute capability or nothing, and a driver.
    Raises InputError.
    """
    from ..lint.hosts import on_hosts
    from ..reports import project as shown

    found = on_hosts(paths, [_host(text, host_of) for text in hosts])
    render = {
        "text": shown.text,
        "json": shown.as_json,
        "markdown": shown.markdown,
        "github": shown.github,
    }[format_]
    click.echo(render(found), nl=False)
    failing = any(one.prediction.outcome is Outcome.FAILS for one in found)
    return EXIT_FAILED if failing else EXIT_OK


def _host(text: str, host_of: Callable[[str, str, str], HostClass]) -> HostClass:
    gpu, colon, driver = (part.strip() for part in text.rpartition(":"))
    if not (gpu and colon and driver):
        raise InputError(
            f'--host: "{text}" is not a GPU and a driver', hint="write it as h100:535.183.01, or 9.0:580"
        )
    if _CAPABILITY.fullmatch(gpu):
        return host_of("", gpu, driver)
    return host_of(gpu, "", driver)
