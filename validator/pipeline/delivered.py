"""Read what `./measure` wrote for an image of a bundle where the tool itself could not run.

Nobody signed it, so it is a report from elsewhere, whatever it says about itself, and never `certified`. But
it says which image, lock and challenge it is about, and what the machine saw outside of the image.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..errors import InputError
from ..fleet.protocol import Answer, CutError, read_result
from ..model import codec
from ..model.codec import DocumentError
from ..model.record import Origin, Record, RecordError, read_record
from ..model.report import ReportError, read_report
from ..model.verdict import unproven_failure
from .fleet import StoredHost
from .measuring import ProbeRun, Question, host_class_of, record_of, record_of_report, targets


class ReceivedImage(msgspec.Struct, frozen=True):
    """An image in `bundle.json`. lock, probe: paths in the bundle. arguments, timeout_s: see `ProbeRequest`.

    lock, question: None for an image of somebody else.
    """

    tag: str
    digest: str
    lock: str | None
    probe: str
    arguments: tuple[str, ...]
    timeout_s: float
    question: Question | None


class ReceivedBundle(msgspec.Struct, frozen=True):
    """The part of `bundle.json` that measuring needs. hosts: the host classes of the matrix."""

    images: tuple[ReceivedImage, ...]
    hosts: tuple[StoredHost, ...] = ()


class _Delivered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line. question: None for an image of somebody else. result: what `slurm_job.run` returns."""

    bundle: Literal[1]
    question: Question | None
    hosts: tuple[StoredHost, ...]
    unit: str
    result: str


def read_line(line: bytes) -> Record:
    """Read a record, or make one from what `./measure` wrote. Raises RecordError."""
    try:
        document: Any = codec.parse(line)
        if not isinstance(document, dict) or "bundle" not in document:
            return read_record(line)
        delivered = codec.convert(document, _Delivered)
        answer = read_result(delivered.result.encode(), delivered.unit, isolated=True)
        record = _record(delivered, answer)
    except (DocumentError, CutError, InputError, ValueError) as error:
        raise RecordError(f"not a record: {error}") from None
    # The same line gives the same record, whenever it is read.
    return msgspec.structs.replace(record, finished=answer.finished)


def _record(delivered: _Delivered, answer: Answer) -> Record:
    hosts = tuple(host.host_class() for host in delivered.hosts)
    seen = {"engine": answer.engine, "image_digest": answer.image_digest}
    if delivered.question is None:
        if answer.report is None:
            raise ReportError(answer.failure)
        return msgspec.structs.replace(record_of_report(read_report(answer.report)), **seen)
    question = msgspec.structs.replace(delivered.question, **seen, key="", origin=Origin.ELSEWHERE)
    ran = ProbeRun(
        report=answer.report,
        failure=answer.failure,
        outside=answer.outside,
        host=dict,
        host_class=lambda report: host_class_of(report.host, hosts),
        unreported=targets(answer.outside, hosts, by_model=False)[0].host_class,
        started=answer.started,
        began=answer.started,
    )
    record = record_of(question, ran, None, lambda _: None)
    return record if answer.isolates else unproven_failure(record, answer.engine)
