"""Whether a record may be certified. Its verdict is not taken for granted: its own report is judged again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ..errors import ValidatorError
from ..model.record import Origin, Record, Verdict
from ..model.report import Report, ReportError
from ..model.spec import cell_identifier
from ..model.timestamps import TOLERANCE, parse_timestamp
from ..model.verdict import judge
from ..registry.names import is_digest

#: The field of a report by which a test marks its record as made up.
FIXTURE = "fixture"
#: What the probe must have read for a certificate to say what is in the image.
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn")


class NotCertifiable(ValidatorError):
    """A record may not be certified. The message says why."""


def is_fixture(record: Record) -> bool:
    """Whether a test made the record up, and says so."""
    return record.report is not None and record.report.get(FIXTURE) is True


def checked_report(record: Record, now: datetime) -> Report:
    """The report of a record that may be certified. Raises NotCertifiable with the reason against it."""
    reason, report = _against(record, now)
    if reason is not None or report is None:
        raise NotCertifiable(f"record {record.id} ({record.cell}) can't be certified: {reason}")
    return report


def _against(record: Record, now: datetime) -> tuple[str | None, Report | None]:
    if record.verdict is not Verdict.CERTIFIED:
        return f"its verdict is {record.verdict.value}: {record.reason}", None
    if record.origin is not Origin.HERE:
        return "its report was brought from elsewhere", None
    if record.image_digest is None or not is_digest(record.image_digest):
        return f"it was measured without an image (engine {record.engine})", None
    if record.lock_digest is None or not is_digest(record.lock_digest):
        return "it names no lock", None
    try:
        report = Report.from_json(record.report)
    except ReportError as error:
        return f"its report can't be read: {error}", None
    return _against_report(record, report, now), report


def _against_report(record: Record, report: Report, now: datetime) -> str | None:
    judgement = judge(report, record.origin)
    if judgement.verdict is not Verdict.CERTIFIED:
        return f"its own report says {judgement.verdict.value}: {judgement.reason}"
    if emulated := signs(report):
        return f"the GPU may have been emulated: {'; '.join(emulated)}"
    same = {
        "checks": [check.as_json() for check in report.checks] == record.checks,
        "host": report.host == record.host,
        "probe": report.probe_version == record.probe_version,
        "cell": cell_identifier(record.image, record.host_class) == record.cell,
        "tensorflow": str(report.environment.get("tensorflow")) == record.versions.get("tensorflow"),
        "python": str(report.environment.get("python")) == record.versions.get("python"),
    }
    if differs := [name for name, equal in same.items() if not equal]:
        return f"it and its own report differ ({', '.join(differs)})"
    if missing := [name for name in _VERSIONS if not record.versions.get(name)]:
        return f"the probe found no version of {', '.join(missing)}"
    if not record.image.startswith(f"tf{record.versions['tensorflow']}-"):
        return f"TensorFlow {record.versions['tensorflow']} was in the image"
    finished = parse_timestamp(record.finished)
    if finished is None:
        return f"its finish time is not a timestamp ({record.finished})"
    if finished > now + TOLERANCE:
        return f"it was measured in the future ({record.finished}): a clock is wrong, there or here"
    return None


# What in a report speaks of a GPU that was emulated: libraries put in the driver's place.

#: Where distributions, NVIDIA's installers and container runtimes put the driver's libraries, NixOS too.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/run/opengl-driver/")
_GPU_NODE = re.compile(r"/dev/nvidia\d+|/dev/dxg")


def signs(report: Report) -> list[str]:
    """Sentences that say what was seen; none for a report of a real GPU."""
    return list(_signs(report))


def _signs(report: Report) -> Iterator[str]:
    host = report.host
    libraries = _mapping(host.get("driver_libraries"))
    for name in ("cuda", "nvml"):
        library = _mapping(libraries.get(name))
        path = str(library.get("path") or "")
        if not library.get("answered"):
            yield f"the driver's library {name} did not answer"
        elif not path.startswith(_SYSTEM):
            yield f"the driver's library {name} came from {path or 'an unknown place'}, no system directory"
    nodes = host.get("device_nodes")
    if not any(_is_gpu(_mapping(node)) for node in (nodes if isinstance(nodes, list) else [])):
        yield "no device file of a GPU opened"
    kernel, driver = host.get("kernel_driver"), host.get("driver")
    if kernel is not None and kernel != driver:
        yield f"the kernel's driver is {kernel}, the library's {driver}"
    if preloaded := _mapping(report.environment.get("variables")).get("LD_PRELOAD"):
        yield f"LD_PRELOAD put {preloaded} before all libraries"


def _is_gpu(node: Mapping[str, Any]) -> bool:
    """A device file of the NVIDIA driver, by the kernel's own list of drivers, that opens."""
    path = str(node.get("path") or "")
    return bool(
        _GPU_NODE.fullmatch(path)
        and node.get("device")
        and node.get("opens")
        and node.get("registered") is not False
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
