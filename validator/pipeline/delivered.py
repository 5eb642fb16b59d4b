"""Make records of the images of a received bundle: measure with the tool, or read what `./measure` wrote.

Where the tool can't run, nobody signs. So what `./measure` writes there is a report from elsewhere, whatever
it says about itself, and never `certified`. But it says which image, lock and challenge it is about, and what
the machine saw outside of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..engines.protocol import Engine, ProbeRequest
from ..errors import InputError
from ..fleet.protocol import Answer, CutError, read_result
from ..model import codec
from ..model.codec import DocumentError
from ..model.record import Origin, Outside, Record, RecordError, read_record
from ..model.report import ReportError, read_report
from ..model.spec import NO_GPU, cell_identifier
from ..model.verdict import unproven_failure
from ..offline.receive import Bundle, Image
from ..system.files import read_file
from .fleet import StoredHost
from .measuring import ProbeRun, Question, answer, host_class_of, now, record_of, record_of_report, targets
from .run import Runner


def measure(
    received: Path, bundle: Bundle, image: Image, engine: Engine, probe: Callable[[ProbeRequest], bytes],
    runner: Runner | None, say: Callable[[str], None],
) -> Iterator[Record]:  # fmt: skip
    """Measure an image of a bundle with each GPU model of this machine, and yield each record at once.

    received: the bundle's directory. probe: runs the probe in the image, which the engine has.
    """
    assert image.lock is not None, "`./measure` itself measures such an image"
    hosts = tuple(codec.convert(host, StoredHost).host_class() for host in bundle.hosts)
    archive, files = read_file(received / image.probe), {"lock.txt": read_file(received / image.lock)}
    started = now()
    found = targets(engine.outside(), hosts, by_model=True)
    for target in found:
        cell = cell_identifier(image.image, target.host_class or NO_GPU)
        challenge = image.challenges.get(cell)
        if challenge is None and len(found) == 1:
            challenge = image.challenges.get(image.image)
        gpus = target.outside.gpus if isinstance(target.outside, Outside) else ()
        say(f"{cell}: {', '.join(f'{gpu.name} ({gpu.uuid})' for gpu in gpus) or 'no GPU'}")
        if runner is not None and challenge is None:
            asked = ", ".join(image.challenges) or "nothing"
            say(f"{cell}: can't be certified: the challenges in the bundle are for {asked}")
        words = ("--challenge", challenge) if challenge else ()
        request = ProbeRequest(archive, (*image.arguments, *words), files, image.timeout_s, target.uuids)
        question = msgspec.structs.replace(
            codec.convert(image.question, Question), engine=engine.name, challenge=challenge
        )

        def run(request: ProbeRequest = request) -> bytes:
            return probe(request)

        record = answer(question, run, target, engine, runner, hosts, started, say)
        say(f"{record.cell}: {record.verdict.value}: {record.reason}")
        yield record


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
        came = read_result(delivered.result.encode(), delivered.unit, isolated=True)
        record = _record(delivered, came)
    except (DocumentError, CutError, InputError, ValueError) as error:
        raise RecordError(f"not a record: {error}") from None
    # The same line gives the same record, whenever it is read.
    return msgspec.structs.replace(record, finished=came.finished)


def _record(delivered: _Delivered, came: Answer) -> Record:
    hosts = tuple(host.host_class() for host in delivered.hosts)
    seen = {"engine": came.engine, "image_digest": came.image_digest}
    if delivered.question is None:
        if came.report is None:
            raise ReportError(came.failure)
        return msgspec.structs.replace(record_of_report(read_report(came.report)), **seen)
    question = msgspec.structs.replace(delivered.question, **seen, key="", origin=Origin.ELSEWHERE)
    ran = ProbeRun(
        report=came.report, failure=came.failure, outside=came.outside, host=dict,
        host_class=lambda report: host_class_of(report.host, hosts),
        unreported=targets(came.outside, hosts, by_model=False)[0].host_class,
        started=came.started, began=came.started,
    )  # fmt: skip
    record = record_of(question, ran, None, lambda _: None)
    return record if came.isolates else unproven_failure(record, came.engine)
