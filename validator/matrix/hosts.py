"""Host entries into host classes: every driver with every GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from ..compat import gpus
from ..model.spec import NO_GPU, HostClass, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from .nodes import Findings, Path
from .problems import not_known, quote
from .schema import HostEntry

#: All host entries together may ask for this many host classes.
MAX_HOSTS = 2_000

NONE = "none"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("host", "driver", "gpu")

#: A GPU for a host class: its part of the identifier, its model, its compute capability.
_Card = tuple[str, str | None, ComputeCapability]
_T = TypeVar("_T")


def resolve_hosts(entries: Mapping[int, HostEntry], findings: Findings) -> list[HostClass]:
    """The host classes that the entries ask for, each identifier once.

    entries: by their place in the file. What is wrong goes into `findings`.
    """
    found: dict[str, tuple[HostClass, int]] = {}
    for number, entry in entries.items():
        path: Path = ("hosts", number)
        _check_labels(entry, path, findings)
        if entry.gpu == [NONE]:
            hosts: Iterable[HostClass] = _without_gpu(entry, path, findings)
        else:
            drivers, cards, compats = _axes(entry, path, findings)
            if len(found) + len(drivers) * len(cards) * len(compats) > MAX_HOSTS:
                message = f"with the entries before it, this asks for more than {MAX_HOSTS:,} host classes"
                findings.add(path, message)
                continue
            hosts = _multiply(entry, drivers, cards, compats)
        repeated: dict[int, list[str]] = {}
        for host in hosts:
            first = found.setdefault(host.identifier, (host, number))
            if first[0] is not host:
                repeated.setdefault(first[1], []).append(host.identifier)
        for first_number, names in repeated.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            where = (
                f"hosts[{first_number}] (line {findings.line(('hosts', first_number))})"
                if first_number != number
                else "it"
            )
            findings.add(path, f"is a duplicate: {where} gives {names[0]}{others} already")
    return [host for host, _ in found.values()]


def _without_gpu(entry: HostEntry, path: Path, findings: Findings) -> list[HostClass]:
    for name in ("driver", "compute_capability", "compat"):
        if getattr(entry, name):
            findings.add((*path, name), "stands beside gpu: none; leave this key out", at_key=True)
    return [HostClass.without_gpu(_runner(entry, NO_GPU, NONE, NONE))]


def _axes(
    entry: HostEntry, path: Path, findings: Findings
) -> tuple[list[DriverRelease], list[_Card], list[str | None]]:
    if "driver" not in entry.model_fields_set:
        findings.add(path, "needs the key driver")
    if len({"gpu", "compute_capability"} & entry.model_fields_set) != 1:
        findings.add(path, "needs one of the keys gpu and compute_capability, and not both")
    cards = _read(entry.gpu, (*path, "gpu"), _model, findings)
    cards += _read(entry.compute_capability, (*path, "compute_capability"), _capability, findings)
    return (
        _read(entry.driver, (*path, "driver"), DriverRelease.parse, findings),
        cards,
        _read(entry.compat or [NONE], (*path, "compat"), _compat, findings),
    )


def _read(values: list[str], path: Path, parse: Callable[[str], _T], findings: Findings) -> list[_T]:
    good = []
    for index, value in enumerate(values):
        try:
            good.append(parse(value))
        except ValueError as error:
            findings.add((*path, index), str(error))
    return good


def _model(name: str) -> _Card:
    if name == NONE:
        raise ValueError("none stands alone: a machine without a GPU is an entry of its own")
    gpu = gpus.gpu(name)
    return gpu.slug, gpu.slug, gpu.compute_capability


def _capability(text: str) -> _Card:
    capability = ComputeCapability.parse(text)
    return capability.sm.replace("_", ""), None, capability


def _compat(text: str) -> str | None:
    return None if text == NONE else str(CudaVersion.parse(text))


def _multiply(
    entry: HostEntry, drivers: list[DriverRelease], cards: list[_Card], compats: list[str | None]
) -> Iterator[HostClass]:
    for driver in drivers:
        for label, model, capability in cards:
            for compat in compats:
                identifier = host_identifier(driver, model, capability, compat)
                runner = _runner(entry, identifier, str(driver), label)
                yield HostClass(identifier, driver, capability, model, runner, compat)


def _runner(entry: HostEntry, host: str, driver: str, gpu: str) -> tuple[str, ...]:
    values = {"host": host, "driver": driver, "gpu": gpu}
    return tuple(_PLACEHOLDER.sub(lambda match: values.get(match[1], ""), label) for label in entry.runner)


def _check_labels(entry: HostEntry, path: Path, findings: Findings) -> None:
    for index, label in enumerate(entry.runner):
        for name in _PLACEHOLDER.findall(label):
            if name not in _PLACEHOLDERS:
                message = f"in {quote(label)}, " + not_known(name, _PLACEHOLDERS, "the placeholder")
                findings.add((*path, "runner", index), message)
