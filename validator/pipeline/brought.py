"""A record of a report that a person brought from another machine."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..model.record import Origin, Record
from ..model.report import Report
from ..model.spec import Choice, ImageSpec, Variant, cell_identifier
from ..records.verdict import judge
from .hosts import host_class_of
from .versions import versions_of


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
