"""Whether a record may be certified. Its verdict is not taken for granted: its own report is judged again."""

from __future__ import annotations

from datetime import datetime

from ..errors import ValidatorError
from ..model.record import Origin, Record, Verdict
from ..model.report import Report, ReportError
from ..model.spec import cell_identifier
from ..records.verdict import judge
from ..registry.reference import is_digest
from . import emulation
from .times import TOLERANCE, moment

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
    if emulated := emulation.signs(report):
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
    finished = moment(record.finished)
    if finished is None:
        return f"its time is none ({record.finished})"
    if finished > now + TOLERANCE:
        return f"it was measured in the future ({record.finished}): a clock is wrong, there or here"
    return None
