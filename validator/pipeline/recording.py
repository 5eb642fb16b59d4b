"""Which host class a measurement belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..compat.gpus import UnknownGpu, gpu
from ..engines.base import Engine
from ..errors import InputError
from ..model.lock import Lock
from ..model.record import Origin, Record
from ..model.report import Report
from ..model.spec import NO_GPU, Choice, HostClass, ImageSpec, Variant, cell_identifier, host_identifier, slug
from ..model.verdict import judge
from ..versions import ComputeCapability, DriverRelease


def host_class_of(facts: Mapping[str, Any], declared: Iterable[HostClass]) -> str:
    """The identifier of the host class that a probe's host facts belong to.

    facts: `host` of a report. declared: the matrix's host classes; the first that fits is taken. A host
    that none fits is named in the same way (`r595-h200`), and one without a GPU is `no-gpu`.
    """
    gpus = facts.get("gpus") or []
    if not gpus or not facts.get("driver"):
        return NO_GPU
    driver = DriverRelease.parse(str(facts["driver"]))
    models = list(dict.fromkeys(model_of(str(entry.get("name"))) for entry in gpus))
    # A driver library that answers badly may leave one out; the models still name the host.
    known = (entry.get("compute_capability") for entry in gpus)
    capabilities = {ComputeCapability.parse(str(capability)) for capability in known if capability}
    for host in declared:
        same_gpu = models == [slug(host.gpu)] if host.gpu else capabilities == {host.compute_capability}
        if same_gpu and host.compat is None and _same_driver(driver, host.driver):
            return host.identifier
    return host_identifier(
        DriverRelease(driver.branch), "+".join(models), min(capabilities, default=ComputeCapability(0, 0))
    )


def model_of(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` is an `a100`; a model that the facts don't know keeps its name."""
    try:
        return gpu(name).slug
    except UnknownGpu:
        return slug(name.removeprefix("NVIDIA "))


def _same_driver(measured: DriverRelease, declared: DriverRelease) -> bool:
    return measured.branch == declared.branch if declared.is_branch else measured == declared


# What must be unchanged for a measurement to stand.


def measurement_key(spec: ImageSpec, lock: Lock, probe_version: str, depth: str, engine: Engine) -> str:
    """SHA-256 (hex) over the image spec, the lock, the probe and its depth, the host behind the engine."""
    facts = {
        "image": spec.identifier,
        "lock": lock.digest,
        "probe": probe_version,
        "depth": depth,
        "engine": engine.name,
        "host": engine.host_facts(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


# The versions that were really there, as the probe found them; never those that were asked for.


def versions_of(report: Report) -> dict[str, str]:
    """`python`, `tensorflow`, `cuda` (the runtime library's), `cudnn`; what was not found is left out."""
    runtime = next((found for found in _libraries(report) if "libcudart" in str(found.get("soname"))), {})
    cudnn = _evidence(report, "cudnn_load").get("library")
    found = {
        "python": report.environment.get("python"),
        "tensorflow": report.environment.get("tensorflow"),
        "cuda": runtime.get("version"),
        "cudnn": cudnn.get("version") if isinstance(cudnn, dict) else None,
    }
    return {name: str(version) for name, version in found.items() if version}


def _libraries(report: Report) -> list[dict[str, Any]]:
    found = _evidence(report, "cuda_libraries").get("libraries")
    # A report may come from a file that a person edited; what is of another shape tells nothing.
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _evidence(report: Report, identifier: str) -> dict[str, Any]:
    check = report.check(identifier)
    return check.evidence if check else {}


# A record of a report that a person brought from another machine.


def record_of_report(report: Report) -> Record:
    """The record, named after what was really installed there. Never `certified`, see `judge`.

    Raises InputError for a report of a Python without TensorFlow, which is no measurement of any image.
    """
    if not report.environment.get("tensorflow"):
        raise InputError(
            f"the Python that wrote the report of {report.started} has no TensorFlow",
            hint="run probe.pyz with the Python that has it, such as ~/venv/bin/python",
        )
    judgement = judge(report, Origin.ELSEWHERE)
    image = image_of(report)
    host_class = host_class_of(report.host, ())
    return Record(
        cell=cell_identifier(image, host_class),
        image=image,
        host_class=host_class,
        verdict=judgement.verdict,
        reason=judgement.reason,
        engine="none",
        lock_digest=None,
        image_digest=None,
        probe_version=report.probe_version,
        started=report.started,
        finished=report.finished,
        key="",
        origin=Origin.ELSEWHERE,
        host=report.host,
        versions=versions_of(report),
        checks=[check.as_json() for check in report.checks],
        report=report.raw,
    )


def image_of(report: Report) -> str:
    """The identifier of the image spec that the installed packages amount to."""
    packages: Mapping[str, str] = report.environment.get("packages") or {}
    python = ".".join(str(report.environment.get("python") or "0.0").split(".")[:2])
    tensorflow = str(report.environment["tensorflow"])
    cuda = _installed(packages, "nvidia-cuda-runtime-cu")
    cudnn = _installed(packages, "nvidia-cudnn-cu")
    if "tensorflow-cpu" in packages or cuda is None or cudnn is None:
        return ImageSpec(tensorflow, python, Variant.CPU).identifier
    return ImageSpec(tensorflow, python, Variant.GPU, Choice(cuda, cuda), Choice(cudnn, cudnn)).identifier


def _installed(packages: Mapping[str, str], prefix: str) -> str | None:
    found = [version for name, version in packages.items() if name.startswith(prefix)]
    return ".".join(found[0].split(".")[:2]) if found else None
