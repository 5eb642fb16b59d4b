"""`validator` without arguments: what this machine is, if TensorFlow can use its GPU, and what works here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import click
from msgspec import structs

from ..engines.this_machine import Seen, look
from ..errors import InputError
from ..model.codec import encode
from ..model.diagnosis import Cause
from ..model.prediction import Outcome
from ..model.report import CheckOutcome
from ..reports.printable import json_text, one_line, wrapped
from ..versions import major_minor
from . import as_started
from .options import text_width

#: Why the facts give no answer.
_NO_DRIVER = "no NVIDIA driver answers here, so there is nothing to predict for"
#: The values of `uses_gpu`, each with the words before the cause.
_ANSWERS = {"no": "No", "likely-not": "Probably not", "possibly-not": "Perhaps not"}
_STRENGTHS = {"certain": "no", "likely": "likely-not", "possible": "possibly-not"}


class EnvironmentFields(TypedDict):
    """The active environment, as JSON."""

    python: Annotated[str | None, "The path of its Python; null if there is none."]
    found_by: Annotated[str, "`VIRTUAL_ENV`, `CONDA_PREFIX` or `PATH`."]
    version: Annotated[str | None, "The version of Python; null if it could not be asked."]
    tensorflow: Annotated[str | None, "The version in TensorFlow's metadata; null if there is none."]
    why: Annotated[str, "Why that Python could not be asked; empty if it could."]


class NextFields(TypedDict):
    """The next command, as JSON."""

    says: Annotated[str, "What it is for, in one sentence."]
    command: Annotated[str, "The command."]


class HereDocument(TypedDict):
    """The output of `validator --json`."""

    system: Annotated[str | None, "`linux`, `wsl2`, `windows` or `macos`."]
    machine: Annotated[str | None, "The architecture: `x86_64`, `aarch64` or `jetson`."]
    container: Annotated[
        str | None, "As in a [report](report.md): `docker`, …; null outside, or if not known."
    ]
    driver: Annotated[str | None, "The driver's release; null if there is none."]
    driver_silent: Annotated[bool, "Whether the kernel has a driver that did not answer in time."]
    gpus: Annotated[
        list[dict[str, str | None]],
        "The `name` and `compute_capability` of each GPU; the latter is null if only the kernel listed it.",
    ]
    engines: Annotated[list[dict[str, Any]], "Docker and Podman, if they are installed."]
    pythons: Annotated[dict[str, str], "The path of each minor version of Python on PATH."]
    environment: Annotated[EnvironmentFields, "The active environment."]
    uses_gpu: Annotated[
        str,
        "`expected` (nothing that was seen rules it out), `no`, `likely-not`, `possibly-not`,"
        " `not-installed` (TensorFlow is not there) or `unknown`.",
    ]
    because: Annotated[str, "The reason for that, in one sentence."]
    cause: Annotated[
        dict[str, Any] | None,
        "The likeliest [cause](#a-diagnosis-doctor---json), which `doctor` would name from the same facts.",
    ]
    works: Annotated[
        dict[str, Any] | None,
        "[What works on this machine](json.md#what-works-on-a-machine-predict---json-without---tensorflow);"
        " null without a driver and a GPU.",
    ]
    get: Annotated[
        dict[str, list[str]],
        "The commands that install or build the newest release that works here, by `pip` and `image`;"
        " without a GPU, for the CPU.",
    ]
    why_none: Annotated[str, "Why no release is named for the GPU; empty if one is."]
    next: Annotated[NextFields, "The one next command."]


def show_this_machine(as_json: bool) -> None:
    """Print what this machine is, whether TensorFlow can use its GPU, and what works here."""
    document = this_machine()
    if as_json:
        click.echo(json_text(document))
        return
    click.echo(as_started("\n".join(_lines(document, text_width()))))


def this_machine() -> HereDocument:
    """Return the answer for this machine."""
    return answer(look(meanwhile=_load))


def _load() -> None:
    """Import what takes long to load, while the machine is asked."""
    from .. import diagnosis  # noqa: F401
    from ..answers import what_works  # noqa: F401


def answer(seen: Seen) -> HereDocument:
    """Return the answer for a machine from what it shows. Raises nothing for what is unknown."""
    environment, report = seen.environment, seen.environment.report
    version = report.environment.python if report else None
    uses_gpu, because, cause = _uses_gpu(seen)
    works, get, why_none = _works(seen, major_minor(version) if version else None)
    return {
        "system": seen.host.system,
        "machine": seen.host.machine,
        "container": report.host.container if report else None,
        "driver": seen.host.driver,
        "driver_silent": seen.driver_silent,
        "gpus": [
            {"name": gpu.name, "compute_capability": gpu.compute_capability or None} for gpu in seen.gpus
        ],
        "engines": encode(list(seen.containers)),
        "pythons": dict(seen.pythons),
        "environment": {
            "python": str(environment.python) if environment.python else None,
            "found_by": environment.found_by,
            "version": version,
            "tensorflow": report.environment.tensorflow if report else None,
            "why": environment.why,
        },
        "uses_gpu": uses_gpu,
        "because": because,
        "cause": encode(cause) if cause else None,
        "works": works,
        "get": get,
        "why_none": why_none,
        "next": _next(seen, uses_gpu, get),
    }


def _uses_gpu(seen: Seen) -> tuple[str, str, Cause | None]:
    """Return whether TensorFlow can use the GPU, why, and the likeliest cause if it can't."""
    from ..diagnosis import diagnose_report

    environment = seen.environment
    if seen.driver_silent:
        return "unknown", "The NVIDIA driver did not answer in time. Sleeping GPUs wake slowly.", None
    if environment.report is None:
        if environment.python is None:
            place = "on PATH" if environment.found_by == "PATH" else f"where {environment.found_by} points"
            return "unknown", f"There is no Python {place}.", None
        why = f"{environment.python} can't be asked: {environment.why}."
        return "unknown", f"{why} `validator doctor --python {environment.python}` waits longer.", None
    # A check that was cut off here shows nothing.
    checks = tuple(one for one in environment.report.checks if one.outcome is not CheckOutcome.TIMEOUT)
    causes = diagnose_report(structs.replace(environment.report, checks=checks)).causes
    if causes:
        return _STRENGTHS[causes[0].strength], causes[0].headline, causes[0]
    if environment.report.environment.tensorflow is None:
        return "not-installed", "TensorFlow is not installed in the active environment.", None
    if len(checks) < len(environment.report.checks):
        return "unknown", "There was no time to open CUDA's libraries; `doctor` takes that time.", None
    return "expected", "Nothing that was seen rules it out. Only a training step can prove it.", None


