"""Turn host entries into host classes: every driver with every GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..compat import gpus
from ..compat.drivers import parse_release
from ..model.spec import NO_GPU, HostClass, host_identifier
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from .document import Document, Path
from .problems import quote, unknown_name
from .schema import HostEntry

#: The most host classes of all host entries together.
MAX_HOSTS = 2_000

NONE = "none"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("host", "driver", "gpu")

#: A GPU of a host class: its name in runner labels, its model (None if not known), its compute capability.
_Gpu = tuple[str, str | None, ComputeCapability]
_T = TypeVar("_T")


def resolve_hosts(entries: Iterable[HostEntry], document: Document) -> list[HostClass]:
    """Return the host classes that the entries ask for, each identifier once.

    Problems are reported to `document`.
    """
    found: dict[str, tuple[HostClass, int]] = {}
    for number, entry in enumerate(entries):
        path: Path = ("hosts", number)
        _check_labels(entry, path, document)
        if entry.gpu == [NONE]:
            hosts: Iterable[HostClass] = _without_gpu(entry, path, document)
        else:
            drivers, gpus_asked, compats = _axes(entry, path, document)
            if len(found) + len(drivers) * len(gpus_asked) * len(compats) > MAX_HOSTS:
                message = f"with the entries before it, asks for more than {MAX_HOSTS:,} host classes"
                document.report(path, message)
                continue
            hosts = _host_classes(entry, drivers, gpus_asked, compats)
        repeated: dict[int, list[str]] = {}
        for host in hosts:
            first = found.setdefault(host.identifier, (host, number))
            if first[0] is not host:
                repeated.setdefault(first[1], []).append(host.identifier)
        for first_number, names in repeated.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            if first_number == number:
                document.report(path, f"defines the host class {names[0]}{others} twice")
            else:
                where = f"hosts[{first_number}] (line {document.line(('hosts', first_number))})"
                document.report(path, f"is a duplicate: {where} already gives {names[0]}{others}")
    return [host for host, _ in found.values()]


def _without_gpu(entry: HostEntry, path: Path, document: Document) -> list[HostClass]:
    for name in ("driver", "compute_capability", "compat"):
        if getattr(entry, name):
            document.report((*path, name), "has no meaning with gpu: none; leave this key out", at_key=True)
    return [HostClass.without_gpu(_runner(entry, NO_GPU, NONE, NONE))]


def _axes(
    entry: HostEntry, path: Path, document: Document
) -> tuple[list[DriverRelease], list[_Gpu], list[str | None]]:
    if not entry.driver:
        document.report(path, "the key driver is missing")
    if bool(entry.gpu) == bool(entry.compute_capability):
        document.report(path, "needs either gpu or compute_capability, and not both")
    gpus_asked = _read(entry.gpu, (*path, "gpu"), _model, document)
    gpus_asked += _read(entry.compute_capability, (*path, "compute_capability"), _capability, document)
    return (
        _read(entry.driver, (*path, "driver"), parse_release, document),
        gpus_asked,
        _read(entry.compat or [NONE], (*path, "compat"), _compat, document),
    )


def _read(values: list[str], path: Path, parse: Callable[[str], _T], document: Document) -> list[_T]:
    good = []
    for index, value in enumerate(values):
        try:
            good.append(parse(value))
        except ValueError as error:
            document.report((*path, index), str(error))
    return good


def _model(name: str) -> _Gpu:
    if name == NONE:
        raise ValueError(
            "none can't be in a list with models; add a separate entry for machines without a GPU"
        )
    gpu = gpus.gpu(name)
    return gpu.slug, gpu.slug, gpu.compute_capability


def _capability(text: str) -> _Gpu:
    capability = ComputeCapability.parse(text)
    return capability.sm.replace("_", ""), None, capability


def _compat(text: str) -> str | None:
    return None if text == NONE else str(CudaVersion.parse(text))


def _host_classes(
    entry: HostEntry, drivers: list[DriverRelease], gpus_asked: list[_Gpu], compats: list[str | None]
) -> Iterator[HostClass]:
    for driver in drivers:
        for label, model, capability in gpus_asked:
            for compat in compats:
                identifier = host_identifier(driver, model, capability, compat)
                runner = _runner(entry, identifier, str(driver), label)
                yield HostClass(identifier, driver, capability, model, runner, compat)


def _runner(entry: HostEntry, host: str, driver: str, gpu: str) -> tuple[str, ...]:
    values = {"host": host, "driver": driver, "gpu": gpu}
    return tuple(_PLACEHOLDER.sub(lambda match: values.get(match[1], ""), label) for label in entry.runner)


def _check_labels(entry: HostEntry, path: Path, document: Document) -> None:
    for index, label in enumerate(entry.runner):
        for name in _PLACEHOLDER.findall(label):
            if name not in _PLACEHOLDERS:
                message = f"in {quote(label)}, " + unknown_name(name, _PLACEHOLDERS, "the placeholder")
                document.report((*path, "runner", index), message)
