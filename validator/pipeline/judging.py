"""Make the record of a measurement, wherever the probe ran: judge its report, and sign what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import ValidatorError
from ..model.measurement import (
    Measurement,
    MeasurementError,
    Outside,
    Unread,
    report_digest,
    statement_of,
)
from ..model.own_checks import OwnCheck, also_required
from ..model.record import REHEARSAL, Layer, Origin, Record, Verdict, contents_of
from ..model.report import Report, ReportError, read_report, versions_of
from ..model.spec import NO_GPU, Variant, cell_identifier
from ..model.timestamps import format_timestamp, now_utc
from ..model.verdict import judge
from .run import Runner


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is known about a measurement before the probe runs. It can be stored as JSON.

    image: the image spec's identifier. added: the image has additions. own: the user's own checks, sorted by
    id. image_digest, base, layers: see `Built`. challenge: that the report has to repeat, or None.
    key: see `measurement_key`. engine: see `Record`.
    """

    image: str
    variant: Variant
    lock_digest: str
    probe_version: str
    depth: str
    key: str
    engine: str
    added: bool = False
    own: tuple[OwnCheck, ...] = ()
    image_digest: str | None = None
    base: str | None = None
    layers: tuple[Layer, ...] | None = None
    challenge: str | None = None
    origin: Origin = Origin.HERE


@dataclass(frozen=True)
class Found:
    """The result of one run of the probe.

    report: its standard output; None if there is none, and `failure` is the sentence that says why.
    outside: the driver and the GPUs, read outside the environment.
    host: returns facts about the machine, for a record without a report.
    host_class: of the report, which is given; it may raise ReportError.
    unreported: the host class if there is no report to ask.
    started: when the work began. began: when the measurement began.
    """

    report: bytes | None
    failure: str
    outside: Outside | Unread
    host: Callable[[], Mapping[str, Any]]
    host_class: Callable[[Report], str]
    unreported: str | None
    started: str
    began: str


def record_of(question: Question, found: Found, runner: Runner | None, say: Callable[[str], None]) -> Record:
    """Judge what was found, and return the record.

    runner: signs it if the machine could be read outside the environment; None if nobody may sign it.
    say: gets the reason if it could not be signed.
    """
    report: Report | None = None
    host_class = found.unreported
    try:
        if found.report is None:
            raise ValidatorError(found.failure)
        read = read_report(found.report)
        host_class = found.host_class(read)
        report = read
        judgement = judge(
            report,
            question.origin,
            found.outside,
            challenge=question.challenge,
            variant=question.variant,
            also_required=also_required(question.added, question.own),
            labels_trusted=runner is not None and runner.labels_trusted,
        )
        verdict, reason = judgement.verdict, judgement.sentence
    except ReportError as error:
        verdict, reason = Verdict.FAILED, f"the probe's report can't be read: {error}"
    except ValidatorError as error:
        verdict, reason = Verdict.FAILED, str(error)
    host_class = host_class or NO_GPU
    record = Record(
        cell=cell_identifier(question.image, host_class),
        image=question.image,
        host_class=host_class,
        verdict=verdict,
        reason=reason_for(question.origin, reason),
        origin=question.origin,
        engine=question.engine,
        lock_digest=question.lock_digest,
        image_digest=question.image_digest,
        probe_version=question.probe_version,
        started=found.started,
        finished=now(),
        key=question.key,
        base=question.base,
        versions=versions_of(report) if report else {},
        layers=question.layers,
        **(contents_of(report) if report else {"host": dict(found.host())}),
    )
    if runner is None or isinstance(found.outside, Unread):
        return record
    try:
        return msgspec.structs.replace(record, measurement=_signed(record, question, found, report, runner))
    except (ValidatorError, MeasurementError) as error:
        # The record is kept without a signature; measuring again can sign it.
        say(f"not signed: {error}")
        return record


def _signed(record: Record, question: Question, found: Found, report: Report | None, runner: Runner) -> str:
    assert isinstance(found.outside, Outside)
    measurement = Measurement(
        image_digest=str(record.image_digest),
        image=record.image,
        host_class=record.host_class,
        cell=record.cell,
        lock_digest=question.lock_digest,
        report_digest=report_digest(report.raw) if report else None,
        challenge=question.challenge,
        outside=found.outside,
        probe_version=question.probe_version,
        started=found.began,
        finished=record.finished,
        depth=question.depth,
        fixture=report is not None and report.fixture,
        checks=question.own,
    )
    return runner.sign(statement_of(measurement))


def reason_for(origin: Origin, sentence: str) -> str:
    """Return the reason that records of this origin give for a sentence."""
    return f"{REHEARSAL}: {sentence}" if origin is Origin.REHEARSAL else sentence


def now() -> str:
    """Return the current time as records hold it."""
    return format_timestamp(now_utc(), "milliseconds")