def _works(seen: Seen, python: str | None) -> tuple[dict[str, Any] | None, dict[str, list[str]], str]:
    """Return what works on this machine, how to get the newest of it, and why there is nothing."""
    if not (seen.host.driver and seen.gpus):
        return None, _for_the_cpu(python), _NO_DRIVER
    from ..answers.what_works import what_works_on

    host = seen.host
    if host.gpu is None:
        first = seen.gpus[0]
        host = replace(host, gpu=first.name, capability=first.compute_capability or None)
    try:
        works = what_works_on(host, python)
    except InputError as error:
        return None, _for_the_cpu(python), str(error)
    if works["outcome"] == Outcome.FAILS.value:
        return works, _for_the_cpu(python), works["headline"]
    get: dict[str, list[str]] = {}
    for way in works["ways"]:
        get.setdefault(way["way"], way["commands"])
    return works, get, ""


def _for_the_cpu(python: str | None) -> dict[str, list[str]]:
    from ..compat.releases import newest, releases

    stable = [one for one in reversed(releases()) if not one.prerelease]
    chosen = next((one for one in stable if python in one.pythons), newest())
    return {
        "pip": [f"python -m pip install tensorflow-cpu=={chosen.version}"],
        "image": ["validator build-matrix --profile cpu"],
    }


