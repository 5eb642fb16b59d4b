"""Derive what a record needs from a measurement: host class and key; record an imported report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..compat.gpus import model_of
from ..engines.protocol import Engine
from ..errors import InputError, MissingError
from ..model.lock import Lock
from ..model.measurement import GpuIdentity, Outside, Unread
from ..model.record import Origin, Record, contents_of
from ..model.report import Gpu, Host, Report, ReportError, versions_of
from ..model.spec import NO_GPU, Choice, HostClass, ImageSpec, Variant, cell_identifier, host_identifier, slug
from ..model.verdict import judge
from ..versions import ComputeCapability, DriverRelease, minor_in


def host_class_of(host: Host, declared: Iterable[HostClass]) -> str:
    """Return the identifier of the host class that a machine belongs to.

    declared: the matrix's host classes; the first that matches is used. A machine that fits none of them is
    named in the same way (`r595-h200`), and one without a GPU is `no-gpu`. Raises ReportError for a driver
    or a compute capability that is not one.
    """
    if not host.gpus or not host.driver:
        return NO_GPU
    models = list(dict.fromkeys(model_of(name) for name in host.gpu_names))
    # A driver library with a fault may leave a capability out; the models still name the host.
    known = (entry.compute_capability for entry in host.gpus)
    try:
        driver = DriverRelease.parse(host.driver)
        capabilities = {ComputeCapability.parse(capability) for capability in known if capability}
    except ValueError as error:
        raise ReportError(f"host: {error}") from None
    for host_class in declared:
        same_gpu = (
            models == [slug(host_class.gpu)]
            if host_class.gpu
            else capabilities == {host_class.compute_capability}
        )
        if same_gpu and host_class.compat is None and _same_driver(driver, host_class.driver):
            return host_class.identifier
    return host_identifier(
        DriverRelease(driver.branch), "+".join(models), min(capabilities, default=ComputeCapability(0, 0))
    )


def _same_driver(measured: DriverRelease, declared: DriverRelease) -> bool:
    return measured.branch == declared.branch if declared.is_branch else measured == declared


def measurement_key(
    spec: ImageSpec, lock: Lock, probe_version: str, depth: str, engine: Engine, outside: Outside | Unread
) -> str:
    """Return a SHA-256 in hex over everything that must be unchanged for a measurement to stay valid.

    It covers the image spec, the lock, the probe and its depth, the host behind the engine, and the driver
    and the models of the GPUs that are measured, if the host can be read.
    """
    facts: dict[str, object] = {
        "image": spec.identifier,
        "lock": lock.digest,
        "probe": probe_version,
        "depth": depth,
        "engine": engine.name,
        "host": engine.host_facts(),
    }
    if isinstance(outside, Outside):
        gpus = [(gpu.name, gpu.compute_capability) for gpu in outside.gpus]
        facts |= {"driver": outside.driver, "gpus": sorted(gpus)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def record_of_report(report: Report) -> Record:
    """Return the record of a report from another machine, named after what was installed there.

    It is never `certified`, see `judge`. Raises InputError for a report of a Python without TensorFlow, which
    does not measure any image.
    """
    if not report.environment.tensorflow:
        raise InputError(
            f"the report of {report.started} comes from a Python without TensorFlow",
            hint="run probe.pyz with the Python that has TensorFlow, such as ~/venv/bin/python",
        )
    judgement = judge(report, Origin.ELSEWHERE)
    image = image_of(report)
    host_class = host_class_of(report.host, ())
    return Record(
        cell=cell_identifier(image, host_class),
        image=image,
        host_class=host_class,
        verdict=judgement.verdict,
        reason=judgement.sentence,
        engine="none",
        lock_digest=None,
        image_digest=None,
        probe_version=report.probe.version,
        started=report.started,
        finished=report.finished,
        key="",
        origin=Origin.ELSEWHERE,
        versions=versions_of(report),
        **contents_of(report),
    )


def image_of(report: Report) -> str:
    """Return the identifier of the image spec that matches the installed packages."""
    environment = report.environment
    python = minor_in(environment.python) or "0.0"
    tensorflow = environment.tensorflow or "0.0"
    cuda = _installed(environment.packages, "nvidia-cuda-runtime-cu")
    cudnn = _installed(environment.packages, "nvidia-cudnn-cu")
    if "tensorflow-cpu" in environment.packages or cuda is None or cudnn is None:
        return ImageSpec(tensorflow, python, Variant.CPU).identifier
    return ImageSpec(tensorflow, python, Variant.GPU, Choice(cuda, cuda), Choice(cudnn, cudnn)).identifier


def _installed(packages: Mapping[str, str], prefix: str) -> str | None:
    """Return the major and minor version of the first distribution whose name has this prefix."""
    found = [version for name, version in packages.items() if name.startswith(prefix)]
    return minor_in(found[0]) if found else None


# Choose which GPUs of a machine are measured together: those of one model, for one record.


@dataclass(frozen=True)
class Target:
    """One host class of the machine that runs the engine.

    outside: its driver and the GPUs that are offered to the probe, as the host sees them.
    host_class: None where the host can't be read; then the report names it.
    uuids: of the GPUs to offer; empty for all of the machine.
    """

    outside: Outside | Unread
    host_class: str | None = None
    uuids: tuple[str, ...] = ()

    def cell(self, spec: ImageSpec) -> str | None:
        """Return the identifier of the cell that is measured here, if it is known before the probe runs."""
        return cell_identifier(spec.identifier, self.host_class) if self.host_class else None

    def seen_in(self, outside: Outside | Unread) -> Outside | Unread:
        """Return the part of another reading of the same machine that is about these GPUs."""
        if isinstance(outside, Unread) or not self.uuids:
            return outside
        return _part(outside, tuple(gpu for gpu in outside.gpus if gpu.uuid in self.uuids))


def targets(outside: Outside | Unread, declared: Iterable[HostClass], *, by_model: bool) -> list[Target]:
    """Return what to measure on a machine, at least one target.

    declared: the matrix's host classes. by_model: each GPU model on its own; otherwise all GPUs together.
    """
    if isinstance(outside, Unread):
        return [Target(outside)]
    known = tuple(declared)
    models = list(dict.fromkeys(gpu.name for gpu in outside.gpus))
    if len(models) < 2 or not by_model:
        return [Target(outside, host_class_of(_host(outside), known))]
    found = []
    for model in models:
        gpus = tuple(gpu for gpu in outside.gpus if gpu.name == model)
        part = _part(outside, gpus)
        uuids = tuple(gpu.uuid for gpu in gpus)
        found.append(Target(part, host_class_of(_host(part), known), uuids))
    return found


def asked_for(
    found: Sequence[Target], spec: ImageSpec, challenges: Mapping[str, str]
) -> list[tuple[Target, str | None]]:
    """Return the targets that somebody asked to measure, each with its challenge.

    challenges: by cell, or by image spec for the only target of a machine. Raises MissingError if none of
    them is for this machine.
    """
    image = spec.identifier
    if len(found) == 1 and (found[0].host_class is None or image in challenges):
        # Without a reading of the host nothing is signed. The probe still gets a challenge to repeat.
        here = [text for cell, text in challenges.items() if cell.partition("@")[0] == image]
        return [(found[0], challenges.get(image) or (here[0] if here else None))]
    pairs = [(target, challenges.get(str(target.cell(spec)))) for target in found]
    pairs = [(target, challenge) for target, challenge in pairs if challenge is not None]
    if not pairs:
        classes = ", ".join(str(target.host_class) for target in found)
        raise MissingError(
            f"{image}: no challenge was made for this machine, whose host class is {classes}",
            hint="run it on a machine of a host class that the challenges name",
        )
    return pairs


def _part(outside: Outside, gpus: tuple[GpuIdentity, ...]) -> Outside:
    return msgspec.structs.replace(outside, gpus=gpus)


def _host(outside: Outside) -> Host:
    gpus = tuple(Gpu(gpu.name, gpu.uuid, gpu.compute_capability) for gpu in outside.gpus)
    return Host(outside.driver, gpus=gpus)
