"""Measure once: run the probe, read the host, derive the verdict, and sign."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ..assemble.progress import Progress
from ..engines.base import Built
from ..engines.own_checks import PackedCheck, read_checks
from ..engines.probe_archive import probe_request, probe_version
from ..errors import InputError, MissingError, ValidatorError
from ..locks.files import render
from ..model.lock import Lock
from ..model.measurement import (
    Measurement,
    MeasurementError,
    Outside,
    Unread,
    report_digest,
    statement_of,
)
from ..model.own_checks import also_required, own_check
from ..model.record import Record, Verdict, contents_of
from ..model.report import Report, ReportError, read_report, versions_of
from ..model.spec import NO_GPU, ImageSpec, cell_identifier
from ..model.timestamps import format_timestamp, now_utc
from ..model.verdict import judge
from .recording import host_class_of
from .run import Run
from .targets import Target


@dataclass(frozen=True)
class Probing:
    """A run of the probe on one of the machine's targets.

    challenge: from whoever will certify, or None. key: see `measurement_key`.
    """

    target: Target
    challenge: str | None
    key: str


def may_be_signed(run: Run, target: Target) -> bool:
    """Return True if this run can sign what it measures there.

    Code in an environment on this machine could reach the key, so only containers count. If no GPU could be
    read on the host, there is nothing that this machine could vouch for.
    """
    outside = target.outside
    return (
        run.runner is not None and run.engine.isolates and isinstance(outside, Outside) and bool(outside.gpus)
    )


def own_checks(spec: ImageSpec) -> tuple[PackedCheck, ...]:
    """Return the user's own checks of an image. Raises MissingError if one can't be used."""
    added = spec.additions
    try:
        return read_checks(added.directory, added.checks) if added else ()
    except InputError as error:
        # It says nothing about the image, so nothing is recorded.
        raise MissingError(str(error), hint=error.hint) from error


def measured_record(
    probing: Probing, built: Built, lock: Lock, run: Run, started: str, progress: Progress
) -> Record:
    """Run the probe, judge its report, and return the record, signed if this run can.

    started: when the work on the image began. Raises MissingError or InputError if nothing could be measured.
    """
    target, challenge = probing.target, probing.challenge
    runner = run.runner if may_be_signed(run, target) else None
    if challenge is None and runner is not None:
        challenge = runner.challenge(str(target.cell(built.spec)))
    # Read the host again, because the build took place between the plan and the probe.
    outside = target.seen_in(run.engine.outside())
    began = now()
    own = own_checks(built.spec)
    named = tuple(sorted((own_check(check.file) for check in own), key=lambda check: check.id))
    version = probe_version(own)
    request = probe_request(
        run.options.depth, render(lock).encode(), challenge=challenge, gpus=target.uuids, own=own
    )
    report: Report | None = None
    host_class = target.host_class
    try:
        read = read_report(run.engine.probe(built, request, progress))
        host_class = host_class or host_class_of(read.host, run.hosts)
        report = read
        required = also_required(built.spec.additions is not None, named)
        judgement = judge(
            report,
            run.options.origin,
            outside,
            challenge=challenge,
            variant=built.spec.variant,
            also_required=required,
        )
        verdict, reason = judgement.verdict, judgement.sentence
    except ReportError as error:
        verdict, reason = Verdict.FAILED, f"the probe's report can't be read: {error}"
    except (MissingError, InputError):
        raise
    except ValidatorError as error:
        verdict, reason = Verdict.FAILED, str(error)
    host_class = host_class or NO_GPU
    record = Record(
        cell=cell_identifier(built.spec.identifier, host_class),
        image=built.spec.identifier,
        host_class=host_class,
        verdict=verdict,
        reason=run.options.reason(reason),
        origin=run.options.origin,
        engine=run.engine.name,
        lock_digest=lock.digest,
        image_digest=built.digest,
        probe_version=version,
        started=started,
        finished=now(),
        key=probing.key,
        base=built.base,
        versions=versions_of(report) if report else {},
        layers=built.layers,
        **(contents_of(report) if report else {"host": run.engine.host_facts()}),
    )
    if runner is None or isinstance(outside, Unread):
        return record
    measurement = Measurement(
        image_digest=str(record.image_digest),
        image=record.image,
        host_class=host_class,
        cell=record.cell,
        lock_digest=lock.digest,
        report_digest=report_digest(report.raw) if report else None,
        challenge=challenge,
        outside=outside,
        probe_version=version,
        started=began,
        finished=record.finished,
        depth=run.options.depth,
        fixture=report is not None and report.fixture,
        checks=named,
    )
    try:
        return msgspec.structs.replace(record, measurement=runner.sign(statement_of(measurement)))
    except (ValidatorError, MeasurementError) as error:
        # The record is kept without a signature; measuring again can sign it.
        progress(f"not signed: {error}")
        return record


def now() -> str:
    """Return the current time as records hold it."""
    return format_timestamp(now_utc(), "milliseconds")
