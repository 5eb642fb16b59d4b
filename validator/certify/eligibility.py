"""Decide whether a record may be certified, or may invalidate certificates because the image failed.

Its verdict is not trusted: its own report is judged again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from ..errors import ValidatorError
from ..model.facts import DeviceNode
from ..model.measurement import Outside
from ..model.own_checks import OwnCheck, also_required
from ..model.record import REHEARSAL, Origin, Record, Verdict
from ..model.report import Report, ReportError, versions_of
from ..model.spec import NO_GPU, cell_identifier, variant_of
from ..model.timestamps import TOLERANCE, parse_timestamp
from ..model.verdict import judge
from ..registry.names import additions_of, is_digest

#: The versions that the probe must have read, since a certificate says what is in the image.
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn")


class NotCertifiable(ValidatorError):
    """A record may not be certified. The message says why."""


def check_record(record: Record) -> None:
    """Raise NotCertifiable if a record can't get a statement, whatever its report says."""
    if objection := _objection(record):
        raise _refusal(record, objection)


def checked_report(
    record: Record,
    outside: Outside,
    now: datetime,
    own: tuple[OwnCheck, ...] = (),
    *,
    labels_trusted: bool = False,
) -> Report | None:
    """Return the report of a record that may get a statement. Raises NotCertifiable with the reason.

    None if the image failed without writing one.

    outside: what the host saw of its driver and GPUs, own: the user's own checks; both as its runner signed.
    labels_trusted: see `judge`.
    """
    check_record(record)
    try:
        report = record.read_report()
    except ReportError as error:
        raise _refusal(record, f"its report can't be read: {error}") from None
    if report is None:
        if record.verdict is Verdict.FAILED:
            return None
        raise _refusal(record, "it has no report")
    if objection := _objection_in_report(record, report, outside, own, now, labels_trusted):
        raise _refusal(record, objection)
    return report


def _refusal(record: Record, objection: str) -> NotCertifiable:
    return NotCertifiable(f"record {record.id} ({record.cell}) can't be certified: {objection}")


def _objection(record: Record) -> str | None:
    """Return why the record itself prevents certifying it, or None."""
    if record.origin is Origin.REHEARSAL:
        return f"it was made by a {REHEARSAL}, which proves nothing"
    if record.verdict not in (Verdict.CERTIFIED, Verdict.FAILED):
        return f"its verdict is {record.verdict.value}: {record.reason}"
    if record.origin is not Origin.HERE:
        return "its report was imported from elsewhere"
    if record.image_digest is None or not is_digest(record.image_digest):
        return f"it was measured without an image (engine {record.engine})"
    if record.lock_digest is None or not is_digest(record.lock_digest):
        return "it does not name a lock"
    if record.verdict is Verdict.FAILED and record.host_class == NO_GPU:
        return "it failed on a machine without a GPU, for which there are no certificates"
    return None


def _objection_in_report(
    record: Record,
    report: Report,
    outside: Outside,
    own: tuple[OwnCheck, ...],
    now: datetime,
    labels_trusted: bool,
) -> str | None:
    """Return why the record's report prevents certifying it, or None."""
    # From the image's name and from what the runner signed, since the image itself wrote the report.
    required = also_required(additions_of(record.image) is not None, own)
    judgement = judge(
        report,
        record.origin,
        outside,
        variant=variant_of(record.image),
        also_required=required,
        labels_trusted=labels_trusted,
    )
    certifies = record.verdict is Verdict.CERTIFIED
    if judgement.verdict is not record.verdict:
        return f"its own report says {judgement.verdict.value}: {judgement.sentence}"
    if certifies and (signs := tuple(signs_of_emulation(report))):
        return f"the GPU may have been emulated: {'; '.join(signs)}"
    same = {
        "checks": [check.recorded() for check in report.checks] == record.checks,
        "host": report.raw["host"] == record.host,
        "probe": report.probe.version == record.probe_version,
        "cell": cell_identifier(record.image, record.host_class) == record.cell,
        "versions": versions_of(report) == record.versions,
    }
    if differs := [name for name, equal in same.items() if not equal]:
        return f"it and its own report differ ({', '.join(differs)})"
    if certifies and (missing := [name for name in _VERSIONS if not record.versions.get(name)]):
        return f"the probe found no version of {', '.join(missing)}"
    if certifies and not record.image.startswith(f"tf{record.versions['tensorflow']}-"):
        return f"TensorFlow {record.versions['tensorflow']} was in the image"
    finished = parse_timestamp(record.finished)
    if finished is None:
        return f"its finish time is not a timestamp ({record.finished})"
    if finished > now + TOLERANCE:
        return f"it was measured in the future ({record.finished}): a clock is wrong, there or here"
    return None


# Signs in a report that the GPU was emulated: libraries that stand in for the driver's.

#: Where distributions, NVIDIA's installers and container runtimes put the driver's libraries, NixOS too.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/run/opengl-driver/")
_GPU_NODE = re.compile(r"/dev/nvidia\d+|/dev/dxg")


def signs_of_emulation(report: Report) -> Iterator[str]:
    """Yield a sentence for each sign; none for a report of a real GPU."""
    host = report.host
    for name, library in (("cuda", host.driver_libraries.cuda), ("nvml", host.driver_libraries.nvml)):
        place = library.path or "an unknown directory"
        if not library.answered:
            yield f"the driver's library {name} did not answer"
        elif not place.startswith(_SYSTEM):
            yield f"the driver's library {name} came from {place}, which is not a system directory"
    if not any(_is_gpu(node) for node in host.device_nodes):
        yield "no device file of a GPU opened"
    if host.kernel_driver is not None and host.kernel_driver != host.driver:
        yield f"the kernel's driver is {host.kernel_driver}, the library's {host.driver}"
    if preloaded := report.environment.variables.get("LD_PRELOAD"):
        yield f"LD_PRELOAD put {preloaded} before all libraries"


def _is_gpu(node: DeviceNode) -> bool:
    """Tell whether this is a device file of the NVIDIA driver, by the kernel's own list, that opens."""
    return bool(
        _GPU_NODE.fullmatch(node.path) and node.device and node.opens and node.registered is not False
    )