def _next(seen: Seen, uses_gpu: str, get: dict[str, list[str]]) -> NextFields:
    environment = seen.environment
    python = shlex.quote(str(environment.python)) if environment.python else None
    on_bus = environment.report.host.pci_gpus if environment.report else None
    if not (seen.gpus or seen.host.driver or on_bus or uses_gpu == "expected"):
        return {
            "says": "Ask about the machine that has the GPU, here an H100 with driver 580",
            "command": "validator predict --gpu h100 --driver 580",
        }
    if uses_gpu == "not-installed" and get.get("pip"):
        return {"says": "Install the newest release that works here", "command": get["pip"][0]}
    if python is None or environment.report is None:
        return {"says": "See what works in a container or a new environment", "command": get["image"][0]}
    says = "Train a step on the GPU, and see what is wrong if that fails"
    if uses_gpu in _ANSWERS:
        says = "See the evidence, and the commands that fix it"
    return {"says": says, "command": f"validator doctor --python {python}"}


# Write the answer for a terminal.


def _lines(found: HereDocument, width: int) -> Iterator[str]:
    yield click.style("This machine", bold=True)
    for name, words in (
        ("GPU", _gpu_words(found)),
        ("Containers", "; ".join(map(_engine_words, found["engines"])) or "neither Docker nor Podman"),
        ("Pythons", ", ".join(found["pythons"]) or "none on PATH"),
        ("Active", _environment_words(found["environment"])),
    ):
        yield from wrapped(words, width, f"  {name:<12}", " " * 14)
    yield ""
    yield click.style("Can TensorFlow use the GPU?", bold=True)
    hedge = _ANSWERS.get(found["uses_gpu"])
    code = f" ({found['cause']['code']})" if found["cause"] else ""
    yield from wrapped(f"{f'{hedge}. ' if hedge else ''}{found['because']}{code}", width, "  ")
    yield ""
    yield click.style("What works here", bold=True)
    works = found["works"]
    if works and not found["why_none"]:
        yield from wrapped(" ".join([works["headline"], works["basis"]]), width, "  ")
        if len({gpu["name"] for gpu in found["gpus"]}) > 1:
            yield from wrapped(
                f"This is for {works['machine'][0]}; `predict --gpu` asks about others.", width, "  "
            )
    else:
        yield from wrapped(f"On the GPU: {found['why_none'].rstrip('.')}. On the CPU:", width, "  ")
    for commands in found["get"].values():
        yield from (click.style(f"      {one_line(command)}", fg="cyan") for command in commands)
    yield ""
    yield from wrapped(f"Next: {found['next']['says']}:", width)
    yield click.style(f"      {one_line(found['next']['command'])}", fg="cyan")


def _gpu_words(found: HereDocument) -> str:
    if not found["driver"]:
        return "none; no NVIDIA driver answers"
    names = [gpu["name"] or "" for gpu in found["gpus"]]
    counted = [
        f"{names.count(one)} of {one}" if names.count(one) > 1 else one for one in dict.fromkeys(names)
    ]
    silent = ", which did not answer" if found["driver_silent"] else ""
    return f"{', '.join(counted) or 'none that the driver shows'}; driver {found['driver']}{silent}"


def _engine_words(one: dict[str, Any]) -> str:
    if one["why"]:
        return f"{one['name'].capitalize()} can't be used: {one['why']}"
    gpus = {True: ", gives GPUs to containers", False: ", gives no GPUs to containers", None: ""}
    return f"{one['name'].capitalize()} {one['version']}{gpus[one['gives_gpus']]}"


def _environment_words(one: EnvironmentFields) -> str:
    if one["python"] is None:
        return f"no Python ({one['found_by']})"
    place = one["python"].replace(str(Path.home()), "~", 1)
    if one["why"]:
        return f"{place} ({one['found_by']}): {one['why']}"
    tensorflow = f"TensorFlow {one['tensorflow']}" if one["tensorflow"] else "no TensorFlow"
    return f"Python {one['version']}, {tensorflow}: {place}"
