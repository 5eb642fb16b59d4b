"""Measure the cells of a plan with a fleet: images in a registry become units, and answers become records."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from ..compat.hardware import model_of
from ..engines.protocol import PackedCheck, probe_request, probe_version
from ..fleet.protocol import Answer, Fleet, Unit
from ..fleet.run_store import Tried, Work
from ..fleet.submitter import Settled, WrongAnswer
from ..locks.lock_files import render
from ..model import codec
from ..model.record import Outside, Record, Source, Unread, Verdict, read_record
from ..model.report import Report, ReportError, read_report
from ..model.spec import NO_GPU, Cell, HostClass, Lock, slug
from ..records.store import Store
from ..versions import ComputeCapability, DriverRelease, is_release_of
from .measuring import ProbeRun, Question, host_class_of, own_checks, question_about, record_of
from .run import PublishedImage, Result, Run, Runner


class StoredHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host class of the matrix, as the run store keeps it. capability: `9.0`."""

    identifier: str
    driver: str
    capability: str
    gpu: str | None

    @classmethod
    def of(cls, host: HostClass) -> StoredHost:
        return cls(host.identifier, str(host.driver), str(host.compute_capability), host.gpu)

    def host_class(self) -> HostClass:
        """Return the host class, without what only the matrix needs."""
        if self.identifier == NO_GPU:
            return HostClass.without_gpu()
        driver, capability = DriverRelease.parse(self.driver), ComputeCapability.parse(self.capability)
        return HostClass(self.identifier, driver, capability, self.gpu)


class StoredCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts about a cell in the run store; they suffice to make a record without the matrix."""

    question: Question
    host: StoredHost


@dataclass(frozen=True)
class Planned:
    """works: the units to submit. unchanged: the records of cells that need no new measurement.

    going: how many cells each open run has already, by its id.
    """

    works: tuple[Work, ...]
    unchanged: tuple[Record, ...]
    going: Mapping[str, int]


def plan_units(
    cells: Iterable[Cell],
    images: Sequence[Result],
    run: Run,
    fleet: Fleet,
    owner: Callable[[Unit], str | None],
) -> Planned:
    """Return the units of the cells whose images are in the registry.

    images: the results of building. owner: returns the id of the open run that measures the same already,
    which goes on with the challenge that it has; None if there is none.
    """
    published = {result.spec.identifier: result.published for result in images if result.published}
    # What all cells of an image share.
    made: dict[str, tuple[Lock, tuple[PackedCheck, ...], str]] = {}
    works, unchanged = [], []
    going: Counter[str] = Counter()
    given: Mapping[str, str] = run.challenges or {}
    for cell in cells:
        name = cell.image.identifier
        found = published.get(name)
        challenge = given.get(cell.identifier) or given.get(name)
        if found is None or (run.challenges is not None and challenge is None):
            continue
        if name not in made:
            lock = run.locks.read(name)
            assert lock is not None, "an image in the registry was made from a lock"
            own = own_checks(cell.image)
            made[name] = lock, own, probe_version(own)
        lock, own, version = made[name]
        unit = unit_of(cell, found, lock, version, run.options.depth, fleet)
        key = _key(unit, fleet.name)
        if (busy := owner(unit)) is not None:
            going[busy] += 1
        elif (earlier := _earlier(unit, key, run)) is not None:
            unchanged.append(earlier)
        else:
            if challenge is None and run.runner is not None:
                challenge = run.runner.challenge(cell.identifier)
            asked = {"image_digest": unit.image_digest, "challenge": challenge, "origin": run.options.origin}
            question = question_about(cell.image, lock, unit.depth, own, key=key, engine=fleet.name, **asked)
            request = probe_request(unit.depth, render(lock).encode(), challenge=challenge, own=own)
            stored = msgspec.json.encode(StoredCell(question, StoredHost.of(cell.host)))
            entries = run.store.entries(cell.identifier)
            unit = msgspec.structs.replace(unit, after=entries[-1].id if entries else "")
            works.append(Work(unit, request, stored))
    return Planned(tuple(works), tuple(unchanged), going)


def unit_of(
    cell: Cell, published: PublishedImage, lock: Lock, probe_version: str, depth: str, fleet: Fleet
) -> Unit:
    return Unit(
        image=cell.image.identifier,
        reference=published.reference,
        image_digest=published.digest,
        lock_digest=lock.digest,
        probe_version=probe_version,
        depth=depth,
        host_class=cell.host.identifier,
        tasks=fleet.limits(cell.host.identifier).tasks(depth),
    )


def _earlier(unit: Unit, key: str, run: Run) -> Record | None:
    """Return the record that makes a measurement unnecessary."""
    if run.challenges is not None or run.options.force:
        return None
    found = run.store.measured(key)
    if found is None or found.image_digest not in (None, unit.image_digest):
        return None
    if found.host_class != unit.host_class:
        # The scheduler gave it a node of another host class, so this cell was not measured.
        return None
    # What can be signed now is measured again, as on this machine.
    unsigned = found.measurement is None and bool(found.facts.gpus)
    return None if unsigned and run.runner is not None else found


def _key(unit: Unit, fleet: str) -> str:
    """Return a SHA-256 in hex over what must be unchanged for a measurement to stay valid.

    The image's digest is compared separately, as for measurements on this machine.
    """
    facts = {
        "image": unit.image,
        "lock": unit.lock_digest,
        "probe": unit.probe_version,
        "depth": unit.depth,
        "fleet": fleet,
        "host_class": unit.host_class,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def command_key(fleet: str, repository: str, cells: Iterable[Cell], run: Run) -> str:
    """Return a name for what a command asks for, the same if it is given again."""
    asked = {
        "fleet": fleet,
        "repository": repository,
        "cells": sorted(cell.identifier for cell in cells),
        "depth": run.options.depth,
        "store": run.store.location,
        "challenges": dict(run.challenges) if run.challenges is not None else None,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


@dataclass
class Recorder:
    """Makes records of a fleet's answers, and adds them to the store.

    runner: signs what was measured in containers; None if nothing can be signed.
    say, show: see `Caller`.
    """

    store: Store
    runner: Runner | None
    say: Callable[[str], None]
    show: Callable[[Mapping[str, Counter[str]]], None]

    def settle(self, tried: Tried, answer: Answer) -> Settled:
        """Return the record of an answer.

        Raises WrongAnswer if it answers another challenge, and if neither the node nor a report says that it
        is about the cell.
        """
        asked = msgspec.json.decode(tried.question, type=StoredCell)
        expected = asked.host.host_class()
        question = msgspec.structs.replace(asked.question, engine=f"{asked.question.engine}/{answer.engine}")
        if not answer.isolates:
            # An environment on the node was measured, not the image.
            question = msgspec.structs.replace(question, image_digest=None)
        if _is_of_another_class(answer.outside, expected):
            problem = "and there is no report"
            try:
                if answer.report is not None:
                    problem = ""
                    host_class_of(read_report(answer.report).host, [expected])
            except ReportError as error:
                problem = f"and its report can't be read: {error}"
            if problem:
                raise WrongAnswer(f"the node is not of {asked.host.identifier}, {problem}")

        def host_class(report: Report) -> str:
            if question.challenge is not None and report.challenge != question.challenge:
                # Another submitter, with another run store, made the job that was adopted.
                raise WrongAnswer("its report does not have the challenge of this run")
            found = host_class_of(report.host, [expected])
            # A machine that shows no GPU is taken for what it should be, since its record proves nothing. One
            # that shows others than it should have is named for what it is.
            return asked.host.identifier if found == NO_GPU else found

        ran = ProbeRun(
            report=answer.report,
            failure=answer.failure,
            outside=answer.outside,
            host=dict,
            host_class=host_class,
            unreported=asked.host.identifier,
            started=tried.submitted,
            began=tried.submitted,
        )
        record = record_of(question, ran, self.runner if answer.isolates else None, self.say)
        failed = record.verdict in (Verdict.FAILED, Verdict.BROKEN)
        return Settled(codec.canonical(record.document()), record.id, failed)

    def deliver(self, record: bytes) -> None:
        self.store.add(read_record(record))


def _is_of_another_class(outside: Outside | Unread, host: HostClass) -> bool:
    """Return True if the node has another driver or other GPUs than a host class, as read from outside."""
    if isinstance(outside, Unread) or not outside.gpus or not outside.driver or host.identifier == NO_GPU:
        return False
    # Labels may say only the branch of the driver, and a host class may, too.
    driver = str(host.driver)
    if not is_release_of(outside.driver, driver) and not is_release_of(driver, outside.driver):
        return True
    if host.gpu is None:
        return any(gpu.compute_capability != str(host.compute_capability) for gpu in outside.gpus)
    names = [gpu.name for gpu in outside.gpus]
    if outside.source is Source.NODE_LABELS:
        names = [name.replace("-", " ") for name in names]
    return any(model_of(name) != slug(host.gpu) for name in names)


@dataclass(frozen=True)
class CellResult:
    """The outcome of one cell, or of an image that was not built.

    record_id: of its record, or "". failed: the cell failed, or the image failed or was refused.
    """

    cell: Annotated[
        str | None, "The cell; null for an image that could not be built or is not in the registry."
    ]
    image: Annotated[str, "The identifier of the image spec."]
    host_class: Annotated[str | None, "The host class; null like `cell`."]
    status: Annotated[
        str, "`measured`, `unchanged`, `lost`, `missing` or `cancelled`; for an image, its own status."
    ]
    detail: Annotated[str, "The reason, if there is no record."] = ""
    attempts: Annotated[int, "How often the cell was tried in this run."] = 0
    published: Annotated[PublishedImage | None, "The image in the registry, as above."] = None
    record: Annotated[
        Record | None,
        "The [record](#a-record-records-show---json-one-on-each-line-of-records-export), or null.",
    ] = None
    record_id: str = ""
    failed: bool = False

    def record_in(self, store: Store) -> Record | None:
        return self.record or (store.get(self.record_id) if self.record_id else None)

    def as_json(self, store: Store) -> dict[str, Any]:
        record = self.record_in(store)
        shown = codec.encode(replace(self, record=None))
        del shown["record_id"], shown["failed"]
        return {**shown, "record": record.document() if record else None}


def results_of(
    tried: Iterable[Tried], published: Mapping[str, PublishedImage] | None = None
) -> list[CellResult]:
    """Return one result for each cell of a run: that of its last attempt."""
    last: dict[str, Tried] = {attempt.unit.cell: attempt for attempt in tried}
    results = []
    for cell, attempt in last.items():
        unit = attempt.unit
        status, detail = ("measured", "") if attempt.record_id else (attempt.stage.value, attempt.why)
        image = (published or {}).get(unit.image)
        described = (cell, unit.image, unit.host_class, status, detail, unit.attempt, image)
        results.append(CellResult(*described, record_id=attempt.record_id, failed=attempt.failed))
    return results


def preview(works: Sequence[Work], fleet: Fleet) -> str:
    """Return exactly what would be submitted for these units."""
    parts = []
    ordered = sorted(works, key=lambda work: (work.unit.tasks, work.unit.image_digest, work.unit.name))
    for host_class in sorted({work.unit.host_class for work in works}):
        mine = [work for work in ordered if work.unit.host_class == host_class]
        for start in range(0, len(mine), fleet.batch):
            batch = mine[start : start + fleet.batch]
            requests = {work.unit.name: work.request for work in batch}
            parts.append(fleet.preview([work.unit for work in batch], requests))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)
